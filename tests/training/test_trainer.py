"""Training as the pipeline runs it: resumable, the same on several processes, and safe against broken models."""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny import GROUP, PROMPTS, ROUNDING, count_a, difference, make_trainer, tokenizer, weights
from tokenizers import decoders
from transformers import Lfm2Config, Lfm2ForCausalLM, TrainerCallback, TrainerState

from maxk.config import EntropyBonus, Generator, Training
from maxk.errors import UserError
from maxk.stages.train import last_checkpoint
from maxk.training.arguments import arguments, schedule
from maxk.training.callbacks import EndsOfCompletions, FollowEntropy, KeepMilestones, SkipNonfinite
from maxk.training.trainer import PolicyTrainer, require_same_reference

EXACT = {"type": "bon_offpolicy_exact", "k": 2}
TRAINING = Training(
    datasets=("any",),
    prompts_per_step=4,
    per_device_batch_size=8,
    num_generations=4,
    max_tokens=12,
    learning_rate=1e-2,
    warmup_steps=1,
    checkpoint_every=1,
)


def trained(
    model: str, folder: Path, objective: Any, kind: type = PolicyTrainer, resume: str | None = None, **options: Any
) -> PolicyTrainer:
    """A trainer after its training on generated completions; one epoch is two generation batches."""
    training = TRAINING.model_copy(update=options.pop("training", {}))
    args = arguments(training, folder, seed=0, prompts=len(schedule(training, 2 * len(PROMPTS), seed=0)))
    extra = {"rollout_func": None, "processing_class": tokenizer(model), **options}
    trainer = make_trainer(model, args, kind=kind, objective=objective, **extra)
    trainer.train(resume_from_checkpoint=resume)
    return trainer


# ---- generation
def test_a_model_whose_cache_cannot_be_split_is_trained(letters_model: str, tmp_path: Path) -> None:
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    ids = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": None}
    config = Lfm2Config(vocab_size=11, num_key_value_heads=1, full_attn_idxs=[1], **shape, **ids)
    model = tmp_path / "model"
    Lfm2ForCausalLM(config).save_pretrained(model)
    tokenizer(letters_model).save_pretrained(model)
    assert trained(str(model), tmp_path / "run", "grpo").state.global_step == 2


# ---- stop strings
@pytest.mark.parametrize("pad", ["<pad>", "<end>"])
def test_a_completion_ends_with_its_stop_string(
    pad: str, letters_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No padding of a batch's shorter completions is trained on, whether the padding token ends a sequence or not."""
    seen: list[list[int]] = []

    class Seen(PolicyTrainer):
        def _generate_single_turn(self, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
            output = super()._generate_single_turn(*args, **kwargs)
            seen.extend(output[0])
            return output

    def only_short(text: str) -> SimpleNamespace:
        return SimpleNamespace(program=text if text == "a" else None)

    monkeypatch.setattr("maxk.training.trainer.extract_program", only_short)
    own = tokenizer(letters_model)
    own.pad_token = pad
    own.backend_tokenizer.decoder = decoders.Fuse()  # without one, texts have spaces between letters
    [a, end] = own.convert_tokens_to_ids(["a", "<end>"])
    options = {"stop": ("a",), "training": {"stop": ("a",)}, "processing_class": own}
    trainer = trained(letters_model, tmp_path, "grpo", Seen, **options)
    assert len(seen) == 32
    stopped = [ids for ids in seen if a in ids]
    assert stopped
    assert all(ids.index(a) == len(ids) - 1 for ids in stopped)
    assert all(end not in ids[:-1] for ids in seen)
    logged = [line for line in trainer.state.log_history if "completions/stopped_ratio" in line]
    assert sum(16 * line["completions/stopped_ratio"] for line in logged) == pytest.approx(len(stopped))
    lost = sum(ids != [a] for ids in stopped)
    assert sum(16 * line["completions/lost_ratio"] for line in logged) == pytest.approx(lost)
    assert 0 < lost < len(stopped)
    cut = [ids for ids in seen if ids[-1] not in (a, end, own.pad_token_id)]  # this model also draws <pad>
    assert sum(16 * line["completions/clipped_ratio"] for line in logged) == pytest.approx(len(cut), abs=1e-5)


def test_lost_and_cut_completions_are_warned_of_once(capsys: pytest.CaptureFixture[str]) -> None:
    callback, lost, cut = EndsOfCompletions(TRAINING), "completions/lost_ratio", "completions/clipped_ratio"
    steps = [{lost: 0.01, cut: 0.1}, {"eval_reward": 1.0}, {lost: 0.5, cut: 0.2}, {lost: 0.6, cut: 0.875}, {cut: 0.9}]
    for step, logs in enumerate(steps, 1):
        callback.on_log(None, TrainerState(global_step=step), None, logs=logs)
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(
        "train: step 3: 50% of the completions were stopped by training.stop and hold no program; set"
    )
    assert second == "train: step 4: 88% of the completions were cut at training.max_tokens=12"


# ---- resume
def test_an_incomplete_checkpoint_is_removed_by_whichever_process_is_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (8, 9, 10):
        (tmp_path / f"checkpoint-{step}").mkdir()
    (tmp_path / "checkpoint-8" / "trainer_state.json").write_text("{}")
    (tmp_path / "checkpoint-9" / "trainer_state.json").write_text("{}")
    (tmp_path / "checkpoint-10" / "trainer_state.json").write_text('{"global')
    remove = shutil.rmtree

    def after_another(path: Path, **options: bool) -> None:
        remove(path)
        remove(path, **options)

    monkeypatch.setattr(shutil, "rmtree", after_another)
    assert last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-9")
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoint-8", "checkpoint-9"}


def test_an_optimiser_is_loaded_to_the_device_of_a_process_on_the_cpu(tmp_path: Path) -> None:
    """transformers maps it to accelerate's name of the device."""
    torch.save({"moment": torch.arange(3.0)}, tmp_path / "optimizer.pt")
    loaded = torch.load(tmp_path / "optimizer.pt", map_location=torch.device("cpu", 0), weights_only=True)
    assert loaded["moment"].tolist() == [0.0, 1.0, 2.0]


class KeepCheckpoints(TrainerCallback):
    """Copies every checkpoint, of which the trainer keeps two: what a run killed after that step would leave."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        shutil.copytree(Path(args.output_dir, f"checkpoint-{state.global_step}"), self.at(state.global_step))

    def at(self, step: int) -> str:
        return str(self.folder / f"checkpoint-{step}")


def steps(trainer: PolicyTrainer) -> list[dict[str, float]]:
    kept = ("step", "loss", "reward", "kl", "kl_old", "entropy")
    return [{k: e[k] for k in kept if k in e} for e in trainer.state.log_history if "loss" in e]


@pytest.mark.parametrize(
    ("objective", "training", "after"),
    [("grpo", {}, (3,)), (EXACT, {"iterations": 2}, (1, 2, 3)), (EXACT, {"iterations": 2, "minibatches": 2}, (2,))],
    ids=["on", "off", "minibatches"],
)
def test_resumed_equals_uninterrupted(
    objective: Any, training: dict[str, int], after: tuple[int, ...], letters_model: str, tmp_path: Path
) -> None:
    """Interrupted after the first, second (the end of an epoch) and third of four generation batches."""
    options = {"training": {**training, "epochs": 2.0}}
    kept = KeepCheckpoints(tmp_path / "kept")
    whole = trained(letters_model, tmp_path / "whole", objective, callbacks=[kept], **options)
    for batches in after:
        checkpoint = kept.at(batches * math.prod(training.values()))
        resumed = trained(letters_model, tmp_path / str(batches), objective, resume=checkpoint, **options)
        assert steps(resumed) == [pytest.approx(entry, rel=1e-5) for entry in steps(whole)]
        assert difference(weights(whole.model), weights(resumed.model), weights(letters_model)) < ROUNDING


# ---- entropy
def test_an_entropy_target_is_approached_and_the_controller_survives_a_stop(letters_model: str, tmp_path: Path) -> None:
    options = {"training": {"epochs": 4.0, "entropy_bonus": EntropyBonus(target=9.0, step=0.2)}}
    free = trained(letters_model, tmp_path / "free", "grpo", training={"epochs": 4.0})
    kept = KeepCheckpoints(tmp_path / "kept")
    whole = trained(letters_model, tmp_path / "whole", "grpo", callbacks=[kept], **options)
    coefficients = [entry["entropy_coef"] for entry in whole.state.log_history if "entropy_coef" in entry]
    assert coefficients == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0, 1.0, 1.0, 1.0])
    assert steps(whole)[-1]["entropy"] > steps(free)[-1]["entropy"]

    resumed = trained(letters_model, tmp_path / "resumed", "grpo", resume=kept.at(3), **options)
    assert steps(resumed) == [pytest.approx(entry, rel=1e-5) for entry in steps(whole)]


def test_an_entropy_is_followed_on_both_sides_and_after_a_stop(letters_model: str, tmp_path: Path) -> None:
    bonus = EntropyBonus(like="another", step=0.2, largest=0.5)
    options = {"training": {"epochs": 4.0, "entropy_bonus": bonus}}

    class Following(PolicyTrainer):
        """The targets are unreachable: below any entropy for four batches, above any for the other four."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            config = TRAINING.model_copy(update=options["training"])
            self.add_callback(FollowEntropy(self, [0.0] * 4 + [9.0] * 4, config))

    kept = KeepCheckpoints(tmp_path / "kept")
    whole = trained(letters_model, tmp_path / "whole", "grpo", kind=Following, callbacks=[kept], **options)
    used = [entry["entropy_coef"] for entry in whole.state.log_history if "entropy_coef" in entry]
    assert used == pytest.approx([0.0, -0.2, -0.4, -0.5, -0.5, -0.3, -0.1, 0.1])
    free = trained(letters_model, tmp_path / "free", "grpo", training={"epochs": 4.0})
    assert steps(whole)[4]["entropy"] < steps(free)[4]["entropy"]

    resumed = trained(letters_model, tmp_path / "resumed", "grpo", kind=Following, resume=kept.at(3), **options)
    assert steps(resumed) == [pytest.approx(entry, rel=1e-5) for entry in steps(whole)]


# ---- milestones
def test_milestones_are_the_policies_of_their_steps(letters_model: str, tmp_path: Path) -> None:
    """Kept by a callback, after two and three of four batches: equal to what shorter trainings end with."""
    kept = {2: tmp_path / "two" / "model", 3: tmp_path / "three" / "model"}

    class Keeping(PolicyTrainer):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.add_callback(KeepMilestones(kept, lambda folder: self.save_model(str(folder))))

    trained(letters_model, tmp_path / "whole", "grpo", kind=Keeping, training={"epochs": 2.0})
    for step, folder in kept.items():
        shorter = trained(letters_model, tmp_path / f"{step}", "grpo", training={"epochs": step / 2})
        assert difference(weights(str(folder)), weights(shorter.model), weights(letters_model)) < ROUNDING
    assert difference(weights(str(kept[2])), weights(str(kept[3])), weights(letters_model)) > ROUNDING


# ---- 16 bits
@pytest.mark.parametrize("per_device_batch_size", [8, 2])
def test_ratios_are_one_until_the_policy_moves(per_device_batch_size: int, letters_model: str, tmp_path: Path) -> None:
    """In 16 bits too, where passes over other batches round otherwise."""
    options = {"iterations": 3, "per_device_batch_size": per_device_batch_size, "precision": "bfloat16"}
    trainer = trained(letters_model, tmp_path, {"type": "bon_offpolicy_exact", "k": 2}, training=options)
    log = {entry["step"]: entry for entry in trainer.state.log_history if "loss" in entry}
    assert log[1]["learning_rate"] == 0.0
    assert (log[2]["ratio_min"], log[2]["ratio_max"]) == (1.0, 1.0)
    assert log[3]["ratio_min"] < 1.0 < log[3]["ratio_max"]
    # The second batch, whose first step moves: π_old is of its first iteration, not of its second.
    assert log[5]["ratio_min"] < log[5]["ratio_max"]


def test_minibatches_after_the_first_are_stale(letters_model: str, tmp_path: Path) -> None:
    """Their ratios are logged. The first batch does not count: its warm-up step moves nothing."""
    trainer = trained(letters_model, tmp_path, EXACT, training={"minibatches": 2})
    _, _, fresh, stale = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert "ratio_min" not in fresh
    assert stale["ratio_min"] < 0.99 < 1.01 < stale["ratio_max"]


def test_a_reference_in_16_bits_still_counts_as_the_base_policy(letters_model: str, tmp_path: Path) -> None:
    trainer = trained(letters_model, tmp_path, "bon_loo1", reference_precision="bfloat16")
    assert {p.dtype for p in trainer.ref_model.parameters()} == {torch.bfloat16}
    assert {p.dtype for p in trainer.model.parameters()} == {torch.float32}
    assert 0 < steps(trainer)[0]["kl"] < 0.01


# ---- rewards beside the reference model
def test_rewards_start_before_log_probabilities_are_computed(letters_model: str, tmp_path: Path) -> None:
    events: list[Any] = []

    class Reward:
        __name__ = "started"

        def start(self, completions: list[str], problem_id: list[str]) -> None:
            events.append(("start", completions, problem_id))

        def __call__(self, completions: list[str], problem_id: list[str], **_: Any) -> list[float | None]:
            events.append(("call", completions, problem_id))
            return count_a(completions)

    class Watched(PolicyTrainer):
        def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
            events.append("pass")
            return super()._get_per_token_logps_and_entropies(*args, **kwargs)

    trained(letters_model, tmp_path, "bon_loo1", kind=Watched, rewards=Reward())
    start, reference, call, *_ = events
    assert (start[0], reference, call[0]) == ("start", "pass", "call")
    assert start[1:] == call[1:]
    assert start[2] == [str(i) for i in range(4) for _ in range(4)]


class Engine:
    """In place of TRL's colocated vLLM: every step ends a request, and the last one fails if asked to."""

    fails = False

    def __init__(self, **_: Any) -> None:
        self.logprobs, self.generation_kwargs, self.llm = 0, {}, SimpleNamespace(llm_engine=self)
        self.running: list[Any] = []

    def sync_weights(self) -> None:
        pass

    def step(self) -> list[Any]:
        if self.fails and len(self.running) == 1:
            raise RuntimeError("the engine failed")
        return [self.running.pop(0)]

    def generate(self, prompts: list[list[int]], images: Any, num_generations: int, profiler: Any = None) -> Any:
        completions = [[[prompt[0], 2 + i % 3, 1] for i in range(GROUP)] for prompt in prompts]
        for prompt, group in zip(prompts, completions, strict=True):
            outputs = [SimpleNamespace(token_ids=ids) for ids in group]
            self.running.append(SimpleNamespace(finished=True, prompt_token_ids=prompt, outputs=outputs))
        while self.running:
            self.llm.llm_engine.step()
        return prompts, [ids for group in completions for ids in group], None, None


class Recorder:
    """A reward function that notes what it is given, and when."""

    __name__ = "noted"

    def __init__(self) -> None:
        self.events: list[tuple[str, list[str], list[str]]] = []

    def early(self, completions: list[str], problem_id: list[str]) -> None:
        self.events.append(("early", completions, problem_id))

    def start(self, completions: list[str], problem_id: list[str]) -> None:
        self.events.append(("start", completions, problem_id))

    def drop(self) -> None:
        self.events.append(("drop", [], []))

    def __call__(self, completions: list[str], problem_id: list[str], **_: Any) -> list[float | None]:
        return count_a(completions)


COLOCATED = Generator(backend="vllm")


def test_completions_are_graded_as_vllm_ends_them(
    letters_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trl.trainer.grpo_trainer.VLLMGeneration", Engine)
    reward = Recorder()
    trained(letters_model, tmp_path, "bon_loo1", rewards=reward, training={"generator": COLOCATED})
    *early, start = reward.events[:5]
    assert [event[0] for event in reward.events[:5]] == ["early"] * 4 + ["start"]
    assert [text for event in early for text in event[1]] == start[1]
    assert [name for event in early for name in event[2]] == start[2]


def test_a_generation_that_fails_drops_what_was_graded_early(
    letters_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trl.trainer.grpo_trainer.VLLMGeneration", Engine)
    monkeypatch.setattr(Engine, "fails", True)
    reward = Recorder()
    with pytest.raises(RuntimeError, match="the engine failed"):
        trained(letters_model, tmp_path, "bon_loo1", rewards=reward, training={"generator": COLOCATED})
    assert [event[0] for event in reward.events] == ["early"] * 3 + ["drop"]


def test_an_interrupt_after_the_generation_drops_it_too(
    letters_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("trl.trainer.grpo_trainer.VLLMGeneration", Engine)
    monkeypatch.setattr(PolicyTrainer, "_log_stopped", interrupt)
    reward = Recorder()
    with pytest.raises(KeyboardInterrupt):
        trained(letters_model, tmp_path, "bon_loo1", rewards=reward, stop=["x"], training={"generator": COLOCATED})
    assert [event[0] for event in reward.events] == ["early"] * 4 + ["drop"]


def test_completions_of_an_unknown_prompt_wait_for_the_whole_batch(
    letters_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as those that a tensor-parallel engine draws for another process."""
    monkeypatch.setattr("trl.trainer.grpo_trainer.VLLMGeneration", Engine)
    reward = Recorder()
    trainer = trained(letters_model, tmp_path, "bon_loo1", rewards=reward, training={"generator": COLOCATED})
    before = len(reward.events)
    trainer._grade_early([9, 9, 9, 9], [[2, 1]])
    assert len(reward.events) == before


# ---- several processes
SPLIT = ["bon_loo1", "bon_offpolicy", "bon_offpolicy_exact"]


@pytest.fixture(scope="module")
def by_processes(letters_model: str, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Folders of the policies trained by one process and by two."""
    script, folders = Path(__file__).with_name("two_processes.py"), {}
    for processes in (1, 2):
        folders[processes] = tmp_path_factory.mktemp("processes")
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)]
        command = [sys.executable, *launcher, str(script), letters_model, str(folders[processes]), *SPLIT]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        assert done.stdout.count(f"world size {processes}") == len(SPLIT)
    return folders


@pytest.mark.slow
@pytest.mark.parametrize("name", SPLIT)
def test_two_processes_train_as_one(name: str, by_processes: dict[int, Path], letters_model: str) -> None:
    """Gloo on the CPU; groups are split over the processes."""
    one, two = (torch.load(folder / f"{name}.pt") for folder in by_processes.values())
    assert difference(one, two, weights(letters_model)) < ROUNDING


# ---- broken gradients and references
class Broken(PolicyTrainer):
    """Its loss is finite; the gradient of one micro-batch is NaN."""

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        loss = super()._compute_loss(model, inputs)
        if self._step == 1:
            loss = loss + torch.sqrt((loss - loss.detach()).abs())  # 0, with an infinite slope there
        return loss


def test_a_step_with_a_broken_gradient_is_skipped_and_reported(
    letters_model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer = trained(letters_model, tmp_path, "grpo", kind=Broken, callbacks=[SkipNonfinite()])
    assert weights(trainer.model).isfinite().all()
    reported = [line for line in capsys.readouterr().err.splitlines() if "gradient" in line]
    assert reported == ["train: step 1 is skipped, its gradient is not finite"]


@pytest.mark.parametrize("kl", [0.02, math.inf, math.nan])
def test_policy_and_reference_must_be_one_before_the_first_step(kl: float) -> None:
    said = "must be 0: the reference" if math.isfinite(kl) else "probabilities are not valid"
    with pytest.raises(UserError, match=said):
        require_same_reference(kl, temperature=1.0)


def test_rounding_is_no_other_reference_at_any_temperature() -> None:
    require_same_reference(0.0003, temperature=1.0)
    require_same_reference(0.03, temperature=0.1)
    with pytest.raises(UserError, match="must be 0"):
        require_same_reference(0.03, temperature=1.3)


def test_a_penalty_to_the_old_policy_needs_no_reference(letters_model: str, tmp_path: Path) -> None:
    training = {"kl_reference": "old", "iterations": 2}
    trainer = trained(letters_model, tmp_path, "bon_loo1", kl_reference="old", training=training)
    assert [entry["kl_old"] > 1e-6 for entry in steps(trainer)] == [False, False, False, True]  # warm-up moves nothing


def test_a_reference_that_is_not_the_base_policy_ends_training_before_its_first_step(
    letters_model: str, tmp_path: Path
) -> None:
    class LostWeights(PolicyTrainer):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            torch.nn.init.zeros_(self.ref_model.model.layers[0].mlp.down_proj.weight)

    class Steps(TrainerCallback):
        taken = 0

        def on_step_end(self, *_: Any, **__: Any) -> None:
            self.taken += 1

    taken = Steps()
    with pytest.raises(UserError, match="before the first step the KL of the policy to its reference is"):
        trained(letters_model, tmp_path, "grpo", kind=LostWeights, callbacks=[taken])
    assert taken.taken == 0
