"""Changes to TRL's generation with vLLM: three make its `VLLMGeneration` faster, two let trainings share a GPU."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

UNUSED_UTILIZATION = 0.01  # vLLM demands this fraction of the memory to be free even if its cache has a fixed size


def own_port() -> None:
    """Sets MASTER_PORT, where it is not set, to a free port for the one-process group in which vLLM runs.

    TRL tries the same ports in the same order in every process, so two trainings that start together take the same one.
    """
    if "MASTER_PORT" not in os.environ:
        with socket.socket() as found:
            found.bind(("localhost", 0))
            os.environ["MASTER_PORT"] = str(found.getsockname()[1])


@contextmanager
def fixed_cache(gigabytes: float | None) -> Iterator[None]:
    """Engines that TRL starts in this context have a cache of this size, for which GRPOConfig has no option.

    Without a size vLLM fills a fraction of the GPU, and measures the memory of other processes as its own. The
    trainer's `vllm_gpu_memory_utilization` must be `UNUSED_UTILIZATION`. None changes nothing.
    """
    if gigabytes is None:
        yield
        return
    from trl.generation import vllm_generation as parent

    engine = parent.LLM
    parent.LLM = partial(engine, kv_cache_memory_bytes=round(gigabytes * 1e9))
    try:
        yield
    finally:
        parent.LLM = engine


def return_no_logprobs(generation: Any) -> None:
    """Neither requests log-probabilities nor converts them; `generate` returns an empty list of them."""
    generate = generation.generate

    def without_logprobs(*args: Any, **kwargs: Any) -> tuple[Any, Any, Any, Any]:
        prompt_ids, completion_ids, _, _ = generate(*args, **kwargs)
        return prompt_ids, completion_ids, [], None

    generation.logprobs = None
    generation.generate = without_logprobs


def request_groups(generation: Any) -> None:
    """Sends a colocated engine one request of n completions per prompt, where TRL sends n requests of one.

    Prompts with images, and batches that do not consist of whole groups, are requested as TRL does.
    """
    generate = generation.generate

    def by_group(prompts: list[list[int]], images: Any = None, *, num_generations: int, **kwargs: Any) -> Any:
        groups = [prompts[i : i + num_generations] for i in range(0, len(prompts), num_generations)]
        whole = images is None and all(group == group[:1] * num_generations for group in groups)
        n = num_generations if whole else 1
        generation.generation_kwargs = {**generation.generation_kwargs, "n": n}
        return generate(prompts=prompts[::n], images=images, num_generations=num_generations, **kwargs)

    generation.generate = by_group


def report_finished(generation: Any, report: Callable[[Sequence[int], list[Sequence[int]]], None]) -> None:
    """Calls `report` with the token ids of a request's prompt and completions when a colocated engine ends it.

    TRL gets all completions of a batch at its end.
    """
    engine = generation.llm.llm_engine
    step = engine.step

    def reporting() -> Any:
        outputs = step()
        for output in outputs:
            if output.finished:
                report(output.prompt_token_ids, [one.token_ids for one in output.outputs])
        return outputs

    engine.step = reporting
