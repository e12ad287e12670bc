"""Two ways of making TRL's generation with vLLM faster, as changes to its `VLLMGeneration` object."""

from __future__ import annotations

from typing import Any


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
