"""Trains on fixed completions and saves the weights, as OBJECTIVE.pt: run by a test in one process and in two.

    torchrun --nproc_per_node 2 two_processes.py MODEL FOLDER OBJECTIVE...

Sampling draws other completions in every process, so completions are laid down by (prompt, member of its group).
"""

import os
import sys
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoTokenizer

from maxk.config import Training
from maxk.objectives import make
from maxk.training.arguments import arguments
from maxk.trl import MaxkTrainer

PROMPTS = [f"sort up, {word}\n" for word in ("total", "largest", "count", "middle")]
TEXTS = ["print(a)", "a = sorted(a)", "print(sum(a))", "a = a[::-1]\nprint(len(a))"]


def train(model: str, folder: str, objective: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left")
    processes = int(os.environ["WORLD_SIZE"])
    training = Training(
        datasets=("x",),
        prompts_per_step=2,
        num_generations=4,
        per_device_batch_size=2,
        processes=processes,
        max_tokens=16,
        learning_rate=1e-3,
        iterations=1 if objective == "bon_loo1" else 3,
    )

    def laid_down(prompts: list[str], trainer: MaxkTrainer) -> dict[str, Any]:
        first = trainer.accelerator.process_index * len(prompts)
        texts = [TEXTS[(first + i) % 4][: 6 + len(prompt)] for i, prompt in enumerate(prompts)]
        return {
            "prompt_ids": [tokenizer(prompt)["input_ids"] for prompt in prompts],
            "completion_ids": [[*tokenizer(text)["input_ids"], tokenizer.eos_token_id] for text in texts],
            "logprobs": None,
        }

    def by_length(completions: list[str], **_: Any) -> list[float]:
        return [len(text) % 7 / 6 for text in completions]

    trainer = MaxkTrainer(
        model=model,
        reward_funcs=[by_length],
        args=arguments(training, Path(folder) / objective, seed=0, prompts=4),
        train_dataset=Dataset.from_list([{"prompt": prompt} for prompt in PROMPTS]),
        processing_class=tokenizer,
        rollout_func=laid_down,
        objective=make({"type": objective, "k": 2}),
    )
    trainer.train()
    model_ = trainer.accelerator.unwrap_model(trainer.model)
    if trainer.is_world_process_zero():
        print(f"world size {trainer.accelerator.num_processes}")
        torch.save(torch.cat([p.detach().flatten() for p in model_.parameters()]), Path(folder) / f"{objective}.pt")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in sys.argv[3:]:
        train(*sys.argv[1:3], name)
