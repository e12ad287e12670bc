"""One training step against stock GRPOTrainer: same model, data, seed, batch and iterations, runs interleaved.

    python benchmarks/trainer.py                      # the pocket base model on this machine
    python benchmarks/trainer.py --model PATH --max-tokens 256 --repeats 5

Prints the median ratio of CPU-seconds (of the GPU's wall-clock seconds where there is one) a step, for on-policy
objectives at one PPO iteration and off-policy ones at three. The reward is a cheap function of the text, so that what
is measured is the trainer.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoTokenizer
from transformers.trainer_callback import PrinterCallback
from trl import GRPOTrainer

from maxk import config as configuration
from maxk import data, environment, prompts
from maxk.config import Config
from maxk.objectives import make
from maxk.training.pretrain import pretrain
from maxk.training.trainer import MaxkTrainer, arguments

ROOT = Path(__file__).parent.parent
CASES = [("grpo", 1), ("bon_mean", 1), ("bon_loo1", 1), ("bon_offpolicy", 3), ("bon_offpolicy_exact", 3)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a model folder; by default the pocket base model is pretrained")
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("--batches", type=int, default=8, help="generation batches a run")
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    environment.quiet_libraries()
    config = configuration.parse(configuration.read_yaml(ROOT / "config" / "config.yaml"))
    with tempfile.TemporaryDirectory() as folder:
        model = args.model or str(Path(folder) / "model")
        if args.model is None:
            pretrain(config.base, config.prompt, Path(model))
        for name, iterations in CASES:
            seconds: dict[str, list[float]] = {"stock": [], "ours": []}
            for _ in range(args.repeats + 1):  # the first pair warms up
                seconds["stock"].append(run(config, model, None, iterations, args))
                seconds["ours"].append(run(config, model, name, iterations, args))
            ratios = [ours / stock for ours, stock in zip(seconds["ours"], seconds["stock"], strict=True)][1:]
            step = statistics.median(seconds["stock"][1:])
            print(
                f"{name:20s} μ={iterations}  ratio {statistics.median(ratios):.3f} "
                f"[{min(ratios):.3f}, {max(ratios):.3f}]  stock {step:.3f} s a generation batch",
                flush=True,
            )


def run(config: Config, model: str, objective: str | None, iterations: int, args: argparse.Namespace) -> float:
    """Seconds a generation batch: CPU-seconds of this process, or wall-clock seconds on a GPU."""
    training = config.training.model_copy(update={"iterations": iterations, "max_tokens": args.max_tokens})
    tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left")
    problems, _ = data.load("pocket-contests", config.datasets["pocket-contests"])
    count = args.batches * training.prompts_per_step
    rows = [{"prompt": prompts.render(p.statement, config.prompt, tokenizer)} for p in problems[:count]]
    common: dict[str, Any] = {
        "model": model,
        "reward_funcs": [by_length],
        "train_dataset": Dataset.from_list(rows),
        "processing_class": tokenizer,
    }
    with tempfile.TemporaryDirectory() as folder:
        common["args"] = arguments(training, Path(folder), seed=0, prompts=count)
        common["args"].save_strategy = "no"
        if objective is None:
            trainer = GRPOTrainer(**common)
        else:
            trainer = MaxkTrainer(**common, objective=make({"type": objective, "k": 4}))
        trainer.remove_callback(PrinterCallback)
        started = now()
        trainer.train()
        return (now() - started) / args.batches


def now() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()


def by_length(completions: list[str], **_: Any) -> list[float]:
    return [len(text) % 9 / 8 for text in completions]


if __name__ == "__main__":
    main()
