"""Training in two processes against one: the same completions give the same gradients, whatever shards the weights.

    python benchmarks/two_gpus.py --config config/mini.yaml --model PATH                      # two GPUs, ten minutes
    python benchmarks/two_gpus.py --config config/mini.yaml --model PATH --precision float32
    python benchmarks/two_gpus.py --config tests/configs/seconds.yaml --shardings ddp --learning-rate 1e-2    # on a CPU

Completions are other problems' reference solutions, so every run trains on the same tokens. A run takes one generation
batch and two PPO iterations of exact off-policy weights: in the second the policy has moved. `whole` micro-batches hold
a group each; `split` ones hold half a group, and the processes share a group. Gradients are compared before clipping.

The script prints the distances ‖g − g₁‖ / ‖g₁‖ of every run's gradients g to those of one process, of both iterations:
of all weights, and of the weight that the embedding and the language head share. It exits with 1 if one exceeds
`TOLERANCE`, or if a run failed. In bfloat16 it judges the first iteration only: in the second, the ratios of whole
completions are mostly rounding (docs/scale.md). On a CPU there is DDP only.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import TrainerCallback
from transformers.training_args import OptimizerNames

import trainer as common
from maxk.artifacts import models
from maxk.config import Config
from maxk.data import prompts
from maxk.training.arguments import arguments
from maxk.trl import MaxkTrainer

ROOT = Path(__file__).parent.parent
TOLERANCE = {"bfloat16": 0.05, "float32": 1e-3}  # of a gradient's norm
OBJECTIVE, ITERATIONS = "bon_offpolicy_exact", 2
SHARDINGS = ("ddp", "fsdp2", "zero3")
HELD = {"whole": 1.0, "split": 0.5}  # groups in a micro-batch
GROUPS = 3  # of a generation batch of split micro-batches: two processes share the second


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, help="an experiment laid over the default")
    parser.add_argument("--model", help="a model folder; by default the pocket base model is pretrained")
    parser.add_argument("--shardings", nargs="+", choices=SHARDINGS, default=SHARDINGS)
    parser.add_argument("--precision", choices=TOLERANCE, help="default: bfloat16 on GPUs, float32 on a CPU")
    parser.add_argument("--learning-rate", type=float, default=1e-5, help="of SGD: how far the policy moves")
    parser.add_argument("--worker", nargs=2, metavar=("HELD", "FILE"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    precision = args.precision or ("bfloat16" if torch.cuda.is_available() else "float32")
    if args.worker is not None:
        with common.experiment(args.config, args.model) as (config, model):
            train(config, model, precision, args.learning_rate, *args.worker)
        return 0
    if not torch.cuda.is_available() and set(args.shardings) != {"ddp"}:
        parser.error("without GPUs only --shardings ddp can be run")
    with common.experiment(args.config, args.model) as (_, model), tempfile.TemporaryDirectory() as folder:
        options = ["--config", args.config, "--model", model, "--learning-rate", str(args.learning_rate)]
        return compare([*options, "--precision", precision], precision, args.shardings, Path(folder))


# ------------------------------------------------------------------------------------------------ one training
def train(config: Config, model: str, precision: str, learning_rate: float, held: str, file: str) -> None:
    """Trains on fixed completions; the first process saves the gradients of both iterations."""
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    n = config.training.num_generations
    size = round(HELD[held] * n)
    groups = GROUPS if held == "split" else 2 * GROUPS
    changes = {"iterations": ITERATIONS, "processes": processes, "per_device_batch_size": size}
    changes |= {"prompts_per_step": groups, "learning_rate": learning_rate, "warmup_steps": 0, "max_grad_norm": 1e9}
    changes |= {"precision": precision}
    generator = type(config.training.generator)()
    training = config.training.model_copy(update={**changes, "generator": generator})
    tokenizer = models.tokenizer(model, None, padding_side="left")
    problems = common.problems(config)
    texts = [p.reference or p.statement for p in problems]
    ended = [[*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id] for text in texts]
    rows = [
        {"prompt": prompts.render(p.statement, config.prompt, tokenizer), "problem_id": p.problem_id}
        for p in problems[:groups]
    ]
    settings = arguments(training, Path(tempfile.gettempdir()), seed=0, prompts=groups)
    settings.optim, settings.save_strategy = OptimizerNames.SGD, "no"
    gradients = Gradients()
    trainer = fixed([ids[: training.max_tokens] for ids in ended])(
        model=model,
        reward_funcs=[common.by_length],
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        args=settings,
        callbacks=[gradients],
        objective={"type": OBJECTIVE, "k": n // 2},
    )
    gradients.trainer = trainer
    trainer.train()
    if trainer.is_world_process_zero():
        torch.save(gradients.found, file)
        logged = [entry for entry in trainer.state.log_history if "loss" in entry][-1]
        print({key: value for key, value in logged.items() if "ratio" in key or key in ("kl", "reward", "grad_norm")})


def fixed(completions: list[list[int]]) -> type[MaxkTrainer]:
    """A trainer whose completions depend on nothing but their position in the generation batch of all processes."""

    class Fixed(MaxkTrainer):
        def _generate_single_turn(self, prompt_ids: list[Any], *_: Any, **__: Any) -> tuple[Any, Any]:
            first = self.accelerator.process_index * len(prompt_ids)
            return [list(completions[(7 * (first + i)) % len(completions)]) for i in range(len(prompt_ids))], None

    return Fixed


class Gradients(TrainerCallback):
    """The whole gradient before every optimiser step, on the first process: a list of {name: tensor}."""

    trainer: MaxkTrainer

    def __init__(self) -> None:
        self.found: list[dict[str, torch.Tensor]] = []

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        engine = getattr(self.trainer, "deepspeed", None)
        if engine is not None:  # accelerate steps inside of `backward`
            step = engine.step

            def recorded(*args: Any, **kwargs: Any) -> Any:
                self._record()
                return step(*args, **kwargs)

            engine.step = recorded

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        if getattr(self.trainer, "deepspeed", None) is None:
            self._record()

    def _record(self) -> None:
        model = self.trainer.accelerator.unwrap_model(self.trainer.model)
        named = {name: whole(parameter) for name, parameter in model.named_parameters()}
        if self.trainer.is_world_process_zero():
            self.found.append({name: value.float().cpu() for name, value in named.items() if value is not None})


def whole(parameter: torch.nn.Parameter) -> torch.Tensor | None:
    """The gradient of a parameter that may be sharded; all processes call it."""
    if hasattr(parameter, "ds_id"):
        from deepspeed.utils import safe_get_full_grad  # type: ignore[import-not-found]

        found: torch.Tensor = safe_get_full_grad(parameter)
        return found
    gradient = parameter.grad
    return gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient


# ------------------------------------------------------------------------------------------------ the comparison
def compare(options: list[str], precision: str, shardings: list[str], folder: Path) -> int:
    """Runs everything, two trainings at a time, and prints the distances; the status of the process."""
    judged = 2 if precision == "bfloat16" else 2 * ITERATIONS
    print(f"distance of gradients to those of one process; tolerance in {precision} {TOLERANCE[precision]}", flush=True)
    equal = True
    for sharding in (None, *shardings):
        running = {held: start(options, sharding, held, folder) for held in HELD}
        for held, process in running.items():
            failed, log = process.wait(), (folder / f"{sharding}-{held}.log").read_text()
            said = [line for line in log.splitlines() if line.startswith("{")]
            print(f"{sharding or 'one process'}, {held}:", log if failed else said[-1])
            distances = distances_of(folder, sharding, held)
            print(f"{sharding or 'one process':12s} {held:6s}", *(f"{value:10.2e}" for value in distances), flush=True)
            equal &= all(value <= TOLERANCE[precision] for value in distances[:judged])  # NaN is above it
    return int(not equal)


def start(options: list[str], sharding: str | None, held: str, folder: Path) -> subprocess.Popen[bytes]:
    """A training of one process (None), or of two."""
    own = [__file__, *options, "--worker", held, str(folder / f"{sharding}-{held}.pt")]
    launch = ["accelerate.commands.launch", "--config_file", str(ROOT / f"config/accelerate/{sharding}.yaml")]
    launch += ["--num_processes", "2", "--main_process_port", "0"]
    if not torch.cuda.is_available():
        launch = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [sys.executable, *(["-m", *launch] if sharding else []), *own]
    one_gpu = {} if sharding else {"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]}
    with (folder / f"{sharding}-{held}.log").open("w") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **one_gpu})


def distances_of(folder: Path, sharding: str | None, held: str) -> list[float]:
    """Of all weights and of the embedding, in the first and in the second iteration; NaN without a result.

    Split and whole micro-batches belong to generation batches of different sizes, so each has its own reference.
    """
    file, reference = folder / f"{sharding}-{held}.pt", folder / f"None-{held}.pt"
    if not file.exists() or not reference.exists():
        return [float("nan")] * 2 * ITERATIONS
    ours, theirs = (torch.load(one, mmap=True) for one in (file, reference))
    found = []
    for one, other in zip(ours, theirs, strict=True):
        names = list(other)
        embedding = [name for name in names if "embed_tokens" in name]
        found += [distance(one, other, names), distance(one, other, embedding)]
    return found


def distance(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor], names: list[str]) -> float:
    """‖one − other‖ / ‖other‖ over the named tensors; a missing one counts as zero."""
    gaps = [torch.linalg.vector_norm(one.get(name, 0.0) - other[name]) for name in names]
    return float(
        torch.stack(gaps).norm() / torch.stack([torch.linalg.vector_norm(other[name]) for name in names]).norm()
    )


if __name__ == "__main__":
    sys.exit(main())
