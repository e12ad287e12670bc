"""Where a generation batch of training spends its time, with options switched on and off.

    python benchmarks/gpu_batch.py --model PATH                                     # on a GPU, about five minutes
    python benchmarks/gpu_batch.py --model PATH --variants config compile one_load
    python benchmarks/gpu_batch.py --model PATH --objective bon_offpolicy_exact --iterations 3 --variants config
    python benchmarks/gpu_batch.py --config tests/configs/seconds.yaml --variants config stock    # a dry run on a CPU

A variant is the experiment's `training` section (config/mini.yaml by default) with the changes in VARIANTS. Each trains
for one batch of warm-up and `--batches` measured ones, from the same model, on the same problems, with the real reward
(programs run in the sandbox). All variants share one vLLM engine, whose start takes a minute or two. Seconds are those
of the clock per generation batch. Every part waits for the GPU at its end, so that only the reward and the reference
model overlap.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
import trl.trainer.grpo_trainer as parent
from transformers import TrainerCallback
from trl import GRPOTrainer

import trainer as common
from maxk.config import Config
from maxk.evaluation import problem_grader
from maxk.grading import Grader
from maxk.training.reward import PassRateReward
from maxk.training.trainer import PolicyTrainer
from maxk.trl.vllm import request_groups, return_no_logprobs

ROOT = Path(__file__).parent.parent
COLUMNS = ("generation", "weights", "reward", "no-grad passes", "forward+backward", "optimiser", "rest", "total")


@dataclass(frozen=True)
class Variant:
    """Changes to the experiment: keys of `training`, and what its configuration cannot say."""

    training: Mapping[str, Any] = field(default_factory=dict)
    kind: type[GRPOTrainer] = PolicyTrainer
    logprobs: bool = False  # vLLM returns log-probabilities that nothing uses
    detokenize: bool = False  # vLLM decodes tokens that TRL decodes again
    reward_in_line: bool = False  # grade after the reference pass, not beside it
    late: bool = False  # grade when all completions are there
    one_load: bool = False  # hand all weights to vLLM in one call, not one per tensor
    prefixes: bool = False  # compute each distinct prefix once, as on a CPU (maxk.trl.trees)
    n_requests: bool = False  # ask vLLM for the n completions of a prompt in n requests, not in one


VARIANTS = {
    "stock": Variant(kind=GRPOTrainer, logprobs=True, n_requests=True, reward_in_line=True),
    "before": Variant(
        {"gradient_checkpointing": True, "per_device_batch_size": 32},
        logprobs=True,
        detokenize=True,
        n_requests=True,
        reward_in_line=True,
    ),
    "config": Variant(),
    "checkpointing": Variant({"gradient_checkpointing": True}),
    "stock_64": Variant(
        {"per_device_batch_size": 64}, kind=GRPOTrainer, logprobs=True, n_requests=True, reward_in_line=True
    ),
    "batch_32": Variant({"per_device_batch_size": 32}),
    "batch_64": Variant({"per_device_batch_size": 64}),
    "batch_128": Variant({"per_device_batch_size": 128}),
    "reference_bfloat16": Variant({"reference_precision": "bfloat16"}),
    "fast": Variant({"per_device_batch_size": 64, "reference_precision": "bfloat16"}),
    "compile": Variant({"torch_compile": True}),
    "logprobs": Variant(logprobs=True),
    "reward_in_line": Variant(reward_in_line=True),
    "late": Variant({"per_device_batch_size": 64}, late=True),
    "prefixes": Variant(prefixes=True),
    "prefixes_64": Variant({"per_device_batch_size": 64}, prefixes=True),
    "one_load": Variant(one_load=True),
    "n_requests": Variant(n_requests=True),
}
DEFAULT = ("before", "config", "n_requests", "reference_bfloat16", "one_load", "stock")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default=str(ROOT / "config" / "mini.yaml"), help="laid over the default experiment")
    parser.add_argument("--model", help="a model folder; by default the pocket base model is pretrained")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=DEFAULT)
    parser.add_argument("--batches", type=int, default=3, help="measured generation batches per variant")
    parser.add_argument("--objective", default="bon_loo1")
    parser.add_argument("--iterations", type=int, default=1)
    args = parser.parse_args()
    parent.VLLMGeneration = SharedEngine(parent.VLLMGeneration)
    with common.experiment(args.config, args.model) as (config, model):
        print(f"{'seconds per batch':20s}", *(f"{name:>16s}" for name in (*COLUMNS, "peak GiB", "mean reward")))
        with Grader(problem_grader.limits(config), config.verification.workers, config.verification.sandbox) as grader:
            for name in args.variants:
                print(f"{name:20s}", *measured(config, model, VARIANTS[name], grader, args), flush=True)


def measured(config: Config, model: str, variant: Variant, grader: Grader, args: argparse.Namespace) -> list[str]:
    """A row of the table, formatted."""
    reward = PassRateReward(grader, common.problems(config), problem_grader.limits(config))
    trainer = make(config, model, variant, reward, args)
    timer = BatchTimer(args.iterations)
    trainer.add_callback(timer)
    trainer.train()
    total = now() - timer.started
    rewards = [entry["reward"] for entry in trainer.state.log_history if "reward" in entry]
    peak = torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else 0.0
    del trainer, timer
    if isinstance(parent.VLLMGeneration, SharedEngine):
        parent.VLLMGeneration.release()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    found = parts(total)
    seconds = [found[name] / args.batches for name in COLUMNS]
    return [f"{value:16.3f}" for value in (*seconds, peak, sum(rewards) / len(rewards))]


def parts(total: float) -> dict[str, float]:
    """Seconds by column; generation without the weights, the update without what `_prepare_inputs` does."""
    found = {
        "generation": SECONDS["generation"] - SECONDS["weights"],
        "weights": SECONDS["weights"],
        "reward": SECONDS["reward"],
        "no-grad passes": SECONDS["scoring"],
        "forward+backward": SECONDS["step"] - SECONDS["inputs"],
        "optimiser": SECONDS["optimiser"],
    }
    return {**found, "rest": total - sum(found.values()), "total": total}


def make(config: Config, model: str, variant: Variant, reward: PassRateReward, args: argparse.Namespace) -> GRPOTrainer:
    """The variant's trainer, with its parts timed."""
    changed = config.model_copy(update={"training": config.training.model_copy(update=dict(variant.training))})
    in_line: Callable[..., Any] = lambda completions, problem_id, **_: reward(completions, problem_id)  # noqa: E731
    objective = None if variant.kind is GRPOTrainer else args.objective
    trainer = common.make_trainer(
        changed,
        model,
        objective,
        args.iterations,
        args.batches + 1,
        [in_line if variant.reward_in_line else reward],
        kind=timed_kind(variant.kind),
    )
    if variant.prefixes:
        vars(trainer)["_shares_prefixes"] = True
    if trainer.use_vllm:
        set_engine(trainer, variant, stops=bool(config.training.stop))
    if variant.training.get("reference_precision") == "bfloat16":
        trainer.ref_model.to(torch.bfloat16)
    return trainer


def set_engine(trainer: GRPOTrainer, variant: Variant, stops: bool) -> None:
    """The variant's way of asking vLLM for completions and of giving it weights.

    Where the experiment has stop strings (`stops`), vLLM decodes tokens in every variant, to find them.
    """
    engine = trainer.vllm_generation
    engine.__dict__.pop("generate", None)
    engine.logprobs = 0
    engine.generation_kwargs["detokenize"] = variant.detokenize or stops
    if not variant.logprobs:
        return_no_logprobs(engine)
    if not variant.n_requests:
        request_groups(engine)
    if variant.late:
        engine.llm.llm_engine.__dict__.pop("step", None)
    if variant.one_load:

        def load() -> None:
            engine.llm.llm_engine.model_executor.driver_worker.model_runner.model.load_weights(
                engine._iter_named_params()
            )
            engine.llm.reset_prefix_cache()

        engine.sync_weights = load
    engine.sync_weights = timed("weights", engine.sync_weights)


class SharedEngine:
    """Makes TRL's vLLM generation once and hands it to every later trainer."""

    def __init__(self, make_engine: Callable[..., Any]) -> None:
        self._make, self._engine = make_engine, None

    def __call__(self, **settings: Any) -> Any:
        if self._engine is None:
            self._engine = self._make(**settings)
        engine = self._engine
        self._restore()
        engine.model, engine.accelerator = settings["model"], settings["accelerator"]
        engine.logprobs, engine.generation_kwargs = settings["logprobs"], dict(settings["generation_kwargs"] or {})
        return engine

    def release(self) -> None:
        """Lets go of the last trainer's model."""
        if self._engine is not None:
            self._engine.model = None
            self._restore()

    def _restore(self) -> None:
        """Takes back what the last variant replaced."""
        for name in ("generate", "sync_weights"):
            self._engine.__dict__.pop(name, None)
        self._engine.llm.llm_engine.__dict__.pop("step", None)


# ---- timing
SECONDS = common.SECONDS


def now() -> float:
    """The clock, after the GPU has finished."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


timed = partial(common.timed, clock=now)


def timed_kind(kind: type[GRPOTrainer]) -> type[GRPOTrainer]:
    """The trainer class with its parts timed."""

    class Timed(kind):  # type: ignore[misc, valid-type]
        _generate = timed("generation", kind._generate)
        _calculate_rewards = timed("reward", kind._calculate_rewards)
        _prepare_inputs = timed("inputs", kind._prepare_inputs)
        training_step = timed("step", kind.training_step)

        def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
            call = super()._get_per_token_logps_and_entropies
            return call(*args, **kwargs) if torch.is_grad_enabled() else timed("scoring", call)(*args, **kwargs)

    return Timed


class BatchTimer(TrainerCallback):
    """Starts the clock after the first generation batch, and times the optimiser."""

    def __init__(self, iterations: int) -> None:
        self._iterations = iterations
        self.started = self._at = 0.0

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        self._at = now()

    def on_optimizer_step(self, *_: Any, **__: Any) -> None:
        SECONDS["optimiser"] += now() - self._at

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == self._iterations:
            SECONDS.clear()
            self.started = now()


if __name__ == "__main__":
    main()
