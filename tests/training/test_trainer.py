"""The seam in TRL: it holds, it changes advantages and nothing else, and a resumed run is an undisturbed one."""

from __future__ import annotations

import inspect
import math
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from datasets import Dataset
from surrogates import sequence_surrogate
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM, TrainerCallback
from trl import GRPOTrainer
from trl.trainer.utils import split_tensor_dict

from maxk.config import Generator, Heldout, Lora, Training
from maxk.errors import UserError
from maxk.objectives import make
from maxk.training.arguments import arguments, lora, schedule
from maxk.training.callbacks import SkipNonfinite
from maxk.trl import MaxkTrainer, _by_length, require_same_reference

PROMPTS = [
    f"sort up, {word}\n" for word in ("total", "largest", "count", "middle", "show", "ends", "spread", "smallest")
]
TRAINING = Training(
    datasets=("pocket-contests",),
    prompts_per_step=4,
    per_device_batch_size=8,
    num_generations=4,
    max_tokens=12,
    learning_rate=1e-3,
    warmup_steps=1,
    checkpoint_every=1,
)


def by_length(completions: list[str], **_: Any) -> list[float | None]:
    """A reward that needs no grader and differs within groups."""
    return [len(text) % 5 / 4 for text in completions]


def trained(
    base_model: str,
    folder: Path,
    spec: dict[str, Any],
    reward: Callable[..., list[float | None]] = by_length,
    trainer_class: type[GRPOTrainer] = MaxkTrainer,
    training: Training = TRAINING,
    callbacks: list[TrainerCallback] | None = None,
    resume: str | None = None,
) -> GRPOTrainer:
    """A trainer after its training; `training.epochs` = 1 is two generation batches."""
    torch.set_num_threads(1)
    order = schedule(training, len(PROMPTS), seed=0)
    extra = {"objective": make(spec)} if issubclass(trainer_class, MaxkTrainer) else {}
    trainer = trainer_class(
        model=base_model,
        reward_funcs=[reward],
        args=arguments(training, folder, seed=0, prompts=len(order)),
        train_dataset=Dataset.from_list([{"prompt": PROMPTS[i], "problem_id": PROMPTS[i]} for i in order]),
        eval_dataset=Dataset.from_list([{"prompt": p, "problem_id": p} for p in PROMPTS[:3]]),
        processing_class=AutoTokenizer.from_pretrained(base_model, padding_side="left"),
        peft_config=lora(training),
        callbacks=callbacks,
        **extra,
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def weights(trainer: GRPOTrainer) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in trainer.model.parameters()])


# ---------------------------------------------------------------------------------------------------- the contract
@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        ("_calculate_rewards", ["self", "inputs", "prompts", "completions", "completion_ids_list"]),
        ("_generate_and_score_completions", ["self", "inputs"]),
        ("_prepare_inputs", ["self", "generation_batch"]),
        ("_compute_loss", ["self", "model", "inputs"]),
    ],
)
def test_overridden_methods_have_the_signatures_we_rely_on(method: str, parameters: list[str]) -> None:
    assert list(inspect.signature(getattr(GRPOTrainer, method)).parameters) == parameters


def test_parent_reads_advantages_after_the_forward_pass() -> None:
    source = inspect.getsource(GRPOTrainer._compute_loss)
    assert source.index("_get_per_token_logps_and_entropies(") < source.index('inputs["advantages"]')
    assert source.index("_get_per_token_logps_and_entropies(") < source.index('inputs.get("old_per_token_logps")')
    assert len(re.findall(r"self\._get_per_token_logps_and_entropies\(", source)) == 1


# ------------------------------------------------------------------------------------------- advantages, nothing else
# With several iterations Adam divides gradients that round otherwise; weights move by 0.005.
@pytest.mark.parametrize(("iterations", "tolerance"), [(1, 1e-6), (3, 1e-5)])
def test_grpo_equals_the_stock_trainer(iterations: int, tolerance: float, base_model: str, tmp_path: Path) -> None:
    """With several iterations also π_old is compared, for which the stock trainer makes a pass of its own."""
    training = TRAINING.model_copy(update={"iterations": iterations})
    stock = trained(base_model, tmp_path / "stock", {}, trainer_class=GRPOTrainer, training=training)
    ours = trained(base_model, tmp_path / "ours", {"type": "grpo"}, training=training)
    assert torch.allclose(weights(stock), weights(ours), atol=tolerance)
    assert list(stock._logs["advantages"]) == pytest.approx(list(ours._logs["advantages"]), abs=1e-5)


def test_objectives_train_differently(base_model: str, tmp_path: Path) -> None:
    """The control of the test above: another objective gives other weights and logs other advantages."""
    grpo = trained(base_model, tmp_path / "a", {"type": "grpo"})
    loo = trained(base_model, tmp_path / "b", {"type": "bon_loo1", "k": 2})
    assert not torch.allclose(weights(grpo), weights(loo), atol=1e-6)
    assert list(grpo._logs["advantages"]) != pytest.approx(list(loo._logs["advantages"]), abs=1e-3)


def test_off_policy_equals_on_policy_without_stale_samples(base_model: str, tmp_path: Path) -> None:
    exact = trained(base_model, tmp_path / "a", {"type": "bon_offpolicy_exact", "k": 2})
    loo = trained(base_model, tmp_path / "b", {"type": "bon_loo1", "k": 2})
    # The micro-batches hold the same groups in another order.
    assert torch.allclose(weights(exact), weights(loo), atol=1e-5)


# ------------------------------------------------------------------------------------------------------- gradients
class Broken(MaxkTrainer):
    """Its loss is finite; the gradient of one micro-batch is NaN."""

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        loss = super()._compute_loss(model, inputs)
        if self._step == 1:
            loss = loss + torch.sqrt((loss - loss.detach()).abs())  # 0, with an infinite slope there
        return loss


def test_a_step_with_a_broken_gradient_is_skipped_and_told(
    base_model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = trained(base_model, tmp_path, {"type": "grpo"}, trainer_class=Broken, callbacks=[SkipNonfinite()])
    assert weights(trainer).isfinite().all()
    told = [line for line in capsys.readouterr().err.splitlines() if "is skipped, its gradient is not finite" in line]
    assert told == ["train: step 1 is skipped, its gradient is not finite"]


# --------------------------------------------------------------------------------------------------------- padding
def padded(prompts: list[int], completions: list[int]) -> dict[str, torch.Tensor]:
    """Sequences of these lengths as TRL lays them out; token ids count up from 1, padding is 0."""

    def rows(lengths: list[int], left: bool) -> torch.Tensor:
        filled = [[*range(1, n + 1)] for n in lengths]
        width = max(lengths)
        return torch.tensor([[0] * (width - len(r)) + r if left else r + [0] * (width - len(r)) for r in filled])

    prompt_ids, completion_ids = rows(prompts, left=True), rows(completions, left=False)
    return {
        "prompt_ids": prompt_ids,
        "prompt_mask": (prompt_ids > 0).long(),
        "completion_ids": completion_ids,
        "completion_mask": (completion_ids > 0).long(),
        "ref_per_token_logps": -completion_ids.float(),
        "row": torch.arange(len(prompts)),
        "num_items_in_batch": torch.tensor(7),
    }


def shuffled(batch: dict[str, torch.Tensor], order: list[int], parts: int) -> list[dict[str, torch.Tensor]]:
    mixed = {key: value[order] if value.ndim else value for key, value in batch.items()}
    return split_tensor_dict(mixed, parts)


def test_microbatches_hold_like_lengths_without_common_padding() -> None:
    batches = shuffled(padded([2, 3, 2, 1], [5, 1, 4, 2]), order=[3, 0, 2, 1], parts=2)
    short, long = _by_length(batches, together=1)
    assert short["row"].tolist() == [1, 3]
    assert long["row"].tolist() == [2, 0]
    assert short["completion_ids"].tolist() == [[1, 0], [1, 2]]
    assert short["prompt_ids"].tolist() == [[1, 2, 3], [0, 0, 1]]
    assert long["completion_mask"].tolist() == [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]
    assert long["prompt_mask"].tolist() == [[1, 1], [1, 1]]
    assert short["ref_per_token_logps"].tolist() == [[-1, 0], [-1, -2]]
    assert short["num_items_in_batch"] == 7


def test_groups_stay_together_in_the_order_of_generation() -> None:
    batches = shuffled(padded([2] * 6, [1, 6, 2, 2, 3, 1]), order=[5, 0, 4, 1, 2, 3], parts=3)
    arranged = _by_length(batches, together=2)
    assert [batch["row"].tolist() for batch in arranged] == [[2, 3], [4, 5], [0, 1]]
    assert [batch["completion_ids"].shape[1] for batch in arranged] == [2, 3, 6]


# ------------------------------------------------------------------------------------------------ off-policy weights
class Spy(MaxkTrainer):
    """Keeps what the objective was given in every optimiser step, and recomputes it the slow way."""

    def _renew_advantages(self, inputs: dict[str, Any], per_token_logps: torch.Tensor) -> None:
        super()._renew_advantages(inputs, per_token_logps)
        if not self._stale:
            return
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
        mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
        with torch.no_grad():
            positions = (mask.cumsum(1) - 1).clamp(min=0)
            logits = self.model(input_ids=ids, attention_mask=mask, position_ids=positions).logits[:, :-1]
        logps = logits.log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)[:, -inputs["completion_ids"].shape[1] :]
        slow = ((logps - inputs["old_per_token_logps"]) * inputs["completion_mask"]).sum(-1)
        groups = inputs["prompt_ids"].view(-1, self.num_generations, inputs["prompt_ids"].shape[1])
        self.seen.append((inputs["advantages"], inputs["rewards"].view(-1, self.num_generations), slow, groups))


def test_off_policy_advantages_come_from_whole_groups_and_current_ratios(base_model: str, tmp_path: Path) -> None:
    spec = {"type": "bon_offpolicy_exact", "k": 2}
    Spy.seen = []
    trained(base_model, tmp_path, spec, trainer_class=Spy, training=TRAINING.model_copy(update={"iterations": 3}))
    assert len(Spy.seen) == 2 * 2 * 2  # generation batches × iterations after the first × micro-batches
    drifts = []
    for advantages, rewards, log_ratios, prompts in Spy.seen:
        assert (prompts == prompts[:, :1]).all()  # every row of the reward matrix is one prompt's group
        expected = make(spec)(rewards, log_ratios.view_as(rewards)).flatten()
        assert torch.allclose(advantages, expected, atol=1e-5)
        drifts.append(log_ratios.abs().max().item())
    assert min(drifts[2], drifts[3]) > 1e-3  # third iteration of the first batch: the policy has moved


@pytest.mark.parametrize(
    ("spec", "free", "refreshed"),
    [
        ({"type": "bon_offpolicy_exact", "k": 2}, 8, 2),  # groups of 4 whole in a micro-batch, or split in two
        ({"type": "bon_loo1_firstorder", "k": 3}, 4, 1),
        ({"type": "bon_offpolicy", "k": 2}, 16, 8),  # scaled by the batch: whole groups are not enough
    ],
)
def test_free_and_refreshed_ratios_train_alike(
    spec: dict[str, Any], free: int, refreshed: int, base_model: str, tmp_path: Path
) -> None:
    policies = []
    for microbatch in (free, refreshed):
        training = TRAINING.model_copy(update={"iterations": 3, "per_device_batch_size": microbatch})
        trainer = trained(base_model, tmp_path / str(microbatch), spec, training=training)
        assert trainer._free_ratios == (microbatch == free)
        policies.append(weights(trainer))
    assert torch.allclose(*policies, atol=2e-5)


class Counting(MaxkTrainer):
    """Counts forward passes of the policy."""

    passes = 0

    def _get_per_token_logps_and_entropies(self, model: Any, *args: Any, **kwargs: Any) -> Any:
        Counting.passes += self.accelerator.unwrap_model(model) is self.accelerator.unwrap_model(self.model)
        return super()._get_per_token_logps_and_entropies(model, *args, **kwargs)


@pytest.mark.parametrize(("microbatch", "passes"), [(8, 2 * 3 * 2), (2, 2 * 3 * 8 + 2 * 2 * 8)])
def test_ratios_are_one_until_the_policy_moves(microbatch: int, passes: int, base_model: str, tmp_path: Path) -> None:
    """In 16 bits too, where passes over other batches round otherwise; and no pass is made for π_old alone."""
    training = TRAINING.model_copy(
        update={"iterations": 3, "per_device_batch_size": microbatch, "precision": "bfloat16", "learning_rate": 1e-5}
    )
    Counting.passes = 0
    trainer = trained(
        base_model, tmp_path, {"type": "bon_offpolicy_exact", "k": 2}, trainer_class=Counting, training=training
    )
    log = {entry["step"]: entry for entry in trainer.state.log_history if "loss" in entry}
    assert log[1]["learning_rate"] == 0.0
    assert (log[2]["ratio_min"], log[2]["ratio_max"], log[2]["ess_fraction"]) == (1.0, 1.0, 1.0)
    assert log[3]["ratio_min"] < 1.0 < log[3]["ratio_max"]
    # The second batch, whose first step moves: π_old is of its first iteration, not of its second.
    assert log[5]["ratio_min"] < log[5]["ratio_max"]
    assert Counting.passes == passes


# ---------------------------------------------------------------------------------------------- sequence-level ratios
class Gradients(MaxkTrainer):
    """Keeps the gradient of every loss, and that of `surrogates.sequence_surrogate` on the same micro-batch."""

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        loss = super()._compute_loss(model, inputs)
        parameters = list(model.parameters())
        got = torch.autograd.grad(loss, parameters, retain_graph=True)
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
        mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
        logps = model(
            input_ids=ids, attention_mask=mask, position_ids=(mask.cumsum(1) - 1).clamp(min=0)
        ).logits.log_softmax(-1)
        kept = inputs["completion_ids"].shape[1]
        logps = logps[:, :-1].gather(-1, ids[:, 1:, None]).squeeze(-1)[:, -kept:]
        log_ratios = ((logps - inputs["old_per_token_logps"]) * inputs["completion_mask"]).sum(-1)
        rewards = inputs["rewards"].view(-1, self.num_generations)
        advantages = self.objective(rewards, log_ratios.detach().view_as(rewards)).flatten()
        expected = -sequence_surrogate(log_ratios, advantages, 0.2).mean() / self.current_gradient_accumulation_steps
        wanted = torch.autograd.grad(expected, parameters)
        self.pairs.append([torch.cat([g.flatten() for g in side]) for side in (got, wanted)])
        return loss


def test_sequence_ratio_is_the_sequence_surrogate(base_model: str, tmp_path: Path) -> None:
    training = TRAINING.model_copy(update={"ratio": "sequence", "iterations": 3, "kl_coefficient": 0.0})
    Gradients.pairs = []
    spec = {"type": "bon_offpolicy_exact", "k": 2}
    trained(base_model, tmp_path, spec, trainer_class=Gradients, training=training)
    assert len(Gradients.pairs) == 2 * 3 * 2
    for got, wanted in Gradients.pairs:
        assert torch.allclose(got, wanted, atol=1e-6 + 1e-4 * wanted.abs().max())
    signals = [wanted.norm() > 1e-3 for _, wanted in Gradients.pairs]
    assert sum(signals) >= 8  # where all of a micro-batch is clipped or equal there is none


# -------------------------------------------------------------------------------------------------- several processes
SPLIT = ["bon_loo1", "bon_offpolicy", "bon_offpolicy_exact"]


@pytest.fixture(scope="module")
def by_processes(base_model: str, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Folders of the policies trained by one process and by two."""
    script, folders = Path(__file__).with_name("two_processes.py"), {}
    for processes in (1, 2):
        folders[processes] = tmp_path_factory.mktemp("processes")
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)]
        arguments = [str(script), base_model, str(folders[processes]), *SPLIT]
        done = subprocess.run([sys.executable, *launcher, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        assert done.stdout.count(f"world size {processes}") == len(SPLIT)
    return folders


@pytest.mark.parametrize("name", SPLIT)
def test_two_processes_train_as_one(name: str, by_processes: dict[int, Path], base_model: str) -> None:
    """Gloo on the CPU; the groups of four are split over the processes where the micro-batch asks for it."""
    one, two = (torch.load(folder / f"{name}.pt") for folder in by_processes.values())
    start = AutoModelForCausalLM.from_pretrained(base_model)
    assert not torch.allclose(one, torch.cat([p.detach().flatten() for p in start.parameters()]), atol=1e-4)
    assert torch.allclose(one, two, atol=2e-5)


# ------------------------------------------------------------------------------------------ evaluation while training
def test_heldout_problems_are_evaluated_for_several_k(base_model: str, tmp_path: Path) -> None:
    training = TRAINING.model_copy(update={"evaluation": Heldout(every=1, problems=3)})
    trainer = trained(base_model, tmp_path, {"type": "grpo"}, training=training)
    logged = [entry for entry in trainer.state.log_history if "eval_max@4" in entry]
    assert [entry["step"] for entry in logged] == [1, 2]
    for entry in logged:
        assert 0 <= entry["eval_max@1"] <= entry["eval_max@2"] <= entry["eval_max@4"] <= 1
        assert entry["eval_reward"] == pytest.approx(entry["eval_max@1"])


# ---------------------------------------------------------------------------------------------------- ungraded, equal
@pytest.mark.parametrize("spec", [{"type": "grpo"}, {"type": "bon_mean", "k": 2}, {"type": "bon_loo1", "k": 2}])
@pytest.mark.parametrize("value", [None, 0.0, 1.0])
def test_groups_without_signal_leave_the_policy_as_it_is(
    spec: dict[str, Any], value: float | None, base_model: str, tmp_path: Path
) -> None:
    def flat(completions: list[str], **_: Any) -> list[float | None]:
        return [value for _ in completions]

    training = TRAINING.model_copy(update={"kl_coefficient": 0.0})
    trainer = trained(base_model, tmp_path, spec, reward=flat, training=training)
    start = AutoModelForCausalLM.from_pretrained(base_model)
    assert torch.equal(weights(trainer), torch.cat([p.detach().flatten() for p in start.parameters()]))
    key = "frac_unusable" if value is None else "frac_reward_zero_std"
    logged = [entry[key] for entry in trainer.state.log_history if key in entry]
    assert logged
    assert set(logged) == {1.0}


def test_one_ungraded_member_silences_its_group_only(base_model: str, tmp_path: Path) -> None:
    def mostly(completions: list[str], problem_id: list[str], **_: Any) -> list[float | None]:
        rewards = by_length(completions)
        first = problem_id.index(PROMPTS[0]) if PROMPTS[0] in problem_id else None
        return [None if i == first else r for i, r in enumerate(rewards)]

    trainer = trained(base_model, tmp_path, {"type": "bon_loo1", "k": 2}, reward=mostly)
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses
    assert all(math.isfinite(loss) for loss in losses)
    assert torch.isfinite(weights(trainer)).all()


# ------------------------------------------------------------------------------------------------------------- resume
class StopAfter(TrainerCallback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_training_stop = state.global_step >= self.step


@pytest.mark.parametrize("batches", [1, 2, 3])  # the second is the end of an epoch
@pytest.mark.parametrize(("spec", "iterations"), [({"type": "grpo"}, 1), ({"type": "bon_offpolicy_exact", "k": 2}, 2)])
def test_resumed_equals_uninterrupted(
    spec: dict[str, Any], iterations: int, batches: int, base_model: str, tmp_path: Path
) -> None:
    training = TRAINING.model_copy(update={"iterations": iterations, "epochs": 2.0})
    whole = trained(base_model, tmp_path / "whole", spec, training=training)
    stopped = trained(
        base_model, tmp_path / "cut", spec, training=training, callbacks=[StopAfter(batches * iterations)]
    )
    assert stopped.state.global_step == batches * iterations
    checkpoint = str(tmp_path / "cut" / f"checkpoint-{batches * iterations}")
    resumed = trained(base_model, tmp_path / "cut", spec, training=training, resume=checkpoint)

    def steps(trainer: GRPOTrainer) -> list[dict[str, float]]:
        kept = ("step", "loss", "reward", "kl", "entropy")
        return [{k: e[k] for k in kept if k in e} for e in trainer.state.log_history if "loss" in e]

    assert steps(resumed) == [pytest.approx(entry, rel=1e-5) for entry in steps(whole)]
    assert torch.allclose(weights(resumed), weights(whole), atol=1e-7)


# ------------------------------------------------------------------------------------------------ schedule, arguments
def test_schedule_permutes_every_epoch_anew() -> None:
    order = schedule(TRAINING.model_copy(update={"epochs": 3.0}), problems=8, seed=1)
    epochs = [order[i : i + 8] for i in (0, 8, 16)]
    assert all(sorted(epoch) == list(range(8)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    assert order == schedule(TRAINING.model_copy(update={"epochs": 3.0}), problems=8, seed=1)
    assert order != schedule(TRAINING.model_copy(update={"epochs": 3.0}), problems=8, seed=2)


@pytest.mark.parametrize(("epochs", "problems", "batches"), [(1.0, 10, 2), (0.5, 8, 1), (0.01, 8, 1), (2.0, 3, 2)])
def test_schedule_is_whole_batches_also_where_sizes_do_not_divide(epochs: float, problems: int, batches: int) -> None:
    order = schedule(TRAINING.model_copy(update={"epochs": epochs}), problems, seed=0)
    assert len(order) == batches * TRAINING.prompts_per_step
    assert set(order) <= set(range(problems))


def test_arguments_follow_the_configuration(tmp_path: Path) -> None:
    training = TRAINING.model_copy(update={"iterations": 3, "epochs": 2.0, "kl_coefficient": 0.02, "clip": 0.1})
    args = arguments(training, tmp_path, seed=5, prompts=16)
    assert args.max_steps == 16 // 4 * 3
    assert args.per_device_train_batch_size == 2 * 4
    assert args.gradient_accumulation_steps == args.steps_per_generation == 2
    assert (args.beta, args.epsilon, args.num_iterations, args.seed) == (0.02, 0.1, 3, 5)
    assert (args.loss_type, args.use_bias_correction_kl, args.weight_decay) == ("grpo", False, 0.0)
    assert args.save_steps == 3


@pytest.mark.parametrize(("processes", "device_map"), [(1, "auto"), (2, None)])
def test_revision_and_device_map_reach_policy_and_reference(
    processes: int, device_map: str | None, base_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Left out, TRL says `auto` where it sees no DDP and no DeepSpeed: on two GPUs under FSDP2 each process then spread
    both models over both, and the first forward pass ended in "tensors on cuda:0 and cuda:1"."""
    asked: list[tuple[str | None, str | None]] = []
    load = LlamaForCausalLM.from_pretrained.__func__

    def spy(cls: type, name: str, **kwargs: Any) -> Any:
        asked.append((kwargs.pop("revision", None), kwargs.pop("device_map")))
        return load(cls, name, **kwargs)

    monkeypatch.setattr(LlamaForCausalLM, "from_pretrained", classmethod(spy))
    on_gpu = SimpleNamespace(device=SimpleNamespace(type="cuda"))
    monkeypatch.setattr("trl.trainer.utils.PartialState", lambda: on_gpu)  # on a CPU it never says `auto`
    training = TRAINING.model_copy(update={"processes": processes})
    args = arguments(training, tmp_path, seed=0, prompts=8, revision="abc123")
    MaxkTrainer(
        model=base_model,
        reward_funcs=[by_length],
        args=args,
        train_dataset=Dataset.from_list([{"prompt": prompt} for prompt in PROMPTS]),
        processing_class=AutoTokenizer.from_pretrained(base_model, padding_side="left"),
        objective=make({"type": "grpo"}),
    )
    assert asked == [("abc123", device_map)] * 2


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (
            {"generator": Generator(backend="vllm", gpu_memory_utilization=0.4, tensor_parallel=2)},
            {"use_vllm": True, "vllm_mode": "colocate", "vllm_gpu_memory_utilization": 0.4},
        ),
        (
            {"generator": Generator(backend="vllm", mode="server", url="http://node1:8000")},
            {"vllm_mode": "server", "vllm_server_base_url": "http://node1:8000"},
        ),
        ({"gradient_checkpointing": True}, {"gradient_checkpointing": True}),
        ({"ratio": "sequence"}, {"loss_type": "luspo", "importance_sampling_level": "sequence"}),
        ({"evaluation": Heldout(every=5, problems=9), "iterations": 3}, {"eval_steps": 15}),
    ],
)
def test_what_larger_scales_ask_for_passes_trls_own_checks(
    keys: dict[str, Any], expected: dict[str, Any], tmp_path: Path
) -> None:
    args = arguments(TRAINING.model_copy(update=keys), tmp_path, seed=0, prompts=16)
    assert {name: getattr(args, name) for name in expected} == expected
    assert args.vllm_importance_sampling_correction is ("generator" not in keys)  # off where vLLM generates


@pytest.mark.parametrize("kl", [0.02, math.inf, math.nan])
def test_policy_and_reference_must_be_one_before_the_first_step(kl: float) -> None:
    with pytest.raises(UserError, match="must be 0: the reference" if math.isfinite(kl) else "gives no probabilities"):
        require_same_reference(kl, temperature=1.0)


def test_rounding_is_no_other_reference_at_any_temperature() -> None:
    require_same_reference(0.0003, temperature=1.0)
    require_same_reference(0.03, temperature=0.1)
    with pytest.raises(UserError, match="must be 0"):
        require_same_reference(0.03, temperature=1.3)


def test_a_reference_that_is_not_the_base_policy_ends_training_before_its_first_step(
    base_model: str, tmp_path: Path
) -> None:
    class LostWeights(MaxkTrainer):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            torch.nn.init.zeros_(self.ref_model.model.layers[0].self_attn.o_proj.weight)
            torch.nn.init.zeros_(self.ref_model.model.layers[1].mlp.down_proj.weight)

    class Steps(TrainerCallback):
        taken = 0

        def on_step_end(self, *_: Any, **__: Any) -> None:
            self.taken += 1

    steps = Steps()
    with pytest.raises(UserError, match="before the first step the KL of the policy to its reference is"):
        trained(base_model, tmp_path, {"type": "grpo"}, trainer_class=LostWeights, callbacks=[steps])
    assert steps.taken == 0


def test_lora_trains_adapters_only(base_model: str, tmp_path: Path) -> None:
    training = TRAINING.model_copy(update={"lora": Lora(rank=2, alpha=4)})
    assert lora(TRAINING) is None
    trainer = trained(base_model, tmp_path, {"type": "grpo"}, training=training)
    trainable = {name for name, p in trainer.model.named_parameters() if p.requires_grad}
    assert trainable
    assert all("lora_" in name for name in trainable)


@pytest.mark.parametrize("name", ["ddp", "fsdp2", "zero3"])
def test_shipped_accelerate_configs_are_what_accelerate_reads(name: str, root: Path) -> None:
    from accelerate.commands.config.config_args import load_config_from_file

    config = load_config_from_file(str(root / "config" / "accelerate" / f"{name}.yaml"))
    expected = {"ddp": "MULTI_GPU", "fsdp2": "FSDP", "zero3": "DEEPSPEED"}
    assert config.distributed_type == expected[name]
    assert config.mixed_precision == "bf16"
