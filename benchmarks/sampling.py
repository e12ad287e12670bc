"""The transformers backend against a bare loop over `generate`: the same requests, batches, model and threads.

    python benchmarks/sampling.py                                        # a base model of seconds, made here
    python benchmarks/sampling.py --random                               # 25 million random weights
    python benchmarks/sampling.py --model results/policies/base/model    # the default experiment's base model

The bare loop does the least that must be done: it repeats every prompt, lets `generate` sample from its global random
state and decodes. Ours draws every sample under its request's own seed and measures entropies besides. Both take the
default experiment's prompts and settings, in turns; medians of tokens per CPU-second are compared. Random weights are
the case without shared tokens: samples part at once, prompts differ in length (up to ten statements in one), and every
token ends a sample with a chance of about 1/32, of at most 64. Exits with 1 if ours is slower than 0.9 × the loop.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch

from maxk import config as configuration
from maxk import environment, prompts, sampling
from maxk.config import Config, Sampling
from maxk.data.pocket.tasks import generate
from maxk.records import Policy
from maxk.sampling import Request
from maxk.sampling.transformers import TransformersBackend

ROOT = Path(__file__).parent.parent
PROBLEMS, REPEATS, TARGET = 24, 3, 0.9


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
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(made(folder))
    shape = {"hidden_size": 512, "intermediate_size": 1376, "num_hidden_layers": 8, "num_attention_heads": 8}
    ids = {"vocab_size": len(tokenizer), "eos_token_id": tokenizer.eos_token_id, "bos_token_id": None}
    LlamaForCausalLM(LlamaConfig(**shape, **ids)).save_pretrained(folder / "random")
    tokenizer.save_pretrained(folder / "random")
    return str(folder / "random")


def parting(model: str, config: Sampling, requests: list[Request]) -> tuple[Sampling, list[Request]]:
    """Few requests, of one to ten statements each, and settings under which samples end at different steps."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    ends = sorted(set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens))[:: len(tokenizer) // 8][:8]
    config = config.model_copy(update={"n": 16, "chunk": 16, "max_tokens": 64, "stop_tokens": tuple(ends)})
    longer = [
        replace(r, prompt="".join(other.prompt for other in requests[: 1 + 3 * i]), count=16)
        for i, r in enumerate(requests[:4])
    ]
    return config, longer


def requests_of(config: Config) -> list[Request]:
    """Requests for a few problems of every dataset."""
    problems = [
        problem
        for name in config.evaluated
        for problem in generate(name, config.datasets[name])[0]
        if problem.split == "test"
    ]
    some = problems[:: len(problems) // PROBLEMS][:PROBLEMS]
    return sampling.requests(
        some, [prompts.render(p.statement, config.prompt, None) for p in some], "base", config.sampling
    )


def ours(backend: TransformersBackend, requests: list[Request]) -> int:
    return sum(c.n_tokens for _, completions in backend.sample(requests) for c in completions)


def batches_of(backend: TransformersBackend, requests: list[Request]) -> Iterator[list[Request]]:
    return backend.batches(requests, sampling.encode(requests, backend.tokenizer, backend.config, None))


@torch.inference_mode()
def bare(backend: TransformersBackend, requests: list[Request]) -> int:
    """A loop over `generate` in our batches."""
    tokens = 0
    for batch in batches_of(backend, requests):
        repeated = [r.prompt for r in batch for _ in range(r.count)]
        inputs = backend.tokenizer(repeated, return_tensors="pt", padding=True, padding_side="left")
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


def rate(call: Callable[[], int]) -> float:
    """Tokens per CPU-second."""
    start = time.process_time()
    tokens = call()
    return tokens / (time.process_time() - start)


def rates(backend: TransformersBackend, requests: list[Request]) -> Iterator[tuple[float, float]]:
    ours(backend, requests[:1])
    for _ in range(REPEATS):
        yield rate(lambda: ours(backend, requests)), rate(lambda: bare(backend, requests))


def main() -> int:
    parser = argparse.ArgumentParser(description="the transformers backend against a bare loop over generate")
    parser.add_argument("--model", help="folder of a model; by default one is made, in seconds")
    parser.add_argument("--random", action="store_true", help="random weights, whose samples share no tokens")
    arguments = parser.parse_args()
    environment.quiet_libraries()
    config = configuration.parse(configuration.read_yaml(ROOT / "config/config.yaml"))
    requests = requests_of(config)
    with tempfile.TemporaryDirectory() as folder:
        model = arguments.model or (randomised if arguments.random else made)(Path(folder))
        settings, requests = (
            parting(model, config.sampling, requests) if arguments.random else (config.sampling, requests)
        )
        backend = TransformersBackend(Policy("base", "Base model", model), settings)
    batches = len(list(batches_of(backend, requests)))
    print(f"{len(requests)} problems × {settings.n} samples in {batches} batches, medians of {REPEATS}, one thread")
    fast, slow = map(statistics.median, zip(*rates(backend, requests), strict=True))
    print(f"backend             {fast:10,.0f} tokens per CPU-second")
    print(f"loop over generate  {slow:10,.0f} tokens per CPU-second")
    print(f"ratio               {fast / slow:10.2f} (target ≥ {TARGET})")
    return int(fast / slow < TARGET)


if __name__ == "__main__":
    sys.exit(main())
