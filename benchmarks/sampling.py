"""A backend against a bare loop over the same library: the same requests, model and machine.

    python benchmarks/sampling.py                                        # a base model of seconds, made here
    python benchmarks/sampling.py --random                               # 25 million random weights
    python benchmarks/sampling.py --model results/policies/base/model    # the default experiment's base model
    python benchmarks/sampling.py --config config/mini.yaml --model PATH --problems 16 --backend vllm      # on a GPU

The bare loop does the least that must be done. Over `generate` it repeats every prompt, lets `generate` sample from its
global random state and decodes, in our batches; over vLLM's engine it hands in all requests at once, without seeds,
log-probabilities or text. Ours draws every sample under its request's own seed and measures entropies besides (vLLM:
also without, to see what they cost). Both take an experiment's prompts and settings, in turns; medians of tokens per
CPU-second, on a GPU per second, are compared. Random weights are the case without shared tokens: samples part at once,
prompts differ in length (up to ten statements in one), and every token ends a sample with a chance of about 1/32, of at
most 64. Exits with 1 if ours is slower than 0.9 × the loop.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from transformers import AutoTokenizer

from maxk import config as configuration
from maxk import data, environment, prompts, sampling
from maxk.config import Config, Sampling
from maxk.records import Policy, Problem
from maxk.sampling import Request

ROOT = Path(__file__).parent.parent
TARGET = 0.9


def made(folder: Path) -> str:
    """The base model of the seconds-scale experiment."""
    from maxk.training.pretrain import pretrain

    defaults = configuration.read_yaml(ROOT / "config/config.yaml")
    changes = configuration.read_yaml(ROOT / "tests/configs/seconds.yaml")
    config = configuration.parse(configuration.overlay(defaults, changes))
    pretrain(config.base, config.prompt, folder / "model")
    return str(folder / "model")


def randomised(folder: Path) -> str:
    """A decoder of 25 million random weights, with the tokenizer of the seconds-scale base model."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(made(folder))
    shape = {"hidden_size": 512, "intermediate_size": 1376, "num_hidden_layers": 8, "num_attention_heads": 8}
    ids = {"vocab_size": len(tokenizer), "eos_token_id": tokenizer.eos_token_id, "bos_token_id": None}
    LlamaForCausalLM(LlamaConfig(**shape, **ids)).save_pretrained(folder / "random")
    tokenizer.save_pretrained(folder / "random")
    return str(folder / "random")


def parting(model: str, config: Sampling, requests: list[Request]) -> tuple[Sampling, list[Request]]:
    """Few requests, of one to ten statements each, and settings under which samples end at different steps."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    ends = sorted(set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens))[:: len(tokenizer) // 8][:8]
    config = config.model_copy(update={"n": 16, "chunk": 16, "max_tokens": 64, "stop_tokens": tuple(ends)})
    longer = [
        replace(r, prompt="".join(other.prompt for other in requests[: 1 + 3 * i]), count=16)
        for i, r in enumerate(requests[:4])
    ]
    return config, longer


def requests_of(config: Config, model: str, count: int) -> list[Request]:
    """Requests for a few problems of every evaluated dataset."""
    problems = [problem for name in config.evaluated for problem in problems_of(config, name)]
    some = problems[:: max(1, len(problems) // count)][:count]
    tokenizer = AutoTokenizer.from_pretrained(model)
    texts = [prompts.render(p.statement, config.prompt, tokenizer) for p in some]
    return sampling.requests(some, texts, "base", config.sampling)


def problems_of(config: Config, name: str) -> list[Problem]:
    """A dataset's test problems; their own solutions are not tried."""
    dataset = config.datasets[name]
    if hasattr(dataset, "check_solutions"):
        dataset = dataset.model_copy(update={"check_solutions": 0})
    return [problem for problem in data.load(name, dataset)[0] if problem.split == "test"]


def ours(backend: Any, requests: list[Request]) -> int:
    return sum(c.n_tokens for _, completions in backend.sample(requests) for c in completions)


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


def bare_vllm(backend: Any, requests: list[Request]) -> int:
    """All requests at once through the same engine."""
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
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        backend.engine.add_request(f"bare{i}", {"prompt_token_ids": prompts_of[request.prompt]}, parameters)
    tokens = 0
    while backend.engine.has_unfinished_requests():
        tokens += sum(len(o.token_ids) for one in backend.engine.step() if one.finished for o in one.outputs)
    return tokens


BARE = {"transformers": bare_generate, "vllm": bare_vllm}


# ------------------------------------------------------------------------------------------------ measuring
def now() -> float:
    return time.perf_counter() if torch.cuda.is_available() else time.process_time()


def rate(call: Callable[[], int]) -> float:
    """Tokens per CPU-second, on a GPU per second."""
    start = now()
    tokens = call()
    return tokens / (now() - start)


def backend_of(model: str, chosen: Sampling) -> Any:
    """The backend, without vLLM's comparison of weights on the CPU before every call."""
    backend: Any = sampling.BACKENDS[chosen.backend](Policy("base", "Base model", model), chosen)
    backend.weights_gap = lambda *_: 0.0
    return backend


def variants(chosen: Sampling) -> dict[str, Sampling]:
    """Settings of ours that are measured, by what is printed."""
    if chosen.backend == "transformers":
        return {"backend": chosen}
    return {"backend": chosen, "backend, no entropy": chosen.model_copy(update={"entropy": False})}


def main() -> int:
    parser = argparse.ArgumentParser(description="a backend against a bare loop over the same library")
    parser.add_argument("--config", help="an experiment laid over the default, for its problems and sampling settings")
    parser.add_argument("--model", help="folder of a model; by default one is made, in seconds")
    parser.add_argument("--random", action="store_true", help="random weights, whose samples share no tokens")
    parser.add_argument("--backend", choices=BARE, default="transformers")
    parser.add_argument("--problems", type=int, default=24)
    parser.add_argument("--repeats", type=int, default=3)
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
            chosen, requests = parting(model, chosen, requests)
        backend = backend_of(model, chosen)
    ours(backend, requests[:1])
    rates: dict[str, list[float]] = defaultdict(list)
    for _ in range(arguments.repeats):
        for name, settings in variants(chosen).items():
            backend.config = settings
            rates[name].append(rate(lambda: ours(backend, requests)))
        rates["bare loop"].append(rate(lambda: BARE[arguments.backend](backend, requests)))
    unit = "tokens/s" if torch.cuda.is_available() else "tokens per CPU-second, one thread"
    print(f"{arguments.backend}: {len(requests)} problems × {chosen.n} samples, medians of {arguments.repeats}")
    for name, values in rates.items():
        print(f"{name:20s}{statistics.median(values):10,.0f} {unit}  [{min(values):,.0f}, {max(values):,.0f}]")
    share = statistics.median(rates["backend"]) / statistics.median(rates["bare loop"])
    print(f"{'ratio':20s}{share:10.2f} (target ≥ {TARGET})")
    return int(share < TARGET)


if __name__ == "__main__":
    sys.exit(main())
