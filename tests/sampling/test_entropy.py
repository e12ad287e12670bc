"""Entropies of finished samples against one plain forward pass a sample."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    MambaConfig,
    MambaForCausalLM,
)

from maxk import sampling
from maxk.artifacts.records import Policy, Problem, Test
from maxk.config import Config, Sampling
from maxk.config.sampling import Vllm
from maxk.errors import UserError
from maxk.sampling import entropy
from maxk.sampling.entropy import Entropies, Part, batches
from maxk.sampling.transformers import TransformersBackend
from maxk.stages.sample import Sample, _Job

HOT = Sampling(temperature=1.3, top_p=0.9)
VOCABULARY = 96
SMALL = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "intermediate_size": 48}
MODELS: dict[str, Any] = {
    "learned positions": lambda: GPT2LMHeadModel(
        GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=2, n_positions=128)
    ),
    "capped logits, sliding window": lambda: Gemma2ForCausalLM(
        Gemma2Config(**SMALL, **HEADS, final_logit_softcapping=0.5, sliding_window=8, initializer_range=1.0)
    ),
    "state space": lambda: MambaForCausalLM(MambaConfig(**SMALL, state_size=4)),
}


def policy(model: Any) -> Policy:
    return Policy("base", "Base model", str(model))


def sequences(lengths: Sequence[tuple[int, int]], vocabulary: int) -> list[tuple[list[int], list[int]]]:
    """Random prompts and completions of these lengths."""
    draw = random.Random(1)
    return [tuple([draw.randrange(vocabulary) for _ in range(length)] for length in pair) for pair in lengths]


@torch.no_grad()
def directly(model: Any, prompt: Sequence[int], completion: Sequence[int], temperature: float) -> float:
    """The mean of −Σ p log p in float64 over the distributions from which the completion's tokens are drawn."""
    total = 0.0
    for end in range(len(completion)):
        ids = torch.tensor([[*prompt, *completion[:end]]])
        p = (model(ids, use_cache=False).logits[0, -1].double() / temperature).softmax(-1)
        total -= float((p * p.log()).sum())
    return total / len(completion)


LENGTHS = [(1, 1), (9, 30), (9, 2), (4, 17), (12, 1), (4, 17), (7, 25)]


@pytest.mark.parametrize("kind", MODELS)
def test_any_architecture_is_measured_as_by_itself(kind: str, tmp_path: Path) -> None:
    """Padding changes nothing, and what a model does to its logits counts."""
    torch.manual_seed(0)
    MODELS[kind]().save_pretrained(tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    given = sequences(LENGTHS, VOCABULARY)
    expected = [directly(model, prompt, completion, 1.3) for prompt, completion in given]
    assert Entropies(policy(tmp_path), HOT)(given) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("tokens", "positions"), [(1, 10**6), (60, 10**6), (10**6, 4), (60, 1)])
def test_batches_and_parts_change_nothing(
    base_model: str, tokens: int, positions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A completion with more logits than a batch may have is read in parts; equal sequences are computed once."""
    measure = Entropies(policy(base_model), HOT)
    given = sequences([*LENGTHS, *LENGTHS], 200)
    expected = [directly(measure.model, prompt, completion, 1.3) for prompt, completion in given]
    measure.tokens, measure.positions, measure.floats = tokens, positions, 7 * measure.vocabulary
    sizes, original = [], measure._sums
    monkeypatch.setattr(measure, "_sums", lambda batch: sizes.append(padded(batch)) or original(batch))
    assert measure(given) == pytest.approx(expected, rel=1e-5)
    assert all(rows == 1 or (ids <= tokens and logits <= positions) for rows, ids, logits in sizes)
    assert all(logits <= positions for *_, logits in sizes)
    sizes.clear()
    measure([given[1]] * 5)
    assert sum(rows for rows, *_ in sizes) == -(-30 // min(positions, 30))


def padded(batch: Sequence[Part]) -> tuple[int, int, int]:
    """Rows, ids and rows of logits of a batch."""
    width = max(len(part.ids) for part in batch)
    return len(batch), len(batch) * width, len(batch) * (width - min(part.before for part in batch))


def test_samples_of_a_backend(base_model: str) -> None:
    """Ended, stopped and cut samples, the last token included; top-p changes what is drawn, not what is measured."""
    prompts = ["sort up, total\n", "double, count all distinct values\n", "halve, show\n"]
    config = HOT.model_copy(update={"max_tokens": 14, "stop": ("max",)})
    backend = TransformersBackend(policy(base_model), config)
    requests = [sampling.Request(f"p/{i}", prompt, 0, 24, seed=i) for i, prompt in enumerate(prompts)]
    found = [(r.prompt, c) for done in backend.sample(requests) for r, completions in done for c in completions]
    given = [(sampling.prompt_ids(prompt, backend.tokenizer), completion.tokens) for prompt, completion in found]
    expected = [directly(backend.model, *one, 1.3) for one in given]
    backend.close()
    assert Entropies(policy(base_model), config)(given) == pytest.approx(expected, rel=1e-5)
    assert [c.entropy for _, c in found] == pytest.approx(expected, rel=1e-5)
    assert {c.finish_reason for _, c in found} == {"stop", "stop_string", "length"}
    assert len({len(c.tokens) for _, c in found}) > 2


def test_a_model_that_returns_all_logits_is_measured_alike(base_model: str) -> None:
    measure, given = Entropies(policy(base_model), HOT), sequences([(3, 4), (5, 9)], 200)
    expected, model = measure(given), measure.model
    measure.model = lambda input_ids, use_cache, logits_to_keep: model(input_ids=input_ids, use_cache=use_cache)
    assert measure(given) == pytest.approx(expected, rel=1e-5)


def test_on_a_shared_gpu_the_pass_is_kept_to_its_fraction_after_any_backend(
    seconds: Config, base_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shared = {"gpu": 0.4, "backend": "vllm", "vllm": Vllm(kv_cache_gb=1), "entropy": True}
    config = seconds.model_copy(update={"gpus": 1, "sampling": seconds.sampling.model_copy(update=shared)})
    job = _Job(config, policy(base_model), [Problem("p/1", "p", "test", "sort up", [Test("", "1")])])
    job.drawn["p/1"][0] = Sample("x", 1, "stop")
    limits: list[float] = []
    monkeypatch.setattr("maxk.resources.gpus.limit_memory", limits.append)
    monkeypatch.setattr(entropy, "Entropies", lambda *_: sys.exit(f"the model is loaded below {limits}"))
    with pytest.raises(SystemExit, match=r"below \[0.4\]"):
        job.measure()


def test_a_group_is_within_both_budgets_and_keeps_the_order() -> None:
    parts = [
        Part(i, tuple(range(before + length)), length) for i, (before, length) in enumerate([(3, 2)] * 5 + [(3, 9)])
    ]
    groups = list(batches(parts, tokens=15, positions=100))
    assert [[part.owner for part in group] for group in groups] == [[0, 1, 2], [3, 4], [5]]
    groups = list(batches(parts, tokens=100, positions=8))
    assert [[part.owner for part in group] for group in groups] == [[0, 1, 2, 3], [4], [5]]


def test_what_has_no_entropy_is_refused(base_model: str) -> None:
    measure = Entropies(policy(base_model), HOT)
    with pytest.raises(UserError, match=r"base: completions without tokens have no entropy; set sampling.entropy to"):
        measure([([1, 2], [])])
    measure.model.lm_head.weight.data[3] = float("nan")
    with pytest.raises(UserError, match=r"base: the model's entropies are not finite"):
        measure(sequences([(3, 4)], 200))


def test_no_more_logits_than_fit(base_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(entropy.LOGITS, "cpu", 1)
    assert Entropies(policy(base_model), HOT).positions == 1
