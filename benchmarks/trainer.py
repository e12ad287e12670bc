"""A training step against stock GRPOTrainer: same model, data, seed, batch and iterations, interleaved runs.

    python benchmarks/trainer.py                      # the pocket base model on this machine
    python benchmarks/trainer.py --config config/mini.yaml --model PATH --batches 1 --repeats 6 --full-length

Prints the median ratio of CPU-seconds per generation batch (of the clock's seconds where there is a GPU), for on-policy
objectives at one PPO iteration and off-policy ones at three. The reward is a cheap function of the text, so the trainer
is what is measured. With `--full-length` every completion has `max_tokens` tokens: both trainers then do the same work
whatever they sample, and ours gains nothing from dropping padding of completions (it still does from that of prompts).
benchmarks/gpu_batch.py says where the time of a batch goes.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers.trainer_callback import PrinterCallback
from trl import GRPOTrainer

from maxk import config as configuration
from maxk import data
from maxk.artifacts import environment, models
from maxk.artifacts.records import Problem
from maxk.config import Config
from maxk.data import prompts
from maxk.training.arguments import arguments
from maxk.training.pretrain import pretrain
from maxk.trl import MaxkTrainer
from maxk.trl.vllm import fixed_cache, own_port

ROOT = Path(__file__).parent.parent
CASES = [("grpo", 1), ("bon_mean", 1), ("bon_loo1", 1), ("bon_offpolicy", 3), ("bon_offpolicy_exact", 3)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", help="an experiment laid over the default, for its training settings and problems")
    parser.add_argument("--model", help="a model folder; by default the pocket base model is pretrained")
    parser.add_argument("--objectives", nargs="+", choices=[name for name, _ in CASES])
    parser.add_argument("--batches", type=int, default=8, help="generation batches a run")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--full-length", action="store_true", help="completions end at max_tokens only")
    args = parser.parse_args()
    cases = [case for case in CASES if args.objectives is None or case[0] in args.objectives]
    with experiment(args.config, args.model) as (config, model):
        for name, iterations in cases:
            ratio(config, model, name, iterations, args)


@contextmanager
def experiment(overlay: str | None, model: str | None) -> Iterator[tuple[Config, str]]:
    """The default experiment with an overlay, and the model to train, by default pretrained now."""
    torch.set_num_threads(1)
    environment.quiet_libraries()
    content = configuration.read_yaml(ROOT / "config" / "config.yaml")
    if overlay is not None:
        content = configuration.overlay(content, configuration.read_yaml(overlay))
    config = configuration.parse(content)
    with tempfile.TemporaryDirectory() as folder:
        if model is None:
            model = str(Path(folder) / "model")
            pretrain(config.base, config.prompt, Path(model))
        yield config, model


def ratio(config: Config, model: str, name: str, iterations: int, args: argparse.Namespace) -> None:
    """Prints our time a generation batch over the stock trainer's."""
    seconds: dict[str, list[float]] = {"stock": [], "ours": []}
    rest: dict[str, list[float]] = {"stock": [], "ours": []}
    for _ in range(args.repeats + 1):  # the first pair warms up
        for which, objective in (("stock", None), ("ours", name)):
            trainer = make_trainer(
                config, model, objective, iterations, args.batches, [by_length], full_length=args.full_length
            )
            trainer._generate = timed("generation", trainer._generate)
            SECONDS.clear()
            started = now()
            trainer.train()
            seconds[which].append((now() - started) / args.batches)
            rest[which].append(seconds[which][-1] - SECONDS["generation"] / args.batches)
    ratios = [ours / stock for ours, stock in zip(seconds["ours"], seconds["stock"], strict=True)][1:]
    rests = [ours / stock for ours, stock in zip(rest["ours"], rest["stock"], strict=True)][1:]
    print(
        f"{name:20s} μ={iterations}  ratio {statistics.median(ratios):.3f} [{min(ratios):.3f}, {max(ratios):.3f}]"
        f"  stock {statistics.median(seconds['stock'][1:]):.3f} s a generation batch;"
        f"  without generation {statistics.median(rests):.3f} [{min(rests):.3f}, {max(rests):.3f}]"
        f"  stock {statistics.median(rest['stock'][1:]):.3f} s",
        flush=True,
    )


def make_trainer(
    config: Config,
    model: str,
    objective: str | None,
    iterations: int,
    batches: int,
    reward: list[Any],
    full_length: bool = False,
    kind: type[GRPOTrainer] | None = None,
) -> GRPOTrainer:
    """Our trainer with an objective, or the stock one (None), for `batches` generation batches."""
    training = config.training.model_copy(update={"iterations": iterations})
    tokenizer = models.tokenizer(model, None, padding_side="left")
    count = batches * training.prompts_per_step
    rows = [
        {"prompt": prompts.render(p.statement, config.prompt, tokenizer), "problem_id": p.problem_id}
        for p in problems(config)[:count]
    ]
    common: dict[str, Any] = {
        "model": model,
        "reward_funcs": reward,
        "train_dataset": Dataset.from_list(rows),
        "processing_class": tokenizer,
        "args": arguments(training, Path(tempfile.gettempdir()), seed=0, prompts=count),
    }
    common["args"].save_strategy = "no"
    if full_length:
        common["args"].generation_kwargs = {"min_new_tokens": training.max_tokens}
    if objective is not None:
        common["objective"] = {"type": objective, "k": training.num_generations // 2}
    own_port()
    with fixed_cache(training.generator.kv_cache_gb):
        trainer = (kind or (MaxkTrainer if objective else GRPOTrainer))(**common)
    trainer.remove_callback(PrinterCallback)
    return trainer


def problems(config: Config) -> list[Problem]:
    """Training problems of the experiment's first dataset; reference solutions are not run."""
    name = config.training.datasets[0]
    dataset = config.datasets[name]
    if hasattr(dataset, "check_solutions"):
        dataset = dataset.model_copy(update={"check_solutions": 0})
    return [problem for problem in data.load(name, dataset)[0] if problem.split == "train"]


SECONDS: Counter[str] = Counter()


def now() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()


def timed(part: str, call: Callable[..., Any], clock: Callable[[], float] = now) -> Callable[..., Any]:
    """Adds the seconds of calls to SECONDS[part]."""

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        started = clock()
        try:
            return call(*args, **kwargs)
        finally:
            SECONDS[part] += clock() - started

    return wrapper


def by_length(completions: list[str], **_: Any) -> list[float]:
    return [len(text) % 9 / 8 for text in completions]


if __name__ == "__main__":
    main()
