"""maxk train OBJECTIVE --seed S: one GRPO training job.

Reads the base policy and the train splits; writes the policy's folder: `model/`, `metrics.jsonl` and, last,
`policy.json`. A killed job resumes from its last checkpoint when it is started again. Checkpoints are stored under a
digest of the settings, so training starts anew after a change of the configuration.

Where an experiment asks for milestones, the policy at each of them is kept with the checkpoints, and becomes a policy
of its own, such as `grpo@1/seed0`, when the training ends.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from maxk import config as configuration
from maxk import sampling, tracking
from maxk.artifacts import files
from maxk.artifacts.digests import digest_of
from maxk.artifacts.paths import BASE, at_milestone, policy_name
from maxk.artifacts.records import Policy, Problem
from maxk.config import Config, Training
from maxk.errors import UserError, counted
from maxk.resources import gpus, launcher
from maxk.tracking import page, reporters
from maxk.training import accelerate_config

if TYPE_CHECKING:
    from maxk.grading import Grader
    from maxk.training.callbacks import StopOnSignal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("objective", help="a key of `objectives`")
    parser.add_argument("--seed", type=int, required=True, help="training seed")


@dataclass(frozen=True)
class _Job:
    """A training: an objective and a seed, what the policy is made of, and where its files are."""

    config: Config
    objective: str
    seed: int

    @property
    def name(self) -> str:
        return policy_name(self.objective, self.seed)

    @cached_property
    def training(self) -> Training:
        return self.config.training_of(self.objective)

    @property
    def folder(self) -> Path:
        return Path(self.config.layout.policy(self.name)).parent

    @property
    def data(self) -> dict[str, str]:
        """Files of problems, by dataset."""
        return {dataset: self.config.layout.problems(dataset) for dataset in self.training.datasets}

    @cached_property
    def base(self) -> Policy:
        return files.read_policy(self.config.layout.policy(BASE))

    @cached_property
    def lineage(self) -> dict[str, Any]:
        """What determines the weights: settings, seed, and digests of the inputs."""
        digests = {dataset: files.digest(path) for dataset, path in self.data.items()}
        settings = self.config.settings("train", objective=self.objective)
        lineage = {"settings": settings, "seed": self.seed, "base": digest_of(self.base.lineage), "data": digests}
        if (followed := self.config.entropy_of(self.objective)) is not None:
            other = files.read_policy(self.config.layout.policy(policy_name(followed, self.seed)))
            lineage["entropy"] = digest_of(other.lineage)
        return lineage

    @property
    def checkpoints(self) -> Path:
        """Checkpoints of a training with this lineage and these milestones."""
        return self.folder / "checkpoints" / digest_of([self.lineage, self.config.milestones(self.objective)])

    def milestone(self, batches: int) -> Path:
        """The model after so many generation batches."""
        return self.checkpoints / f"milestone-{batches}" / "model"


def run(args: argparse.Namespace) -> None:
    config = configuration.load(args.config)
    job, training = _Job(config, args.objective, args.seed), config.training_of(args.objective)
    accelerate_config.require_sound(training, config.gpus)
    # TRL would say so only after loading the model.
    sampling.require_installed("training.generator.backend", training.generator.backend)
    reporters.prepare(config)
    if not launcher.launched():
        launcher.clear()
        require_room(config, training)
        if training.nodes > 1 and not launcher.has_node():
            _become(launcher.on_nodes(training))
        gpus.hold(training.processes_per_node if config.gpus else 0, training.gpu)
        if training.processes > 1:
            _become(launcher.on_this_node(training))
    if training.processes > 1 and int(os.environ["RANK"]) > 0:  # only the first process reports and writes
        _train(job, tracking.Run())
        return
    with files.lock(job.folder), tracking.stage(config, "train", policy=job.name) as tracked:
        policy = _train(job, tracked)
        _publish_milestones(job, policy)
        files.write_policy(config.layout.policy(job.name), policy)
        shutil.rmtree(job.folder / "checkpoints")  # last: until policy.json exists, a killed run resumes from them
        _track(job, tracked)


def _track(job: _Job, run: tracking.Run) -> None:
    """Logs the policy, its training log, and the log's last values."""
    layout = job.config.layout
    run.artifact(layout.policy(job.name))
    run.artifact(layout.metrics(job.name))
    lines = [json.loads(line) for line in Path(layout.metrics(job.name)).read_text(encoding="utf-8").splitlines()]
    last = [line for line in lines if "reward" in line][-1]
    run.metrics({f"final/{key}": last.get(key) for key in page.FINALS}, step=last["step"])


def require_room(config: Config, training: Training) -> None:
    """Raises UserError if a prompt leaves less than `training.max_tokens` of the base model's context length."""
    from maxk.artifacts import models
    from maxk.data import prompts

    base = files.read_policy(config.layout.policy(BASE))
    tokenizer = models.tokenizer(base.model, base.revision)
    limit = models.context_length(models.config(base.model, base.revision))
    for dataset in training.datasets:
        for task in files.read_tasks(config.layout.problems(dataset), "train"):
            prompt = prompts.render(task.statement, config.prompt, tokenizer)
            length = len(sampling.prompt_ids(prompt, tokenizer))
            sampling.require_room(task.problem_id, length, "training.max_tokens", training.max_tokens, limit)


def _become(command: list[str]) -> NoReturn:
    os.execvp(command[0], command)


def _train(job: _Job, run: tracking.Run) -> Policy:
    """Trains to the end, from the last checkpoint if there is one, saves the model and returns its policy."""
    run.params({**job.lineage["settings"], "seed": job.seed})
    for dataset, path in job.data.items():
        run.dataset(dataset, path, job.lineage["data"][dataset], context="training")
    made_with = _optimise(job, run)
    label = job.config.label(job.objective)
    return Policy(job.name, label, str(job.folder / "model"), None, job.lineage, made_with)


def _publish_milestones(job: _Job, policy: Policy) -> None:
    """Makes a policy of every milestone; its lineage says after how many generation batches.

    The originals stay with the checkpoints until the training is marked as finished.
    """
    found = sorted(int(path.name.rpartition("-")[2]) for path in job.checkpoints.glob("milestone-*"))
    for number, batches in enumerate(found, 1):
        row = at_milestone(job.objective, number)
        name, label = policy_name(row, job.seed), job.config.label(row)
        target = job.config.layout.policy(name)
        model = Path(target).parent / "model"
        shutil.rmtree(model, ignore_errors=True)
        shutil.copytree(job.milestone(batches), model)
        lineage = {**policy.lineage, "batches": batches}
        files.write_policy(target, replace(policy, name=name, label=label, model=str(model), lineage=lineage))


def _optimise(job: _Job, run: tracking.Run) -> dict[str, Any]:
    """Trains and saves the model; returns what it was made with."""
    from maxk.artifacts import environment
    from maxk.evaluation import problem_grader

    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    with problem_grader.grader(job.config) as grader:
        grader.canary()
        run.tag("maxk.sandbox", grader.tier)
        with environment.hidden("mlflow", "sklearn", *(() if job.training.lora else ("peft",))):
            trainer, stop = _trainer(job, grader, run)
        if trainer.is_world_process_zero():
            _unpublish(job)
        _train_or_stop(trainer, job, stop)
        for complaint in grader.stats.complaints():
            print(complaint, file=sys.stderr)
        if stop.received:
            trainer.accelerator.wait_for_everyone()  # the end of one process ends those that still save
            raise SystemExit(128 + signal.SIGTERM)
        _save_model(trainer, job.folder / "model")
        return {**environment.versions(), "device": environment.device(), "sandbox": grader.tier}


def _trainer(job: _Job, grader: Grader, run: tracking.Run) -> tuple[Any, StopOnSignal]:
    """The trainer, before its first step, and its callback that receives SIGTERM."""
    from maxk.artifacts import environment, models
    from maxk.evaluation import problem_grader

    environment.quiet_libraries()
    with environment.importing():
        from maxk.training.arguments import arguments, lora, schedule
        from maxk.training.callbacks import EndsOfCompletions, MetricsLog, ProgressLine, SkipNonfinite, StopOnSignal
        from maxk.training.reward import PassRateReward
        from maxk.training.trainer import PolicyTrainer

    training, base = job.training, job.base
    _take_only_its_part(training)
    problems = [problem for path in job.data.values() for problem in files.read_problems(path, "train")]
    tokenizer = models.tokenizer(base.model, base.revision, padding_side="left")
    rows, heldout = _prompts(job, problems, tokenizer)
    order = schedule(training, len(rows), job.seed)
    stop, log = StopOnSignal(training.steps_per_batch), MetricsLog(job.folder / "metrics.jsonl", run)
    tracked = reporters.arguments(job.config, job.name)
    trainer = PolicyTrainer(
        model=base.model,
        reward_funcs=[PassRateReward(grader, problems, problem_grader.limits(job.config))],
        args=arguments(training, job.checkpoints, job.seed, len(order), base.revision, **tracked),
        train_dataset=rows.select(order),
        eval_dataset=heldout,
        processing_class=tokenizer,
        peft_config=lora(training),
        callbacks=[log, EndsOfCompletions(training), SkipNonfinite(), stop, ProgressLine(f"train {job.name}")],
        objective=job.config.every_objective[job.objective].spec,
        old_policy=training.old_policy,
        kl_reference=training.kl_reference,
        generate_ahead=training.generator.ahead,
        reference_precision=training.reference_precision,
        stop=training.stop,
        kv_cache_gb=training.generator.kv_cache_gb,
    )
    _adjust_callbacks(trainer, job, len(order))
    return trainer, stop


def _take_only_its_part(training: Training) -> None:
    """Limits this process to its part of a machine that jobs share."""
    import torch

    if not torch.cuda.is_available():
        torch.set_num_threads(1)  # more threads do not speed up small models, and jobs run side by side
    elif training.gpu < 1:
        gpus.limit_memory(training.gpu)


def _train_or_stop(trainer: Any, job: _Job, stop: StopOnSignal) -> None:
    """Trains from the last checkpoint; of several processes, those that fail because one was killed end silently."""
    try:
        trainer.train(resume_from_checkpoint=last_checkpoint(job.checkpoints))
    except RuntimeError as error:
        if job.training.processes > 1 and stop.explains(error):
            raise SystemExit(128 + signal.SIGTERM) from None  # the launcher reports the process that ended first
        raise


def _adjust_callbacks(trainer: Any, job: _Job, prompts: int) -> None:
    """Adds those that keep milestones and that follow another training's entropy, if the configuration names one."""
    from transformers.trainer_callback import PrinterCallback

    from maxk.training.arguments import milestones
    from maxk.training.callbacks import FollowEntropy, KeepMilestones

    training = job.training
    trainer.remove_callback(PrinterCallback)  # `ProgressLine` and `MetricsLog` show what it prints
    kept = milestones(training, prompts, job.config.milestones(job.objective))
    folders = {batches * training.steps_per_batch: job.milestone(batches) for batches in kept}
    trainer.add_callback(KeepMilestones(folders, partial(_save_model, trainer)))
    if (followed := job.config.entropy_of(job.objective)) is not None:
        targets = entropy_targets(job.config, followed, job.seed, prompts // training.prompts_per_step)
        trainer.add_callback(FollowEntropy(trainer, targets, training))


def entropy_targets(config: Config, followed: str, seed: int, batches: int) -> list[float]:
    """The entropy of a finished training in every generation batch. Raises UserError if it has fewer batches."""
    from maxk.reporting import training_log

    found = training_log.of_policy(config, followed, seed, "entropy")
    if len(found) < batches:
        name = policy_name(followed, seed)
        logged = counted(len(found), "generation batch", "generation batches")
        raise UserError(f"{name} logged the entropy of {logged}, but {batches} must follow it")
    return [float(value) for value in found]


def _unpublish(job: _Job) -> None:
    """A policy that is being retrained is not finished, nor are its milestones."""
    for row in (job.objective, at_milestone(job.objective, "*")):
        for path in Path().glob(job.config.layout.policy(policy_name(row, job.seed))):
            path.unlink()


def _prompts(job: _Job, problems: list[Problem], tokenizer: Any) -> tuple[Any, Any]:
    """Prompts to train on, and held-out prompts for evaluation during training (None without `evaluation`)."""
    from datasets import Dataset

    from maxk.data import prompts

    rows = Dataset.from_list(
        [
            {
                "prompt": _without_bos(prompts.render(p.statement, job.config.prompt, tokenizer), tokenizer),
                "problem_id": p.problem_id,
            }
            for p in problems
        ]
    )
    heldout = job.training.evaluation
    if heldout is None:
        return rows, None
    kept = len(rows) - heldout.problems
    if kept < 1:
        raise UserError(
            f"training.evaluation.problems={heldout.problems} leaves no problem to train on; there are {len(rows)}"
        )
    shuffled = rows.shuffle(seed=job.seed)
    return shuffled.select(range(kept)), shuffled.select(range(kept, len(rows)))


def _without_bos(prompt: str, tokenizer: Any) -> str:
    """The prompt without the beginning-of-sequence token of a chat template, if TRL's tokenization adds it again."""
    if tokenizer.bos_token is None or not prompt.startswith(tokenizer.bos_token):
        return prompt
    adds = tokenizer("")["input_ids"][:1] == [tokenizer.bos_token_id]
    return prompt.removeprefix(tokenizer.bos_token) if adds else prompt


def last_checkpoint(folder: Path) -> str | None:
    """The newest complete checkpoint. The trainer writes `trainer_state.json` last; without it one is incomplete."""
    found = sorted(folder.glob("checkpoint-*"), key=lambda path: int(path.name.rsplit("-", 1)[1]))
    for path in reversed(found):
        try:
            json.loads((path / "trainer_state.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            shutil.rmtree(path, ignore_errors=True)  # every process of a training removes it
        else:
            return str(path)
    return None


def _save_model(trainer: Any, target: Path) -> None:
    """Saves model and tokenizer as one Hugging Face folder, which appears complete or not at all; merges adapters."""
    unfinished = target.with_name("model.partial")
    if trainer.is_world_process_zero():
        shutil.rmtree(unfinished, ignore_errors=True)
    trainer.accelerator.wait_for_everyone()
    model = trainer.accelerator.unwrap_model(trainer.model)
    if hasattr(model, "merge_and_unload"):
        if trainer.is_world_process_zero():
            model.merge_and_unload().save_pretrained(unfinished)
    else:
        trainer.save_model(str(unfinished))
    trainer.accelerator.wait_for_everyone()
    if trainer.is_world_process_zero():
        trainer.processing_class.save_pretrained(unfinished)
        (unfinished / "training_args.bin").unlink(missing_ok=True)  # a pickle that no user of the model needs
        shutil.rmtree(target, ignore_errors=True)
        unfinished.rename(target)
