"""Sampling with vLLM: one engine per job, fed request by request, so that its batch stays full until the last samples.

Prompts and completions are exchanged as token ids, and sampling defaults in the model folder are ignored. Before
sampling, the engine's log-probabilities are compared with those of the policy's weights (docs/sampling.md).
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from maxk import sampling
from maxk.artifacts import models
from maxk.artifacts.records import Policy
from maxk.config import Sampling
from maxk.config.sampling import Vllm
from maxk.errors import UserError
from maxk.sampling import Completion, Drawn, Request

PROGRAM = "n = int(input())\nprint(sum(range(n + 1)))\n"  # scored after a prompt to compare weights
TOLERANCE = {"float32": 0.001, "bfloat16": 0.2, "float16": 0.03}  # mean nats per token; measured in docs/sampling.md
ENDING_S = 60.0  # in which an engine ends
SCORED_TOKENS = 512  # at the end of the prompt: enough for a comparison, and fast on a CPU


class VllmBackend:
    """Starts the engine and compares its weights with the policy's; the engine ends with the process."""

    measures = False  # it knows the log-probabilities of a few tokens only

    def __init__(self, policy: Policy, config: Sampling) -> None:
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
        from vllm import EngineArgs, LLMEngine  # type: ignore[import-not-found]
        from vllm.platforms import current_platform  # type: ignore[import-not-found]

        self.policy, self.config = policy, config
        self.tokenizer = models.tokenizer(policy.model, policy.revision)
        self.stop_tokens = sampling.stop_tokens(policy, self.tokenizer, config)
        on_cpu = current_platform.is_cpu()
        self.dtype = sampling.dtype_of(config, on_gpu=not on_cpu)
        self.engine = LLMEngine.from_engine_args(
            EngineArgs(
                model=policy.model,
                revision=policy.revision,
                load_format="safetensors",
                **models.NO_CODE,
                tokenizer_revision=policy.revision,
                skip_tokenizer_init=not config.stop,
                dtype=self.dtype,
                tensor_parallel_size=config.vllm.tensor_parallel,
                **cache(config.vllm),
                max_model_len=config.vllm.max_model_len,
                max_num_seqs=config.vllm.max_num_seqs,
                enforce_eager=config.vllm.enforce_eager,
                # Chunked prefill rewinds the generator of a seeded sample, which CPU generators do not support.
                enable_chunked_prefill=False if on_cpu else None,
                disable_log_stats=True,
            )
        )
        self.facts: dict[str, str | float] = {"device": current_platform.device_type, "dtype": self.dtype}

    def sample(self, requests: Sequence[Request]) -> Iterator[Drawn]:
        """Yields every request with its completions, one by one in the order in which they finish."""
        if not requests:
            return
        prompts = sampling.encode(requests, self.tokenizer, self.config, self.engine.model_config.max_model_len)
        self.facts["weights_gap"] = self._checked_weights(prompts[requests[0].prompt])
        by_id = {str(i): request for i, request in enumerate(requests)}
        jobs = ((name, prompts[r.prompt], self._parameters(r)) for name, r in by_id.items())
        for output in self._run(jobs):
            request = by_id[output.request_id]
            yield [(request, list(self._completions(sorted(output.outputs, key=lambda one: one.index))))]

    def close(self) -> None:
        """Ends the engine's process; its GPU memory is free when the process has ended."""
        processes = multiprocessing.active_children()
        self.engine.engine_core.shutdown()
        for process in processes:
            process.join(ENDING_S)

    def _run(self, jobs: Iterator[tuple[str, list[int], Any]]) -> Iterator[Any]:
        """Outputs of jobs (name, prompt, parameters); keeps twice as many samples queued as run at once."""
        waiting = 0
        for name, prompt, parameters in jobs:
            self.engine.add_request(name, {"prompt_token_ids": prompt}, parameters)
            waiting += parameters.n
            while waiting >= 2 * self.config.vllm.max_num_seqs:
                for output in self._finished():
                    waiting -= len(output.outputs)
                    yield output
        while self.engine.has_unfinished_requests():
            yield from self._finished()

    def _finished(self) -> list[Any]:
        return [output for output in self.engine.step() if output.finished]

    def _parameters(self, request: Request) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind  # type: ignore[import-not-found]

        return SamplingParams(
            n=request.count,
            seed=request.seed + request.first,  # vLLM counts up from it
            temperature=self.config.temperature,
            top_p=self.config.top_p,
            max_tokens=self.config.max_tokens,
            stop_token_ids=self.stop_tokens,
            ignore_eos=True,  # end-of-sequence tokens are among the stop tokens
            # vLLM finds stop strings in the text that it makes of the tokens; the text itself is dropped.
            stop=list(self.config.stop) or None,
            include_stop_str_in_output=True,
            detokenize=bool(self.config.stop),
            output_kind=RequestOutputKind.FINAL_ONLY,
        )

    def _completions(self, outputs: Sequence[Any]) -> Iterator[Completion]:
        for output in outputs:
            if output.finish_reason not in ("stop", "length"):
                raise UserError(f"vLLM aborted a completion of {self.policy.name}: {output.finish_reason}")
        rows = [output.token_ids for output in outputs]
        return sampling.completions(rows, self.stop_tokens, self.config.stop, self.tokenizer)

    # ---- weights
    def _checked_weights(self, prompt: list[int]) -> float:
        gap = self.weights_gap(self.policy, prompt)
        if not gap <= TOLERANCE[self.dtype]:
            raise UserError(
                f"{self.policy.name}: vLLM's log-probabilities differ from those of the weights in {self.policy.model} "
                f"by {gap:.3g} nats a token (allowed in {self.dtype}: {TOLERANCE[self.dtype]}); "
                "it does not sample from this policy"
            )
        return gap

    def weights_gap(self, policy: Policy, prompt: list[int]) -> float:
        """Mean absolute difference, in nats per token, between the engine's and `policy`'s log-probabilities."""
        program = self.tokenizer(PROGRAM, add_special_tokens=False)["input_ids"]
        ids = [*prompt, *program][-SCORED_TOKENS:]
        return float(np.abs(self._scores(ids) - reference_scores(policy, ids, self.dtype)).mean())

    def _scores(self, ids: list[int]) -> np.ndarray:
        """The engine's log-probabilities of all tokens except the first."""
        from vllm import SamplingParams

        parameters = SamplingParams(max_tokens=1, prompt_logprobs=0, detokenize=False)
        [output] = self._run(iter([("weights", ids, parameters)]))
        return np.array([at[token].logprob for token, at in zip(ids[1:], output.prompt_logprobs[1:], strict=True)])


def cache(config: Vllm) -> dict[str, Any]:
    """The engine's arguments for the memory it may take."""
    if config.kv_cache_gb is None:
        return {"gpu_memory_utilization": config.gpu_memory_utilization}
    # vLLM demands the fraction of the memory to be free even if its cache has a fixed size.
    return {"gpu_memory_utilization": 0.01, "kv_cache_memory_bytes": round(config.kv_cache_gb * 1e9)}


def reference_scores(policy: Policy, ids: Sequence[int], dtype: str) -> np.ndarray:
    """Log-probabilities of all tokens except the first by `transformers` on the CPU; frees the model afterwards."""
    import torch

    model = models.causal_lm(policy.model, policy.revision, dtype).eval()
    tokens = torch.tensor([ids])
    with torch.inference_mode():
        log_p = model(tokens).logits[0, :-1].float().log_softmax(-1)
    scores: np.ndarray = log_p.gather(1, tokens[0, 1:, None])[:, 0].numpy()
    return scores
