"""Generation by shared prefixes draws from the distribution of the model, as transformers' own loop does."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from scipy import stats
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, LogitsProcessorList, SuppressTokensLogitsProcessor

from maxk.sampling import prefixes

VOCABULARY, END, PAD = 6, 1, 0
PROMPTS = [[2, 3, 4], [5]]
SAMPLES, LENGTH = 20_000, 3


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    ids = {"pad_token_id": PAD, "eos_token_id": END, "bos_token_id": None}
    return LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, **shape, **ids, initializer_range=0.5)).eval()


def drawn(model: LlamaForCausalLM, **options: Any) -> Tensor:
    """Completions [samples, length] of the two prompts in turn, PAD after the end."""
    ids, mask = prefixes.padded(PROMPTS * (SAMPLES // 2), torch.device("cpu"))
    torch.manual_seed(1)
    found = model.generate(
        input_ids=ids, attention_mask=mask, do_sample=True, max_new_tokens=LENGTH,
        **{"top_k": 0, "custom_generate": prefixes.generate, **options},
    )  # fmt: skip
    return found[:, ids.shape[1] :]


def probabilities(model: LlamaForCausalLM, prompt: list[int], temperature: float) -> dict[tuple[int, ...], float]:
    """Of every completion, by enumeration: one row for each, without cache or padding."""
    found: dict[tuple[int, ...], float] = {}
    for tokens in product(range(VOCABULARY), repeat=LENGTH):
        ended = tokens.index(END) + 1 if END in tokens else LENGTH
        with torch.no_grad():
            logits = model(torch.tensor([[*prompt, *tokens]])).logits[0, len(prompt) - 1 : -1]
        p = (logits / temperature).softmax(-1)
        found[tokens[:ended]] = float(torch.stack([p[i, tokens[i]] for i in range(ended)]).prod())
    return found


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_completions_follow_the_models_distribution(temperature: float, model: LlamaForCausalLM) -> None:
    rows = drawn(model, temperature=temperature).tolist()
    for first, prompt in enumerate(PROMPTS):
        expected = probabilities(model, prompt, temperature)
        assert sum(expected.values()) == pytest.approx(1)
        ends = [row.index(END) + 1 if END in row else LENGTH for row in rows[first::2]]
        seen = [tuple(row[:end]) for row, end in zip(rows[first::2], ends, strict=True)]
        # Completions that are expected five times or more, and all others together.
        frequent = [c for c, p in expected.items() if p * len(seen) >= 5]
        counts = [seen.count(c) for c in frequent]
        means = [expected[c] * len(seen) for c in frequent]
        rest = len(seen) - sum(counts), len(seen) - sum(means)
        assert len(frequent) > 20
        assert stats.chisquare([*counts, rest[0]], [*means, rest[1]]).pvalue > 0.01


def test_nothing_but_padding_follows_an_end(model: LlamaForCausalLM) -> None:
    rows = drawn(model)
    after = (rows == END).cumsum(1) - (rows == END).long() > 0
    assert after.any()
    assert (rows[after] == PAD).all()


def test_a_step_computes_distinct_prefixes_alone(model: LlamaForCausalLM) -> None:
    seen: list[tuple[int, ...]] = []
    hook = model.model.register_forward_pre_hook(
        lambda _, __, inputs: seen.append(tuple(inputs["input_ids"].shape)), with_kwargs=True
    )
    try:
        rows = drawn(model)
    finally:
        hook.remove()
    assert seen[0] == (2, 3)
    distinct = {(i % 2, row[0]) for i, row in enumerate(rows.tolist()) if row[0] != END}
    assert seen[1] == (len(distinct), 1)


def test_every_logits_processor_is_applied(model: LlamaForCausalLM) -> None:
    """A penalty on repetitions needs each row's tokens. With one candidate, transformers' own loop draws the same."""
    options = {"repetition_penalty": 5.0, "top_k": 1}
    found, expected = drawn(model, **options), drawn(model, **options, custom_generate=None)
    assert torch.equal(found, expected)
    assert not torch.equal(found, drawn(model, top_k=1))


def test_no_uniform_number_is_so_small_that_it_draws_an_impossible_token(
    model: LlamaForCausalLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch.rand can return 0. The smallest number must draw the first token that is possible, in every row."""
    monkeypatch.setattr(torch, "rand", lambda *shape, **options: torch.zeros(*shape, **options))
    impossible = LogitsProcessorList([SuppressTokensLogitsProcessor([PAD, END])])
    assert (drawn(model, logits_processor=impossible) == END + 1).all()
