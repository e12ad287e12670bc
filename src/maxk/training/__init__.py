"""Making policies: the pocket base model (`pretrain`) and GRPO with a max@k objective (`trainer`)."""
