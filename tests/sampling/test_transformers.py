"""Samples depend on their seeds and on nothing else; tokens, finish reasons and entropies are what they say."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from maxk import sampling
from maxk.config import Config, Sampling
from maxk.records import Policy, Problem, Test
from maxk.sampling import Completion, Request
from maxk.sampling.transformers import TransformersBackend

CONFIG = Sampling(n=8, chunk=4, max_tokens=20, batch_sequences=64)
PROBLEMS = [
    Problem(f"p/{i}", "p", "test", statement, [Test("1", "1")])
    for i, statement in enumerate(["sort up, total", "double, count all distinct values", "halve, show"])
]
PROMPTS = [f"{problem.statement}\n" for problem in PROBLEMS]


def drawn(base_model: str, config: Sampling, requests: list[Request]) -> dict[tuple[str, int], list[Completion]]:
    backend = TransformersBackend(Policy("base", "Base model", base_model), config)
    return {(r.problem_id, r.first): completions for r, completions in backend.sample(requests)}


@pytest.fixture(scope="module")
def requests() -> list[Request]:
    return sampling.requests(PROBLEMS, PROMPTS, "base", CONFIG)


def test_every_problem_gets_n_completions(requests: list[Request]) -> None:
    count: Counter[str] = Counter()
    for request in requests:
        count[request.problem_id] += request.count
    assert count == {problem.problem_id: 8 for problem in PROBLEMS}
    assert len({request.seed for request in requests}) == len(requests)


def test_a_chunk_that_does_not_divide_n_ends_short() -> None:
    uneven = sampling.requests(PROBLEMS[:1], PROMPTS[:1], "base", CONFIG.model_copy(update={"n": 10}))
    assert [(r.first, r.count) for r in uneven] == [(0, 4), (4, 4), (8, 2)]


def test_seeds_are_the_same_on_every_machine() -> None:
    assert sampling.seed_of(0, "base", "p/0", 0) == 776936947063246675
    assert sampling.seed_of(0, "base", "p/0", 0) != sampling.seed_of(0, "base", "p/00", "")


def test_samples_do_not_depend_on_batches_or_company(base_model: str, requests: list[Request]) -> None:
    together = drawn(base_model, CONFIG, requests)
    for batch_sequences in (1, 8):
        alone = drawn(base_model, CONFIG.model_copy(update={"batch_sequences": batch_sequences}), requests)
        assert {key: [c.text for c in one] for key, one in alone.items()} == {
            key: [c.text for c in one] for key, one in together.items()
        }
    half = drawn(base_model, CONFIG, requests[2:4])
    assert [c.text for c in half["p/1", 0]] == [c.text for c in together["p/1", 0]]


def test_another_seed_gives_other_samples(base_model: str, requests: list[Request]) -> None:
    other = sampling.requests(PROBLEMS, PROMPTS, "base", CONFIG.model_copy(update={"seed": 1}))
    one, two = drawn(base_model, CONFIG, requests), drawn(base_model, CONFIG, other)
    assert [c.text for c in one["p/0", 0]] != [c.text for c in two["p/0", 0]]
    assert [c.text for c in one["p/0", 0]] != [c.text for c in one["p/0", 4]]


def test_finish_reasons_and_token_counts(base_model: str, requests: list[Request]) -> None:
    tokenizer = AutoTokenizer.from_pretrained(base_model)
    short = CONFIG.model_copy(update={"max_tokens": 5})
    for config in (CONFIG, short):
        for completions in drawn(base_model, config, requests).values():
            for completion in completions:
                assert completion.finish_reason in ("stop", "length")
                text_tokens = len(tokenizer(completion.text, add_special_tokens=False)["input_ids"])
                assert completion.n_tokens <= config.max_tokens
                if completion.finish_reason == "stop":
                    assert completion.n_tokens >= min(text_tokens, 1)
                else:
                    assert completion.n_tokens == config.max_tokens
    everything = [c for one in drawn(base_model, short, requests).values() for c in one]
    assert any(c.finish_reason == "length" for c in everything)


@torch.no_grad()
def test_entropy_is_the_mean_over_the_completions_tokens(base_model: str, requests: list[Request]) -> None:
    """Recomputed from a plain forward pass over one completion."""
    tokenizer, model = AutoTokenizer.from_pretrained(base_model), AutoModelForCausalLM.from_pretrained(base_model)
    backend = TransformersBackend(Policy("base", "Base model", base_model), CONFIG)
    batch = requests[:1]
    tokens: list[torch.Tensor] = []
    generate = backend.model.generate
    backend.model.generate = lambda **kwargs: tokens.append(generate(**kwargs)) or tokens[-1]
    completions = backend._generate(batch)
    width = len(tokenizer(batch[0].prompt)["input_ids"])
    for row, completion in zip(tokens[0], completions, strict=True):
        kept = row[: width + completion.n_tokens]
        log_p = model(kept[None]).logits[0, width - 1 : -1].log_softmax(-1)
        expected = -(log_p.exp() * log_p).sum(-1).mean().item()
        assert completion.entropy == pytest.approx(expected, rel=1e-4)


def test_entropy_is_null_where_it_was_not_asked_for(base_model: str, requests: list[Request]) -> None:
    without = drawn(base_model, CONFIG.model_copy(update={"entropy": False}), requests[:1])
    assert [c.entropy for one in without.values() for c in one] == [None] * 4


def test_first_tokens_follow_the_models_distribution(base_model: str) -> None:
    """The race samples exactly: a chi-squared test of first tokens, at temperature and in the nucleus."""
    from scipy.stats import chisquare

    tokenizer, model = AutoTokenizer.from_pretrained(base_model), AutoModelForCausalLM.from_pretrained(base_model)
    config = Sampling(n=6000, chunk=6000, max_tokens=1, temperature=1.5, top_p=0.9)
    backend = TransformersBackend(Policy("base", "Base model", base_model), config)
    tokens: list[torch.Tensor] = []
    generate = backend.model.generate
    backend.model.generate = lambda **kwargs: tokens.append(generate(**kwargs)) or tokens[-1]
    backend._generate([Request("p", PROMPTS[0], 0, 6000, seed=7)])
    with torch.no_grad():
        ids = tokenizer(PROMPTS[0], return_tensors="pt")["input_ids"]
        p = (model(ids).logits[0, -1] / 1.5).softmax(-1)
    order = p.argsort(descending=True)
    nucleus = order[: int((p[order].cumsum(0) < 0.9).sum()) + 1]
    q = p[nucleus] / p[nucleus].sum()
    counts = torch.bincount(tokens[0][:, -1], minlength=len(p))
    assert counts.sum() == counts[nucleus].sum() == 6000
    often = q * 6000 >= 5
    observed = [*counts[nucleus][often].tolist(), counts[nucleus][~often].sum().item()]
    expected = [*(q[often] * 6000).tolist(), (q[~often] * 6000).sum().item()]
    if expected[-1] == 0:
        observed, expected = observed[:-1], expected[:-1]
    assert len(observed) > 2
    scale = sum(observed) / sum(expected)  # float32 sums
    assert chisquare(observed, [e * scale for e in expected]).pvalue > 1e-4


def test_requests_are_the_configs(seconds: Config) -> None:
    """The seconds-scale experiment draws two chunks a problem."""
    assert math.ceil(seconds.sampling.n / seconds.sampling.chunk) == 2
