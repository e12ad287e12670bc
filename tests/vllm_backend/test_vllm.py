"""The vLLM backend against what transformers computes from the same folder: `make test-vllm`.

One engine serves all tests: starting it takes most of their time.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from transformers import AutoModelForCausalLM, AutoTokenizer, TopPLogitsWarper

from maxk import cli, sampling
from maxk import config as configuration
from maxk.artifacts import files
from maxk.artifacts.records import SAMPLE, Policy, Problem, Test
from maxk.config import Config, Sampling, Vllm
from maxk.errors import UserError
from maxk.sampling import Completion, Request
from maxk.sampling.entropy import Entropies
from maxk.sampling.transformers import TransformersBackend
from maxk.sampling.vllm import TOLERANCE, VllmBackend

ENGINE = Vllm(kv_cache_gb=0.3, enforce_eager=True, max_num_seqs=128)
CONFIG = Sampling(backend="vllm", n=8, chunk=4, max_tokens=20, vllm=ENGINE)
PROBLEMS = [
    Problem(f"p/{i}", "p", "test", statement, [Test("1", "1")])
    for i, statement in enumerate(["sort up, total", "double, count all distinct values", "halve, show"])
]
PROMPTS = [f"{problem.statement}\n" for problem in PROBLEMS]
REQUESTS = sampling.requests(PROBLEMS, PROMPTS, "base", CONFIG)


@pytest.fixture(scope="module")
def engine(policies: list[Policy]) -> Iterator[VllmBackend]:
    made = VllmBackend(policies[0], CONFIG.model_copy(update={"stop": ("never",)}))  # with a tokenizer
    made.config = CONFIG
    yield made
    made.close()
    assert not multiprocessing.active_children()


@pytest.fixture
def backend(engine: VllmBackend) -> Iterator[VllmBackend]:
    """The engine; a test may change its request settings and the policy it claims to be."""
    config, policy = engine.config, engine.policy
    yield engine
    engine.config, engine.policy = config, policy


@pytest.fixture(scope="module")
def model(policies: list[Policy]) -> Any:
    return AutoModelForCausalLM.from_pretrained(policies[0].model, dtype="float32").eval()


@pytest.fixture(scope="module")
def tokenizer(policies: list[Policy]) -> Any:
    return AutoTokenizer.from_pretrained(policies[0].model)


def drawn(backend: sampling.Backend, requests: list[Request]) -> dict[tuple[str, int], list[Completion]]:
    return {(r.problem_id, r.first): completions for done in backend.sample(requests) for r, completions in done}


@torch.no_grad()
def log_p(model: Any, ids: list[int]) -> torch.Tensor:
    """Log-probabilities of the next token at every position."""
    return model(torch.tensor([ids])).logits[0].log_softmax(-1)


def test_counts_are_the_transformers_backends(backend: VllmBackend, policies: list[Policy]) -> None:
    ours, theirs = drawn(backend, REQUESTS), drawn(TransformersBackend(policies[0], CONFIG), REQUESTS)
    assert {key: len(one) for key, one in ours.items()} == {(r.problem_id, r.first): r.count for r in REQUESTS}
    assert theirs.keys() == ours.keys()
    assert backend.facts.keys() > TransformersBackend(policies[0], CONFIG).facts.keys()


def test_an_empty_shard_is_no_work(backend: VllmBackend) -> None:
    assert drawn(backend, []) == {}


def test_tokens_finish_reasons_and_text(backend: VllmBackend, tokenizer: Any) -> None:
    everything: list[Completion] = []
    for max_tokens in (20, 4):
        backend.config = CONFIG.model_copy(update={"max_tokens": max_tokens})
        for completion in (c for one in drawn(backend, REQUESTS).values() for c in one):
            everything.append(completion)
            needed = len(tokenizer(completion.text, add_special_tokens=False)["input_ids"])
            if completion.finish_reason == "stop":
                assert needed + 1 <= len(completion.tokens) <= max_tokens
            else:
                assert len(completion.tokens) == max_tokens
            assert "<" not in completion.text  # no special token
    assert {c.finish_reason for c in everything} == {"stop", "length"}


def test_a_stop_string_ends_and_is_part_of_the_text(backend: VllmBackend) -> None:
    whole = drawn(backend, REQUESTS)
    backend.config = CONFIG.model_copy(update={"stop": ("\n",)})
    stopped = drawn(backend, REQUESTS)
    pairs = [pair for key in whole for pair in zip(whole[key], stopped[key], strict=True)]
    for uncut, cut in pairs:
        assert ("\n" in uncut.text) == ("\n" in cut.text) == (cut.finish_reason == "stop_string")
        assert uncut.text.startswith(cut.text)
        assert cut.text.count("\n") <= 1
    assert sum(len(cut.tokens) for _, cut in pairs) < sum(len(uncut.tokens) for uncut, _ in pairs)


def test_seeds_repeat_and_company_does_not_matter(backend: VllmBackend) -> None:
    first = drawn(backend, REQUESTS)
    assert drawn(backend, REQUESTS[::-1]) == first
    assert drawn(backend, REQUESTS[2:3])["p/1", 0] == first["p/1", 0]
    assert [c.text for c in first["p/0", 0]] != [c.text for c in first["p/0", 4]]
    other = sampling.requests(PROBLEMS, PROMPTS, "base", CONFIG.model_copy(update={"seed": 1}))
    assert [c.text for c in drawn(backend, other)["p/0", 0]] != [c.text for c in first["p/0", 0]]


def test_a_sample_is_the_same_whichever_request_draws_it(backend: VllmBackend) -> None:
    first = drawn(backend, REQUESTS)
    whole = [*first["p/0", 0], *first["p/0", 4]]
    [[(_, tail)]] = backend.sample([dataclasses.replace(REQUESTS[0], first=3, count=5)])
    assert tail == whole[3:]


def test_more_samples_than_the_engine_runs_at_once(backend: VllmBackend) -> None:
    many = [Request(f"p/{i}", PROMPTS[0], 0, 60, seed=sampling.seed_of(i)) for i in range(10)]
    assert sum(len(one) for one in drawn(backend, many).values()) == 600 > 4 * ENGINE.max_num_seqs


def test_more_prompt_tokens_than_one_step_reads(backend: VllmBackend) -> None:
    """Seeded samples on the CPU need whole prompts: vLLM fails where it cuts one."""
    long = [Request(f"p/{i}", "sort up, total\n" * (30 + i), 0, 4, seed=sampling.seed_of(i)) for i in range(40)]
    length = sum(map(len, sampling.encode(long, backend.tokenizer, CONFIG, None).values()))
    assert 4 * length > 2 * backend.engine.vllm_config.scheduler_config.max_num_batched_tokens
    assert sum(len(one) for one in drawn(backend, long).values()) == 160


def test_first_tokens_follow_the_distribution_of_transformers(backend: VllmBackend, model: Any, tokenizer: Any) -> None:
    n = 4000
    backend.config = CONFIG.model_copy(update={"max_tokens": 1, "temperature": 1.5, "top_p": 0.9})
    ids = tokenizer(PROMPTS[0])["input_ids"]
    p = TopPLogitsWarper(0.9)(None, log_p(model, ids)[-1:] / 1.5).softmax(-1)[0]
    jobs = [("first tokens", ids, backend._parameters(Request("p", PROMPTS[0], 0, n, seed=7)))]
    [output] = backend._run(iter(jobs))
    counts = torch.bincount(torch.tensor([o.token_ids[0] for o in output.outputs]), minlength=len(p))
    assert counts.sum() == n
    assert counts[p == 0].sum() <= 2  # where rounding puts the edge of the nucleus
    often = p * n >= 5
    assert often.sum() > 2
    observed, expected = counts[often].double(), p[often].double() * n
    assert chisquare(observed, expected * observed.sum() / expected.sum()).pvalue > 1e-4


def test_low_temperature_is_greedy(backend: VllmBackend, model: Any, tokenizer: Any) -> None:
    """At temperature 0.01 a token 0.3 nats below the most likely one is drawn once in 10^13; at 1 it is common."""
    ids = tokenizer(PROMPTS[1])["input_ids"]

    def furthest_behind(temperature: float) -> float:
        backend.config = CONFIG.model_copy(update={"temperature": temperature})
        [output] = backend._run(iter([("greedy", ids, backend._parameters(REQUESTS[2]))]))
        return max(behind(list(one.token_ids)) for one in output.outputs)

    def behind(tokens: list[int]) -> float:
        at = log_p(model, ids + tokens)[len(ids) - 1 : -1]
        return float((at.amax(-1) - at.gather(1, torch.tensor(tokens)[:, None])[:, 0]).max())

    assert furthest_behind(0.01) < 0.3 < furthest_behind(1.0)


def test_tokens_are_those_whose_entropies_are_measured(
    backend: VllmBackend, policies: list[Policy], model: Any
) -> None:
    """Stopped, ended and cut samples, by the pass over finished samples."""
    backend.config = CONFIG.model_copy(update={"stop": ("max",), "max_tokens": 12})
    found = [(r.prompt, c) for done in backend.sample(REQUESTS) for r, completions in done for c in completions]
    given = [(sampling.prompt_ids(prompt, backend.tokenizer), completion.tokens) for prompt, completion in found]
    for (prompt, completion), entropy in zip(given, Entropies(policies[0], CONFIG)(given), strict=True):
        at = log_p(model, [*prompt, *completion])[len(prompt) - 1 : -1].double()
        assert entropy == pytest.approx(float(-(at.exp() * at).sum(-1).mean()), rel=1e-4)
    for _, completion in found:
        text = backend.tokenizer.decode(completion.tokens, skip_special_tokens=True)
        assert text == completion.text


def test_swapped_weights_are_caught(backend: VllmBackend, policies: list[Policy], tokenizer: Any) -> None:
    """The engine holds the first policy's weights; other weights of the same shape and tokenizer are detected."""
    own, other = (backend.weights_gap(policy, tokenizer(PROMPTS[0])["input_ids"]) for policy in policies)
    assert own < TOLERANCE["float32"] / 10
    assert other > 100 * TOLERANCE["float32"]
    backend.policy = policies[1]
    with pytest.raises(UserError, match="does not sample from this policy"):
        drawn(backend, REQUESTS[:1])


def test_a_prompt_too_long_for_the_model_is_named(backend: VllmBackend) -> None:
    with pytest.raises(UserError, match=r"p/long: a prompt of \d+ tokens and sampling.max_tokens=20 exceed the 512"):
        drawn(backend, [Request("p/long", "sort up, total\n" * 200, 0, 4, seed=1)])


def test_an_unknown_finish_is_an_error(backend: VllmBackend) -> None:
    class Aborted:
        finish_reason, token_ids = "abort", ()

    with pytest.raises(UserError, match="aborted a completion of base: abort"):
        backend._completions([Aborted()])


def test_the_stage_writes_what_the_pipeline_reads(
    backend: VllmBackend, seconds: Config, policies: list[Policy], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All stages up to the samples, through the command line, with the engine that is already running."""

    def running(policy: Policy, config: Sampling) -> VllmBackend:
        backend.policy, backend.config = policy, config
        return backend

    monkeypatch.setattr(sampling, "BACKENDS", {"vllm": running})
    monkeypatch.setattr(backend, "close", lambda: None)  # other tests go on with it
    monkeypatch.chdir(tmp_path)
    changes = {
        "base": {"source": "hub", "model": policies[0].model},
        "sampling": {"backend": "vllm", "shards": 1, "vllm": ENGINE.model_dump()},
        "tracking": {"enabled": False},
    }
    config = configuration.parse(configuration.overlay(seconds.model_dump(mode="json"), changes))
    assert cli.main(["configure", config.model_dump_json()]) == 0
    for stage in ("prepare pocket-contests", "prepare pocket-short", "base", "sample base"):
        assert cli.main([*stage.split(), "--config", config.layout.config]) == 0
    path = config.layout.samples("base", "pocket-contests", 0)
    samples = files.read_table(path, SAMPLE)
    assert samples.num_rows == 3 * config.sampling.n
    assert np.isfinite(samples.column("entropy").to_numpy()).all()
    recorded = files.read_provenance(path).environment
    assert recorded["backend"] == "vllm"
    assert recorded["weights_gap"] < TOLERANCE["float32"]
