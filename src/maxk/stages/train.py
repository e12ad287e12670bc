"""maxk train OBJECTIVE --seed S: one GRPO training job.

Reads the base policy and the train splits; writes the policy's folder: `model/`, `metrics.jsonl` and, last,
`policy.json`. A killed job goes on from its last checkpoint when started again. Checkpoints belong to the settings they
were made with: after a change of the configuration, training starts anew.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from pathlib import Path
from typing import Any

from maxk import config as configuration
from maxk import files, tracking
from maxk.config import Config
from maxk.errors import UserError
from maxk.paths import BASE, policy_name
from maxk.records import Policy, Problem


def register_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("train", help="train a policy with an objective")
    parser.add_argument("objective", help="a key of `objectives`")
    parser.add_argument("--seed", type=int, required=True)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    config = configuration.load(args.config)
    if args.objective not in config.objectives:
        raise UserError(f"train: no objective {args.objective!r}; known: {', '.join(config.objectives)}")
    name = policy_name(args.objective, args.seed)
    folder = Path(config.layout.policy(name)).parent
    with files.exclusive(folder), tracking.stage(config, "train", policy=name) as tracked:
        policy = train(config, args.objective, args.seed, tracked)
        files.write_policy(config.layout.policy(name), policy)
        tracked.artifact(config.layout.policy(name))
        tracked.artifact(config.layout.metrics(name))


def train(config: Config, objective: str, seed: int, run: tracking.Run) -> Policy:
    """Trains to the end, from the last checkpoint where there is one; returns the policy whose model is saved."""
    name = policy_name(objective, seed)
    layout, settings = config.layout, config.settings("train", objective=objective)
    training = config.training_of(objective)
    base = files.read_policy(layout.policy(BASE))
    data = {dataset: layout.problems(dataset) for dataset in training.datasets}
    digests = {dataset: files.digest(path) for dataset, path in data.items()}
    lineage = {"settings": settings, "seed": seed, "base": files.digest_of(base.lineage), "data": digests}
    run.params({**settings, "seed": seed})
    for dataset, path in data.items():
        run.dataset(dataset, path, digests[dataset], context="training")

    problems = [problem for path in data.values() for problem in files.read_problems(path, "train")]
    folder = Path(layout.policy(name)).parent
    environment = _optimise(config, objective, seed, base, problems, folder, files.digest_of(lineage), run)
    _copy_metrics_summary(run, Path(layout.metrics(name)))
    return Policy(name, config.label(objective), str(folder / "model"), None, lineage, environment)


def _optimise(
    config: Config,
    objective: str,
    seed: int,
    base: Policy,
    problems: list[Problem],
    folder: Path,
    lineage: str,
    run: tracking.Run,
) -> dict[str, Any]:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import torch
    from datasets import Dataset
    from transformers import AutoTokenizer
    from transformers.trainer_callback import PrinterCallback

    from maxk import environment, grading, objectives, prompts
    from maxk.training.callbacks import MetricsLog, ProgressLine, StopOnSignal
    from maxk.training.reward import TestReward
    from maxk.training.trainer import MaxkTrainer, arguments, schedule

    environment.quiet_libraries()
    training = config.training_of(objective)
    if not torch.cuda.is_available():
        torch.set_num_threads(1)  # for small models threads cost more than they give; jobs run side by side
    checkpoints = folder / "checkpoints" / lineage
    tokenizer = AutoTokenizer.from_pretrained(base.model, revision=base.revision, padding_side="left")
    rows = [
        {"prompt": prompts.render(p.statement, config.prompt, tokenizer), "problem_id": p.problem_id} for p in problems
    ]
    dataset = Dataset.from_list(rows).select(schedule(training, len(rows), seed))
    stop = StopOnSignal(training.iterations)
    with grading.grader(config) as grader:
        grader.canary()
        run.tag("maxk.sandbox", grader.tier)
        trainer = MaxkTrainer(
            model=base.model,
            reward_funcs=[TestReward(grader, problems, grading.limits(config))],
            args=arguments(training, checkpoints, seed, len(dataset)),
            train_dataset=dataset,
            processing_class=tokenizer,
            callbacks=[
                MetricsLog(folder / "metrics.jsonl", run),
                ProgressLine(f"train {policy_name(objective, seed)}"),
                stop,
            ],
            objective=objectives.make(config.objectives[objective].spec),
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train(resume_from_checkpoint=last_checkpoint(checkpoints))
        if stop.received:
            raise SystemExit(128 + 15)
        _save_model(trainer, tokenizer, folder / "model")
        recorded = {**environment.versions(), "sandbox": grader.tier}
    shutil.rmtree(folder / "checkpoints")
    return recorded


def last_checkpoint(folder: Path) -> str | None:
    """The newest whole checkpoint. The trainer writes `trainer_state.json` last; without it a checkpoint is half."""
    found = sorted(folder.glob("checkpoint-*"), key=lambda path: int(path.name.rsplit("-", 1)[1]))
    for path in reversed(found):
        try:
            json.loads((path / "trainer_state.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            shutil.rmtree(path)
        else:
            return str(path)
    return None


def _save_model(trainer: Any, tokenizer: Any, target: Path) -> None:
    """Saves model and tokenizer as one Hugging Face folder that is either whole or absent."""
    partial = target.with_name("model.partial")
    shutil.rmtree(partial, ignore_errors=True)
    trainer.save_model(str(partial))
    tokenizer.save_pretrained(partial)
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)


def _copy_metrics_summary(run: tracking.Run, path: Path) -> None:
    """The last step's reward and KL, as the run's headline."""
    last = json.loads(path.read_text(encoding="utf-8").splitlines()[-1])
    run.metrics({f"final/{key}": last.get(key) for key in ("reward", "kl", "entropy")}, step=last["step"])
