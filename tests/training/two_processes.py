"""Trains on fixed completions and saves the weights as OBJECTIVE.pt: run by a test in one process and in two.

torchrun --nproc_per_node 2 two_processes.py MODEL FOLDER OBJECTIVE...
"""

import os
import sys
from pathlib import Path

import tiny
import torch


def train(model: str, folder: str, objective: str) -> None:
    """Micro-batches of two completions: groups of four are split, over processes too."""
    processes = int(os.environ["WORLD_SIZE"])
    args = tiny.config(
        Path(folder) / objective,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=8 // processes,
        num_iterations=1 if objective == "bon_loo1" else 3,
    )
    trainer = tiny.trained(model, args, objective={"type": objective, "k": 2})
    if trainer.is_world_process_zero():
        print(f"world size {trainer.accelerator.num_processes}")
        policy = trainer.accelerator.unwrap_model(trainer.model)
        torch.save(tiny.weights(policy), Path(folder) / f"{objective}.pt")


if __name__ == "__main__":
    for name in sys.argv[3:]:
        train(*sys.argv[1:3], name)
