"""Callbacks between optimiser steps: metrics, progress, milestones, non-finite gradients, stop on SIGTERM."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from transformers import TrainerCallback, TrainerState

from maxk.artifacts import files
from maxk.config import Training
from maxk.progress import Progress
from maxk.tracking import Run

Logs = Mapping[str, Any] | None
PATIENCE_S = 5.0  # in which a launcher notices that a process has ended
LOST, CUT = 0.05, 0.25  # fractions of a step's completions from which a warning is due


class MetricsLog(TrainerCallback):
    """Writes one JSON line per optimiser step to `metrics.jsonl` and mirrors it to the tracker.

    A resumed run first drops the lines after its checkpoint, so the file equals that of an uninterrupted run.
    """

    def __init__(self, path: Path, run: Run) -> None:
        self._path, self._run = path, run

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **_: Any) -> None:
        if not state.is_world_process_zero:
            return
        kept = [line for line in self._lines() if json.loads(line)["step"] <= state.global_step]
        files.write_text(self._path, "".join(kept))

    def on_log(self, args: Any, state: TrainerState, control: Any, logs: Logs = None, **_: Any) -> None:
        closing_summary = logs is not None and "train_runtime" in logs
        if not logs or closing_summary or not state.is_world_process_zero:
            return
        with self._path.open("a", encoding="utf-8") as handle:
            handle.write(json.dumps({"step": state.global_step, **logs}) + "\n")
        self._run.metrics({name: v for name, v in logs.items() if isinstance(v, int | float)}, step=state.global_step)

    def _lines(self) -> list[str]:
        """Complete lines only: a killed run can leave half a line."""
        if not self._path.exists():
            return []
        return [line for line in self._path.read_text(encoding="utf-8").splitlines(True) if line.endswith("\n")]


class ProgressLine(TrainerCallback):
    """Shows the steps done, with the last one's reward and KL, which the trainer logs after the step's end."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._progress: Progress | None = None

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **_: Any) -> None:
        if state.is_world_process_zero:
            self._progress = Progress(state.max_steps, self._label, done=state.global_step)

    def on_log(self, args: Any, state: TrainerState, control: Any, logs: Logs = None, **_: Any) -> None:
        if self._progress is not None and logs and logs.get("reward") is not None:
            status = f"reward {logs['reward']:.3f}, KL {logs.get('kl') or logs.get('kl_old') or 0.0:.3f}"
            self._progress.advance(state.global_step - self._progress.n, status)

    def on_train_end(self, args: Any, state: TrainerState, control: Any, **_: Any) -> None:
        if self._progress is not None:
            self._progress.close()


class EndsOfCompletions(TrainerCallback):
    """Warns once if stop strings or the token limit cost programs; every step's metrics hold the fractions."""

    def __init__(self, config: Training) -> None:
        self._complaints = {
            "completions/lost_ratio": (
                LOST,
                "were stopped by training.stop and hold no program; set training.stop and sampling.stop to [], or ask "
                "for one ```python block in prompt.template",
            ),
            "completions/clipped_ratio": (CUT, f"were cut at training.max_tokens={config.max_tokens}"),
        }

    def on_log(self, args: Any, state: TrainerState, control: Any, logs: Logs = None, **_: Any) -> None:
        if not logs or not state.is_world_process_zero:
            return
        for key, (least, complaint) in list(self._complaints.items()):
            if logs.get(key, 0.0) >= least:
                print(
                    f"train: step {state.global_step}: {logs[key]:.0%} of the completions {complaint}", file=sys.stderr
                )
                del self._complaints[key]


class KeepMilestones(TrainerCallback):
    """Saves the policy after certain optimiser steps, into the folder given for each.

    The trainer saves a checkpoint of the same step later, so a run that resumes from one has all earlier milestones.
    """

    def __init__(self, folders: Mapping[int, Path], save: Callable[[Path], None]) -> None:
        self._folders, self._save = folders, save

    def on_step_end(self, args: Any, state: TrainerState, control: Any, **_: Any) -> None:
        if state.global_step in self._folders:
            self._save(self._folders[state.global_step])


class FollowEntropy(TrainerCallback):
    """Moves TRL's entropy coefficient so that the entropy follows `targets`, one for each generation batch.

    The trainer stores the coefficient in its checkpoints.
    """

    def __init__(self, trainer: Any, targets: Sequence[float], config: Training) -> None:
        assert config.entropy_bonus is not None
        self._trainer, self._targets, self._bonus = trainer, targets, config.entropy_bonus
        self._steps_per_batch = config.steps_per_batch

    def on_log(self, args: Any, state: TrainerState, control: Any, logs: Logs = None, **_: Any) -> None:
        if logs and "entropy" in logs:
            below = logs["entropy"] <= self._targets[(state.global_step - 1) // self._steps_per_batch]
            moved = self._trainer.entropy_coef + (self._bonus.step if below else -self._bonus.step)
            self._trainer.entropy_coef = min(max(moved, -self._bonus.largest), self._bonus.largest)


class SkipNonfinite(TrainerCallback):
    """Skips an optimiser step whose gradient is not finite, as a mixed-precision scaler does, and reports it.

    On a GPU in bfloat16 a backward pass once gave NaN for a finite loss (docs/results-mini.md); the step would have
    turned every weight into NaN. The step's `grad_norm` in the log is not finite.
    """

    def on_pre_optimizer_step(
        self, args: Any, state: TrainerState, control: Any, model: torch.nn.Module | None = None, **_: Any
    ) -> None:
        assert model is not None
        finite = [parameter.grad.isfinite().all() for parameter in model.parameters() if parameter.grad is not None]
        if not finite or torch.stack(finite).all():  # one transfer: each waits for the GPU
            return
        print(f"train: step {state.global_step + 1} is skipped, its gradient is not finite", file=sys.stderr)
        for parameter in model.parameters():
            parameter.grad = None


class StopOnSignal(TrainerCallback):
    """On SIGTERM (preemption, a cancelled job): finishes the generation batch, saves a checkpoint and stops.

    If it stopped between the optimiser steps of a batch, the resumed run would draw other samples.
    """

    def __init__(self, steps_per_batch: int) -> None:
        self._steps_per_batch = steps_per_batch
        self.received = False
        signal.signal(signal.SIGTERM, self._receive)

    def explains(self, error: Exception) -> bool:
        """Whether a collective failed because another process ended: the launcher then stops all, within seconds.

        Gloo, unlike NCCL, raises a RuntimeError.
        """
        if not isinstance(error, dist.DistError) and "gloo" not in str(error):
            return False
        until = time.monotonic() + PATIENCE_S
        while not self.received and time.monotonic() < until:
            time.sleep(0.1)
        return self.received

    def _receive(self, *_: Any) -> None:
        self.received = True

    def on_step_end(self, args: Any, state: TrainerState, control: Any, **_: Any) -> None:
        if state.global_step % self._steps_per_batch == 0 and self._any_received():
            self.received = True
            control.should_save = True
            control.should_training_stop = True

    def _any_received(self) -> bool:
        """Processes may receive the signal in different steps; they must agree, or one would wait forever."""
        if not dist.is_available() or not dist.is_initialized():
            return self.received
        flag = torch.tensor(int(self.received), device="cuda" if dist.get_backend() == "nccl" else "cpu")
        dist.all_reduce(flag, op=dist.ReduceOp.MAX)
        return bool(flag.item())
