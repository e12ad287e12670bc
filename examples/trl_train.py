"""Train a code model for the best of 4 with plain TRL; the reward is the fraction of tests that a program passes.

    pip install '.[trl,grade]'    # in a checkout of maxk
    python examples/trl_train.py --model Qwen/Qwen2.5-Coder-0.5B-Instruct --output trained

Only the trainer's class and its `objective` differ from a script with TRL's GRPOTrainer; `tests_passed` works with both
(docs/trainer.md).
"""

from __future__ import annotations

import argparse

import torch
from datasets import Dataset
from trl import GRPOConfig

from maxk.integrations.code_reward import tests_passed
from maxk.trl import MaxkTrainer

PROBLEMS = [
    {
        "prompt": "Write a Python program that reads two integers and prints their sum.",
        "tests": [{"stdin": "1 2\n", "expected": "3\n"}, {"stdin": "-4 4\n", "expected": "0\n"}],
    },
    {
        "prompt": "Write a Python program that reads a word and prints it backwards.",
        "tests": [{"stdin": "abc\n", "expected": "cba\n"}, {"stdin": "a\n", "expected": "a\n"}],
    },
]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True, help="a hub id or a folder")
    parser.add_argument("--output", required=True, help="folder of the trained model")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--max-tokens", type=int, default=256)
    args = parser.parse_args()
    trainer = MaxkTrainer(
        model=args.model,
        args=GRPOConfig(
            args.output,
            num_generations=8,
            max_completion_length=args.max_tokens,
            max_steps=args.steps,
            bf16=torch.cuda.is_available(),
            report_to=[],
        ),
        train_dataset=Dataset.from_list(PROBLEMS * 8),
        reward_funcs=tests_passed,
        objective={"type": "bon_loo1", "k": 4},
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
