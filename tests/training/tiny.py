"""A trainer of seconds: a random model over letters and fixed completions, so that runs differ in nothing else.

Comparisons of two runs use plain SGD, in which a weight moves in proportion to its gradient. (Adam divides by the
gradient's size: where a gradient is nothing but rounding, weights still move by the learning rate.) Gradients of runs
that do the same in another order differ by the rounding of float32 sums, about 1e-6 of their size and on any CPU far
below `ROUNDING`; different advantages change them by more than `DIFFERENT`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from maxk.trl import MaxkTrainer

ROUNDING, DIFFERENT = 1e-4, 1e-2
PROMPTS = ["ab", "cde", "f", "gh"]
WORDS = ["aab", "abcab", "ccc", "a", "hgfaa", "babab", "dd", "eaea"]
GROUP = 4


def make_model(folder: Path) -> str:
    """A decoder of one layer with random weights, and its tokenizer: one token per letter."""
    vocabulary = {token: i for i, token in enumerate(["<pad>", "<end>", *"abcdefgh "])}
    letters = Tokenizer(models.WordLevel(vocabulary, unk_token="a"))
    letters.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=letters, pad_token="<pad>", eos_token="<end>", padding_side="left"
    )
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    ids = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": None}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(vocabulary), **shape, **ids, initializer_range=0.3))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def tokenizer(model: str) -> Any:
    return PreTrainedTokenizerFast.from_pretrained(model, padding_side="left")


def tokens(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer(text)["input_ids"]
    return ids


def laid_down(prompts: Sequence[str], trainer: GRPOTrainer, **extra: Any) -> dict[str, Any]:
    """A rollout function: fixed completions of different lengths, by position in the batch of all processes."""
    tokenizer, first = trainer.processing_class, trainer.accelerator.process_index * len(prompts)
    step = trainer.state.global_step
    words = [WORDS[(3 * (first + i) + step) % len(WORDS)] for i in range(len(prompts))]
    completions = [[*tokens(tokenizer, word), tokenizer.eos_token_id] for word in words]
    prompt_ids = [tokens(tokenizer, prompt) for prompt in prompts]
    return {"prompt_ids": prompt_ids, "completion_ids": completions, "logprobs": None, **extra}


def count_a(completions: Sequence[str], **_: Any) -> list[float | None]:
    """A reward that differs within groups."""
    return [text.count("a") / 4 for text in completions]


def config(folder: Path, **changes: Any) -> GRPOConfig:
    """Two generation batches of 4 groups of 4, each of one optimiser step over two micro-batches."""
    settings: dict[str, Any] = {
        "per_device_train_batch_size": 8,
        "gradient_accumulation_steps": 2,
        "num_generations": GROUP,
        "max_completion_length": 8,
        "max_steps": 2 * changes.get("num_iterations", 1),
        "learning_rate": 0.3,
        "gradient_checkpointing": False,
        "lr_scheduler_type": "constant",
        "optim": "sgd",
        "max_grad_norm": 100.0,
        "shuffle_dataset": False,
        "logging_steps": 1,
        "save_strategy": "no",
        "use_cpu": True,
        "bf16": False,
        "disable_tqdm": True,
        "report_to": [],
    }
    return GRPOConfig(output_dir=str(folder), **{**settings, **changes})


def make_trainer(
    model: str,
    args: GRPOConfig,
    kind: type[GRPOTrainer] = MaxkTrainer,
    rewards: Callable[..., Any] | list[Callable[..., Any]] = count_a,
    callbacks: list[TrainerCallback] | None = None,
    **extra: Any,
) -> GRPOTrainer:
    """A trainer over PROMPTS; `objective` and all else that GRPOTrainer takes in `extra`."""
    torch.set_num_threads(1)
    return kind(
        model=model,
        args=args,
        reward_funcs=rewards,
        train_dataset=Dataset.from_dict({"prompt": PROMPTS * 4, "problem_id": [str(i) for i in range(16)]}),
        eval_dataset=Dataset.from_dict({"prompt": PROMPTS, "problem_id": ["a", "b", "c", "d"]}),
        callbacks=callbacks,
        **{"rollout_func": laid_down, **extra},
    )


def trained(model: str, args: GRPOConfig, **extra: Any) -> GRPOTrainer:
    trainer = make_trainer(model, args, **extra)
    trainer.train()
    return trainer


def weights(model: Any) -> Tensor:
    """All parameters of a model or of a folder's model, in one vector."""
    if isinstance(model, str):
        model = LlamaForCausalLM.from_pretrained(model)
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def difference(one: Tensor, two: Tensor, start: Tensor) -> float:
    """How far two trained vectors are apart, as a fraction of the first one's way from `start`."""
    way = (one - start).norm()
    assert way > 1e-3 * start.norm(), "nothing was learned, so there is nothing to compare"
    return float((one - two).norm() / way)
