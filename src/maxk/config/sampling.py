"""`sampling`: the evaluation samples."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from maxk.schema import Count, Positive, Section, Seed, StopString


class Vllm(Section):
    """The engine of the vLLM backend (docs/sampling.md). For several GPUs: `sampling.shards` or `tensor_parallel`."""

    tensor_parallel: Count = Field(1, description="GPUs per copy of the model.")
    gpu_memory_utilization: float = Field(0.9, gt=0, le=1, description="Fraction of GPU memory for weights and cache.")
    kv_cache_gb: Positive | None = Field(
        None, description="Size of the cache in GB, in place of `gpu_memory_utilization`."
    )
    max_model_len: Count | None = Field(
        None, description="Longest prompt and completion together, in tokens; default: the model's context length."
    )
    max_num_seqs: Count = Field(1024, description="Samples generated at the same time.")
    enforce_eager: bool = Field(False, description="Do not compile the model: starts faster, samples slower.")


class Sampling(Section):
    """Evaluation samples (paper, Appendix C.1)."""

    backend: Literal["transformers", "vllm"] = Field("transformers", description="`vllm`: see docs/sampling.md.")
    n: Count = Field(256, description="Completions per problem (paper: 256).")
    max_tokens: Count = Field(256, description="Token limit of a completion.")
    temperature: Positive = 1.0
    top_p: float = Field(1.0, gt=0, le=1)
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="Type of weights and activations; `auto`: bfloat16 on a GPU, float32 on the CPU."
    )
    stop_tokens: tuple[str, ...] = Field((), description="Tokens that end a completion, beside the policy's own.")
    stop: tuple[StopString, ...] = Field(
        (),
        description="Strings that end a completion, which keeps them. Default: the closing fence of a code block, "
        '`"\\n```\\n"`, if `prompt.chat` is true, else none.',
    )
    chunk: Count = Field(
        256, description="Completions of one problem generated together, at most; does not change which are drawn."
    )
    batch_tokens: Count = Field(
        262_144, description="Tokens per batch of the transformers backend, prompts and completions together."
    )
    entropy: bool = Field(
        True,
        description="Measure each completion's mean token entropy (Figure 2); with vLLM, in a separate pass.",
    )
    shards: Count = Field(1, description="Jobs per policy; each samples its part of every dataset's problems.")
    gpu: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Fraction of a GPU that a job takes, as `training.gpu`; below 1, vLLM needs `vllm.kv_cache_gb`.",
    )
    vllm: Vllm = Vllm()
    seed: Seed = 0

    @model_validator(mode="after")
    def _fixed_cache_on_shared_gpus(self) -> Sampling:
        if self.gpu < 1 and self.backend == "vllm" and self.vllm.kv_cache_gb is None:
            raise ValueError(
                f"gpu={self.gpu} shares a GPU, but vLLM would claim all of its free memory; set vllm.kv_cache_gb"
            )
        return self

    @property
    def gpus(self) -> int:
        """GPUs of a sampling job, on a machine with GPUs."""
        return self.vllm.tensor_parallel if self.backend == "vllm" else 1

    @property
    def semantics(self) -> dict[str, Any]:
        """The keys that can change a row of the samples; how many are drawn, batch sizes and GPUs are left out."""
        return self.model_dump(exclude={"n", "chunk", "shards", "batch_tokens", "gpu", "vllm"})
