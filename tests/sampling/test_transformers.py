"""Samples depend on their seeds and on nothing else; tokens, finish reasons and entropies are what they say."""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any

import pytest
import torch
from scipy.stats import chisquare, kstest
from transformers import AutoTokenizer

from maxk import sampling
from maxk.artifacts.records import Policy, Problem, Test
from maxk.config import Sampling
from maxk.errors import UserError
from maxk.sampling import Completion, Request
from maxk.sampling.prefixes import RESOLUTION, inverse
from maxk.sampling.transformers import TransformersBackend, _uniforms

CONFIG = Sampling(n=8, chunk=4, max_tokens=20, batch_tokens=4096)
PROBLEMS = [
    Problem(f"p/{i}", "p", "test", statement, [Test("1", "1")])
    for i, statement in enumerate(["sort up, total", "double, count all distinct values", "halve, show"])
]
PROMPTS = [f"{problem.statement}\n" for problem in PROBLEMS]


def backend_of(base_model: str, config: Sampling) -> TransformersBackend:
    return TransformersBackend(Policy("base", "Base model", base_model), config)


def ids_of(backend: TransformersBackend, requests: list[Request]) -> dict[str, list[int]]:
    return sampling.encode(requests, backend.tokenizer, backend.config, None)


def drawn(base_model: str, config: Sampling, requests: list[Request]) -> dict[tuple[str, int], list[Completion]]:
    backend = backend_of(base_model, config)
    return {(r.problem_id, r.first): completions for done in backend.sample(requests) for r, completions in done}


def nucleus(p: torch.Tensor, top_p: float) -> torch.Tensor:
    """The fewest likeliest tokens that hold `top_p`, renormalised."""
    order = p.argsort(descending=True)
    kept = order[: int((p[order].cumsum(0) < top_p).sum()) + 1]
    return torch.zeros_like(p).index_put((kept,), p[kept]) / p[kept].sum()


@pytest.fixture(scope="module")
def requests() -> list[Request]:
    return sampling.requests(PROBLEMS, PROMPTS, "base", CONFIG)


def test_every_problem_gets_n_completions(requests: list[Request]) -> None:
    count: Counter[str] = Counter()
    for request in requests:
        count[request.problem_id] += request.count
    assert count == {problem.problem_id: 8 for problem in PROBLEMS}
    assert len({request.seed for request in requests}) == len(PROBLEMS)


def test_a_chunk_that_does_not_divide_n_ends_short() -> None:
    uneven = sampling.requests(PROBLEMS[:1], PROMPTS[:1], "base", CONFIG.model_copy(update={"n": 10}))
    assert [(r.first, r.count) for r in uneven] == [(0, 4), (4, 4), (8, 2)]


def test_seeds_are_the_same_on_every_machine() -> None:
    assert sampling.seed_of(0, "base", "p/0", 0) == 776936947063246675
    assert sampling.seed_of(0, "base", "p/0", 0) != sampling.seed_of(0, "base", "p/00", "")


def test_samples_do_not_depend_on_batches_or_company(base_model: str, requests: list[Request]) -> None:
    together = drawn(base_model, CONFIG, requests)
    for batch_tokens in (1, 300):
        alone = drawn(base_model, CONFIG.model_copy(update={"batch_tokens": batch_tokens}), requests)
        assert {key: [c.text for c in one] for key, one in alone.items()} == {
            key: [c.text for c in one] for key, one in together.items()
        }
    half = drawn(base_model, CONFIG, requests[2:4])
    assert [c.text for c in half["p/1", 0]] == [c.text for c in together["p/1", 0]]


def test_a_sample_is_the_same_whichever_request_draws_it(base_model: str, requests: list[Request]) -> None:
    whole = [c.text for first in (0, 4) for c in drawn(base_model, CONFIG, requests)["p/0", first]]
    for chunk, n in ((8, 8), (3, 8), (8, 5)):
        config = CONFIG.model_copy(update={"chunk": chunk, "n": n})
        parts = drawn(base_model, config, sampling.requests(PROBLEMS[:1], PROMPTS[:1], "base", config))
        assert [c.text for key in sorted(parts) for c in parts[key]] == whole[:n]


def test_only_what_is_missing_is_requested() -> None:
    drawn = {"p/0": range(8), "p/1": {0, 1, 2, 3, 5}}
    wanted = sampling.requests(PROBLEMS, PROMPTS, "base", CONFIG, drawn)
    assert [(r.problem_id, r.first, r.count) for r in wanted] == [("p/1", 4, 4), ("p/2", 0, 4), ("p/2", 4, 4)]


def test_another_seed_gives_other_samples(base_model: str, requests: list[Request]) -> None:
    other = sampling.requests(PROBLEMS, PROMPTS, "base", CONFIG.model_copy(update={"seed": 1}))
    one, two = drawn(base_model, CONFIG, requests), drawn(base_model, CONFIG, other)
    assert [c.text for c in one["p/0", 0]] != [c.text for c in two["p/0", 0]]
    assert [c.text for c in one["p/0", 0]] != [c.text for c in one["p/0", 4]]


def test_batches_fall_in_length_and_keep_the_budget(base_model: str, requests: list[Request]) -> None:
    backend = backend_of(base_model, CONFIG.model_copy(update={"batch_tokens": 300}))
    prompts = ids_of(backend, requests)
    batches = list(backend.batches(requests, prompts))
    assert sorted(r.seed for batch in batches for r in batch) == sorted(r.seed for r in requests)
    order = [(r.first, -len(prompts[r.prompt])) for batch in batches for r in batch]
    assert order == sorted(order)
    assert all(len({r.first for r in batch}) == 1 for batch in batches)
    assert len(batches) > 2
    for batch in batches:
        assert len(batch) == 1 or sum(r.count * (len(prompts[r.prompt]) + CONFIG.max_tokens) for r in batch) <= 300


@torch.no_grad()
def test_every_token_is_what_a_plain_forward_pass_gives(base_model: str, requests: list[Request]) -> None:
    """Merged rows, cache, padding and early ends against one whole forward pass a token."""
    backend = backend_of(base_model, CONFIG.model_copy(update={"temperature": 1.3, "top_p": 0.95}))
    tokens = backend.generate(requests, ids_of(backend, requests))
    samples = [(r, i) for r in requests for i in range(r.count)]
    for (request, i), got in zip(samples, tokens.tolist(), strict=True):
        ids = backend.tokenizer(request.prompt)["input_ids"]
        expected = []
        for u in _uniforms(request, CONFIG.max_tokens)[i].tolist():
            p = nucleus((backend.model(torch.tensor([ids])).logits[0, -1] / 1.3).softmax(-1), 0.95)
            expected.append(int((p.cumsum(0, dtype=torch.float64) < u).sum()))
            ids.append(expected[-1])
            if expected[-1] in backend.stop_tokens:
                break
        assert [token for token in got if token >= 0] == expected


def test_equal_prefixes_are_computed_once(base_model: str, requests: list[Request]) -> None:
    backend = backend_of(base_model, CONFIG)
    forward, rows = backend.model.forward, []

    @functools.wraps(forward)
    def counted(**kwargs: Any) -> Any:
        rows.append(len(kwargs["input_ids"]))
        return forward(**kwargs)

    backend.model.forward = counted
    tokens = backend.generate(requests, ids_of(backend, requests))
    owner = [r.prompt for r in requests for _ in range(r.count)]
    for step, width in enumerate(rows):
        going_on = [(o, *t[:step]) for o, t in zip(owner, tokens.tolist(), strict=True)]
        ended = {-1, *backend.stop_tokens}
        assert width == len({path for path in going_on if not ended & set(path[1:])})
    assert rows[0] == 3  # prompts, of six requests and 24 samples
    assert len(rows) <= CONFIG.max_tokens


def test_finish_reasons_and_token_counts(base_model: str, requests: list[Request]) -> None:
    tokenizer = AutoTokenizer.from_pretrained(base_model)
    everything: list[Completion] = []
    for max_tokens in (20, 5):
        config = CONFIG.model_copy(update={"max_tokens": max_tokens})
        for completion in (c for one in drawn(base_model, config, requests).values() for c in one):
            everything.append(completion)
            if completion.finish_reason == "length":
                assert len(completion.tokens) == max_tokens
            else:
                assert 1 <= len(completion.tokens) <= max_tokens
                # ids that spell the text may be more than the tokenizer would need, and the end is one more
                needed = len(tokenizer(completion.text, add_special_tokens=False)["input_ids"])
                assert len(completion.tokens) >= needed + 1
    assert {c.finish_reason for c in everything} == {"stop", "length"}


def test_a_stop_token_ends_and_is_no_part_of_the_text(base_model: str, requests: list[Request]) -> None:
    line = AutoTokenizer.from_pretrained(base_model).convert_ids_to_tokens(
        AutoTokenizer.from_pretrained(base_model)("\n")["input_ids"]
    )
    stopped = drawn(base_model, CONFIG.model_copy(update={"stop_tokens": tuple(line)}), requests)
    whole = drawn(base_model, CONFIG, requests)
    for key, completions in stopped.items():
        for completion, uncut in zip(completions, whole[key], strict=True):
            assert completion.text == uncut.text.split("\n")[0]
    with pytest.raises(UserError, match="'<nowhere>' is not one token"):
        drawn(base_model, CONFIG.model_copy(update={"stop_tokens": ("<nowhere>",)}), requests)


def test_a_stop_string_ends_and_is_part_of_the_text(base_model: str, requests: list[Request]) -> None:
    """Also one that spans tokens, and one that a token goes on after: the token that completes it is the last."""
    whole = backend_of(base_model, CONFIG)
    rows = [[t for t in row if t >= 0] for row in whole.generate(requests, ids_of(whole, requests)).tolist()]
    texts = [whole.tokenizer.decode(row, skip_special_tokens=True) for row in rows]
    reasons: set[str] = set()
    for stop in (("\n",), ("pri", "nt(x")):
        expected = []
        for row, text in zip(rows, texts, strict=True):
            lengths = range(1, len(row) + 1)
            decoded = [whole.tokenizer.decode(row[:length], skip_special_tokens=True) for length in lengths]
            expected.append(next((one for one in decoded if any(s in one for s in stop)), text))
        got = [c for one in drawn(base_model, CONFIG.model_copy(update={"stop": stop}), requests).values() for c in one]
        assert sorted(c.text for c in got) == sorted(expected)
        assert all(any(s in c.text for s in stop) == (c.finish_reason == "stop_string") for c in got)
        reasons |= {c.finish_reason for c in got}
    assert "stop_string" in reasons


def test_uniform_numbers_are_fine_enough_for_many_rows() -> None:
    """Laid end to end with the rows' numbers, they must keep their own digits: float32 would lose them."""
    u = _uniforms(Request("p", "", 0, 1000, seed=3), 100)
    assert u.dtype == torch.float64
    assert ((u > 0) & (u < 1)).all()
    assert ((u + 2**20) - 2**20 == u).all()
    assert kstest(u.flatten().numpy(), "uniform").pvalue > 1e-4


def test_impossible_tokens_are_never_drawn() -> None:
    """Tokens without probability at both ends and in the middle, at the extreme uniform numbers, in any row."""
    p = torch.tensor([[0.0, 0.25, 0.0, 0.75, 0.0], [1.0, 0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 1.0]])
    p = p.repeat(400_000, 1)
    extremes = torch.tensor([0.5, RESOLUTION - 0.5], dtype=torch.float64) / RESOLUTION
    row = torch.arange(len(p)).repeat_interleave(2)
    drawn = inverse(p, row, extremes.repeat(len(p))).view(-1, 3, 2)
    assert (drawn == torch.tensor([[1, 3], [0, 0], [4, 4]])).all()


def test_a_row_without_probabilities_is_refused() -> None:
    p = torch.tensor([[0.5, 0.5], [torch.nan, torch.nan], [0.5, 0.5]])
    with pytest.raises(UserError, match="logits are not finite"):
        inverse(p, torch.tensor([0, 2]), torch.tensor([0.3, 0.7], dtype=torch.float64))


@torch.no_grad()
def test_first_tokens_follow_the_models_distribution(base_model: str) -> None:
    """Sampling is exact: a chi-squared test of first tokens, at temperature and in the nucleus."""
    config = Sampling(n=6000, chunk=6000, max_tokens=1, temperature=1.5, top_p=0.9)
    backend = backend_of(base_model, config)
    request = Request("p", PROMPTS[0], 0, 6000, seed=7)
    tokens = backend.generate([request], ids_of(backend, [request]))
    ids = backend.tokenizer(PROMPTS[0], return_tensors="pt")["input_ids"]
    p = nucleus((backend.model(ids).logits[0, -1] / 1.5).softmax(-1), 0.9)
    counts = torch.bincount(tokens[:, 0], minlength=len(p))
    assert counts.sum() == counts[p > 0].sum() == 6000
    often = p * 6000 >= 5
    observed, expected = counts[often].double(), p[often].double() * 6000
    assert len(observed) > 2
    assert chisquare(observed, expected * observed.sum() / expected.sum()).pvalue > 1e-4
