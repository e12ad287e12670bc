"""A backend against a bare loop over the same library: the same requests, model and machine.

    python benchmarks/sampling.py                                        # a base model of seconds, made here
    python benchmarks/sampling.py --random                               # 13 million random weights
    python benchmarks/sampling.py --model results/policies/base/model    # the default experiment's base model
    python benchmarks/sampling.py --model PATH --problems 16 --backend vllm       # on a GPU
    python benchmarks/sampling.py --model PATH --problems 16 --backend vllm --config config/mini.yaml      # MBPP

The bare loop does the minimum. Over `generate` it repeats every prompt, samples from the global random state and
decodes, in the backend's batches. Over vLLM's engine it submits all requests at once, with the same stop strings and
without seeds. The backend draws each sample with its own seed; a third loop, bare but seeded, says what seeds cost.
All use an experiment's prompts and settings and take turns. The script prints tokens per second, on a CPU also tokens
per CPU-second, and the median of the turns' ratios of the backend to the bare loop. It exits with 1 if the backend is
slower than 0.9 × the loop (in CPU-seconds where there is no GPU).

None of them measures entropies. One more row does: for transformers, in turn with the others, the backend that measures
as it draws; for vLLM the pass over the samples just drawn, after the backend's memory is freed as `maxk sample` does.
The script prints the time that entropies add to drawing. Nothing is read from a network, except by datasets that a
config names.

`--random` is the worst case for the transformers backend: one sample per prompt, a vocabulary of 32,768 whose samples
share no token, and no completion that ends early. The backend gains nothing there, so this measures its overhead.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from maxk import config as configuration
from maxk import data, sampling
from maxk.artifacts import environment, models
from maxk.artifacts.records import Policy, Problem
from maxk.config import Config, Sampling
from maxk.data import prompts
from maxk.data.pocket import corpus
from maxk.sampling import Completion, Request
from maxk.training import pretrain

ROOT = Path(__file__).parent.parent
TARGET = 0.9
UNITS = {"wall": "tokens a second", "cpu": "tokens a CPU-second, one thread"}
RANDOM = {"hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 6, "num_attention_heads": 8} | {
    "vocab_size": 32_768,
    "tie_word_embeddings": True,
}


def seconds_scale() -> Config:
    """The experiment of seconds, whose base model is made."""
    defaults = configuration.read_yaml(ROOT / "config/config.yaml")
    return configuration.parse(
        configuration.overlay(defaults, configuration.read_yaml(ROOT / "tests/configs/seconds.yaml"))
    )


def made(folder: Path) -> str:
    """A trained base model of two small layers."""
    config = seconds_scale()
    pretrain.pretrain(config.base, config.prompt, folder / "model")
    return str(folder / "model")


def randomised(folder: Path) -> str:
    """A decoder of random weights, and the tokenizer that `made` would have; no text stands for most of its tokens."""
    torch.manual_seed(0)
    pairs = corpus(seconds_scale().base.corpus, seed=0)
    tokenizer = pretrain.learn_tokenizer(pairs, seconds_scale().base.architecture.vocabulary)
    ids = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id, "bos_token_id": None}
    LlamaForCausalLM(LlamaConfig(**RANDOM, **ids)).save_pretrained(folder / "random")
    tokenizer.save_pretrained(folder / "random")
    return str(folder / "random")


def requests_of(config: Config, model: str, count: int) -> list[Request]:
    """Requests for a few problems of every evaluated dataset."""
    problems = [problem for name in config.evaluated for problem in problems_of(config, name)]
    some = problems[:: max(1, len(problems) // count)][:count]
    tokenizer = models.tokenizer(model, None)
    texts = [prompts.render(p.statement, config.prompt, tokenizer) for p in some]
    return sampling.requests(some, texts, "base", config.sampling)


def problems_of(config: Config, name: str) -> list[Problem]:
    """A dataset's test problems; their own solutions are not tried."""
    dataset = config.datasets[name]
    if hasattr(dataset, "check_solutions"):
        dataset = dataset.model_copy(update={"check_solutions": 0})
    return [problem for problem in data.load(name, dataset)[0] if problem.split == "test"]


def ours(backend: Any, requests: list[Request]) -> list[tuple[Request, Completion]]:
    return [(r, c) for done in backend.sample(requests) for r, completions in done for c in completions]


def tokens_of(drawn: Sequence[tuple[Request, Completion]]) -> int:
    return sum(len(completion.tokens) for _, completion in drawn)


# ------------------------------------------------------------------------------------------------ bare loops
@torch.inference_mode()
def bare_generate(backend: Any, requests: list[Request]) -> int:
    """A loop over `generate` in our batches."""
    tokens = 0
    prompts_of = sampling.encode(requests, backend.tokenizer, backend.config, None)
    for batch in backend.batches(requests, prompts_of):
        repeated = [r.prompt for r in batch for _ in range(r.count)]
        inputs = backend.tokenizer(repeated, return_tensors="pt", padding=True, padding_side="left").to(backend.device)
        output = backend.model.generate(
            **inputs,
            max_new_tokens=backend.config.max_tokens,
            do_sample=True,
            temperature=1.0,
            top_p=1.0,
            top_k=0,
            eos_token_id=backend.stop_tokens,
            pad_token_id=backend.tokenizer.pad_token_id,
        )
        completions = output[:, inputs["input_ids"].shape[1] :]
        backend.tokenizer.batch_decode(completions, skip_special_tokens=True)
        tokens += int((completions != backend.tokenizer.pad_token_id).sum())
    return tokens


def bare_vllm(backend: Any, requests: list[Request], seeded: bool = False) -> int:
    """All requests at once through the same engine, with the same stop tokens and strings."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    prompts_of = sampling.encode(requests, backend.tokenizer, backend.config, None)
    for i, request in enumerate(requests):
        parameters = SamplingParams(
            n=request.count,
            temperature=1.0,
            max_tokens=backend.config.max_tokens,
            stop_token_ids=backend.stop_tokens,
            ignore_eos=True,
            stop=list(backend.config.stop) or None,
            include_stop_str_in_output=True,
            detokenize=bool(backend.config.stop),
            output_kind=RequestOutputKind.FINAL_ONLY,
            seed=request.seed if seeded else None,
        )
        backend.engine.add_request(f"bare{i}", {"prompt_token_ids": prompts_of[request.prompt]}, parameters)
    tokens = 0
    while backend.engine.has_unfinished_requests():
        tokens += sum(len(o.token_ids) for one in backend.engine.step() if one.finished for o in one.outputs)
    return tokens


BARE = {"transformers": bare_generate, "vllm": bare_vllm}


# ------------------------------------------------------------------------------------------------ measuring
class Rates(NamedTuple):
    """Tokens a second of the clock, and a CPU-second of this process."""

    wall: float
    cpu: float


def rates(call: Callable[[], int]) -> Rates:
    wall, cpu = time.perf_counter(), time.process_time()
    tokens = call()
    return Rates(tokens / (time.perf_counter() - wall), tokens / (time.process_time() - cpu))


def backend_of(model: str, chosen: Sampling) -> Any:
    """The backend, without vLLM's comparison of weights on the CPU before every call."""
    backend: Any = sampling.BACKENDS[chosen.backend](Policy("base", "Base model", model), chosen)
    backend.weights_gap = lambda *_: 0.0
    return backend


def entropy_pass(model: str, backend: Any, chosen: Sampling, drawn: list[tuple[Request, Completion]]) -> Rates:
    """The rate of the pass over finished samples: batches of one request, as in the journal of vLLM's samples."""
    from maxk.sampling.entropy import Entropies

    ids = {r.prompt: sampling.prompt_ids(r.prompt, backend.tokenizer) for r, _ in drawn}
    backend.close()
    entropies = Entropies(Policy("base", "Base model", model), chosen)
    batches = [list(group) for _, group in groupby(drawn, key=lambda one: (one[0].problem_id, one[0].first))]

    def measured() -> int:
        for batch in batches:
            entropies([(ids[r.prompt], completion.tokens) for r, completion in batch])
        return tokens_of(drawn)

    entropies([(ids[r.prompt], completion.tokens) for r, completion in batches[0]])  # warms up
    return rates(measured)


def main() -> int:
    parser = argparse.ArgumentParser(description="a backend against a bare loop over the same library")
    parser.add_argument("--config", help="an experiment laid over the default, for its problems and sampling settings")
    parser.add_argument("--model", help="folder of a model; by default one is made, in seconds")
    parser.add_argument("--random", action="store_true", help="random weights, whose samples share no tokens")
    parser.add_argument("--backend", choices=BARE, default="transformers")
    parser.add_argument("--problems", type=int, default=24)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    environment.quiet_libraries()
    content = configuration.read_yaml(ROOT / "config/config.yaml")
    if arguments.config is not None:
        content = configuration.overlay(content, configuration.read_yaml(arguments.config))
    config = configuration.parse(content)
    chosen = config.sampling.model_copy(update={"backend": arguments.backend})
    with tempfile.TemporaryDirectory() as folder:
        model = arguments.model or (randomised if arguments.random else made)(Path(folder))
        requests = requests_of(config, model, arguments.problems)
        if arguments.random:
            chosen = chosen.model_copy(update={"n": 1, "max_tokens": 64})
            requests = [replace(request, count=1) for request in requests]
        return measure(model, chosen, requests, arguments.repeats)


def loops_of(model: str, chosen: Sampling, backend: Any, requests: list[Request]) -> dict[str, Callable[[], int]]:
    """The loops that take turns; each returns the number of tokens that it drew."""
    loops = {
        "backend": lambda: tokens_of(ours(backend, requests)),
        "bare loop": lambda: BARE[chosen.backend](backend, requests),
    }
    if chosen.backend == "vllm":
        return {**loops, "bare loop, seeded": lambda: bare_vllm(backend, requests, seeded=True)}
    measuring = backend_of(model, chosen.model_copy(update={"entropy": True}))
    ours(measuring, requests[:1])  # warms up
    return {**loops, "with entropies": lambda: tokens_of(ours(measuring, requests))}


def measure(model: str, chosen: Sampling, requests: list[Request], repeats: int) -> int:
    """Prints all rates; the status of the process."""
    backend = backend_of(model, chosen.model_copy(update={"entropy": False}))  # as the bare loops, which measure none
    ours(backend, requests[:1])  # warms up
    loops = loops_of(model, chosen, backend, requests)
    measured: dict[str, list[Rates]] = defaultdict(list)
    for _ in range(repeats):
        for name, loop in loops.items():
            measured[name].append(rates(loop))
    print(f"{chosen.backend}: {len(requests)} problems × {chosen.n} samples, medians of {repeats}")
    clocks = ["wall"] if torch.cuda.is_available() else ["wall", "cpu"]
    ratios = [report(measured, clock) for clock in clocks]
    if chosen.backend == "vllm":
        measured["entropy pass"].append(entropy_pass(model, backend, chosen, ours(backend, requests)))
    for clock in clocks:
        report_entropies(measured, clock)
    return int(ratios[-1] < TARGET)


def report(measured: Mapping[str, Sequence[Rates]], clock: str) -> float:
    """Prints the rates by one clock; returns the median ratio of the backend to the bare loop beside it."""
    values = {name: [getattr(one, clock) for one in runs] for name, runs in measured.items()}
    for name, found in values.items():
        print(f"{name:20s}{statistics.median(found):10,.0f} {UNITS[clock]}  [{min(found):,.0f}, {max(found):,.0f}]")
    ratios = [one / other for one, other in zip(values["backend"], values["bare loop"], strict=True)]
    ratio = statistics.median(ratios)
    print(f"{'ratio':20s}{ratio:10.2f} [{min(ratios):.2f}, {max(ratios):.2f}] (target ≥ {TARGET})")
    return ratio


def report_entropies(measured: Mapping[str, Sequence[Rates]], clock: str) -> None:
    """Prints the time that entropies add to drawing."""
    rate = {name: statistics.median(getattr(one, clock) for one in runs) for name, runs in measured.items()}
    if "entropy pass" in rate:
        print(f"{'entropy pass':20s}{rate['entropy pass']:10,.0f} {UNITS[clock]}")
        added = rate["backend"] / rate["entropy pass"]
    else:
        added = rate["backend"] / rate["with entropies"] - 1
    print(f"{'entropies add':20s}{added:10.0%} to the time of drawing ({clock})")


if __name__ == "__main__":
    sys.exit(main())
