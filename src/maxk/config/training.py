"""`training`: GRPO training, shared by all objectives."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from maxk.schema import Count, Name, Positive, Section, StopString


class Lora(Section):
    """Low-rank adapters instead of all weights, without dropout; they are merged into the saved policy."""

    rank: Count = 16
    alpha: Count = 32
    target_modules: str | tuple[str, ...] = Field("all-linear", description="Modules that get an adapter (peft).")


class Generator(Section):
    """The backend that generates the training completions."""

    backend: Literal["transformers", "vllm"] = Field("transformers", description="`vllm`: see docs/sampling.md.")
    mode: Literal["colocate", "server"] = Field(
        "colocate", description="vLLM in the training processes, or a running server (docs/clusters.md)."
    )
    url: str | None = Field(None, description="Base URL of the vLLM server; needs `mode: server`.")
    gpu_memory_utilization: float = Field(0.3, gt=0, le=1, description="Fraction of a GPU's memory for colocated vLLM.")
    kv_cache_gb: Positive | None = Field(
        None, description="Size of colocated vLLM's cache, in GB, in place of `gpu_memory_utilization`."
    )
    tensor_parallel: Count = Field(1, description="GPUs that one colocated vLLM engine spans.")
    max_model_len: Count | None = Field(
        None, description="Longest prompt and completion together, in tokens, of colocated vLLM; default: the model's."
    )
    importance_sampling: Literal["none", "token_truncate", "token_mask", "sequence_truncate", "sequence_mask"] = Field(
        "none",
        description="TRL's correction for the difference between vLLM's and the trainer's probabilities: weights by "
        "token or by completion, capped (`truncate`) or set to 0 (`mask`) above `importance_sampling_max`.",
    )
    importance_sampling_max: Positive = Field(3.0, description="Largest weight of `importance_sampling`.")
    ahead: bool = Field(
        False,
        description="Draw the next generation batch while this one trains; needs `mode: server`, "
        "`old_policy: sampler` and one process (docs/trainer.md).",
    )

    @model_validator(mode="after")
    def _url_for_servers(self) -> Generator:
        if (self.url is not None) != (self.backend == "vllm" and self.mode == "server"):
            raise ValueError("url must be set with backend: vllm and mode: server, and only then")
        if self.importance_sampling != "none" and self.backend != "vllm":
            raise ValueError("importance_sampling corrects vLLM's samples; it needs backend: vllm")
        if self.ahead and self.mode != "server":
            raise ValueError("ahead: true needs a vLLM server beside the training; set mode: server and url")
        return self


class EntropyBonus(Section):
    """An entropy bonus in the loss: `coefficient` × the mean entropy of completion tokens, in nats.

    With a `target` the coefficient adapts (Skywork-OR1, arXiv 2505.22312): it rises by `step` after each optimiser step
    whose entropy is at most `target`, falls by as much after others, and acts only at or below `target`. With `like` it
    rises and falls in the same way along the entropy of another training, acts on both sides, and may be negative.
    """

    coefficient: float = Field(0.0, ge=0, description="Weight of the bonus; with a `target`, the initial one.")
    target: Positive | None = Field(None, description="Entropy to hold, in nats per token.")
    like: Name | None = Field(
        None,
        description="An objective: the entropy to follow is that of its training with the same seed, batch by batch.",
    )
    step: Positive = Field(0.005, description="Change of the coefficient per optimiser step; needs a target.")
    largest: Positive = Field(1.0, description="Largest size of the coefficient; needs a target.")

    @model_validator(mode="after")
    def _acts(self) -> EntropyBonus:
        adaptive = self.target is not None or self.like is not None
        if self.coefficient == 0 and not adaptive:
            raise ValueError("give a coefficient above 0, a target or like; otherwise leave the entropy bonus out")
        if self.like is not None and (self.target is not None or self.coefficient):
            raise ValueError("like gives the target, and the coefficient starts at 0; leave both out")
        if not adaptive and {"step", "largest"} & self.model_fields_set:
            raise ValueError("step and largest need a target or like, towards which the coefficient changes")
        return self


class Heldout(Section):
    """Evaluation during training, on problems of the train split that are held out."""

    every: Count = Field(description="Generation batches between evaluations.")
    problems: Count = Field(
        description="Held-out problems, with `num_generations` completions each; logs max@k for k = 1, 2, 4, … and n."
    )


class Training(Section):
    """GRPO training (paper, Section 4.4); every objective shares it and may override keys under `training`."""

    datasets: tuple[Name, ...] = Field(min_length=1, description="Datasets whose train split is used.")
    epochs: Positive = Field(1.0, description="Passes over the training problems.")
    prompts_per_step: Count = Field(16, description="Problems in one generation batch, over all processes.")
    per_device_batch_size: Count = Field(
        128,
        description="Completions in one forward and backward pass on one process. If it is a multiple of "
        "`num_generations` and `minibatches` is 1, off-policy ratios come from the loss's own pass; otherwise they "
        "cost one more forward pass per optimiser step.",
    )
    processes: Count = Field(
        1,
        description="Data-parallel processes on all nodes together: `torchrun`, or `accelerate launch` if `accelerate` "
        "is set.",
    )
    nodes: Count = Field(
        1, description="Machines that share the processes equally; more than 1 needs Slurm (docs/clusters.md)."
    )
    gpu: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Fraction of a GPU that each process takes; jobs share a GPU while their fractions add up to at "
        "most 1. Below 1, vLLM needs `generator.kv_cache_gb` (docs/clusters.md).",
    )
    accelerate: str | None = Field(None, description="An accelerate config file, such as config/accelerate/fsdp2.yaml.")
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        "auto",
        description="Precision of the forward and backward pass; `auto`: bfloat16 on a GPU, float32 on the CPU. It "
        "overrides the file of `accelerate`.",
    )
    reference_precision: Literal["float32", "bfloat16"] = Field(
        "float32", description="Precision of the reference model's weights; bfloat16 takes half of the memory."
    )
    gradient_checkpointing: bool = Field(False, description="Recompute activations: less memory, a third more time.")
    torch_compile: bool = Field(False, description="Compile the policy with `torch.compile`; pays for long jobs.")
    lora: Lora | None = Field(None, description="Train low-rank adapters.")
    generator: Generator = Generator()
    num_generations: int = Field(8, ge=2, description="n: completions per problem (paper: 8).")
    max_tokens: Count = Field(256, description="Token limit of a completion (paper: 256).")
    stop: tuple[StopString, ...] = Field(
        (), description="Strings that end a completion; the same default as `sampling.stop`."
    )
    temperature: Positive = Field(1.0, description="Sampling temperature (paper: 1.0).")
    top_p: float = Field(1.0, gt=0, le=1, description="Nucleus sampling (paper: 1.0).")
    learning_rate: Positive = Field(5e-6, description="Adam learning rate (paper: 5e-6).")
    warmup_steps: int = Field(0, ge=0, description="Linear warm-up, in optimiser steps; constant afterwards.")
    kl_coefficient: float = Field(0.01, ge=0, description="β of the KL penalty (paper: 0.01).")
    kl_reference: Literal["base", "old"] = Field(
        "base",
        description="The policy that the KL penalty is measured from: the base policy, or π_old, the policy at "
        "generation (paper, eq. 4), which needs no reference model and penalises only steps on stale samples "
        "(docs/trainer.md).",
    )
    entropy_bonus: EntropyBonus | None = Field(None, description="Reward entropy in the loss (paper: no bonus).")
    clip: Positive = Field(0.2, description="ε of PPO's clipping (paper: 0.2).")
    ratio: Literal["token", "sequence"] = Field(
        "token",
        description="PPO's ratio: of each token (TRL, GRPO), or of the whole completion, with which off-policy "
        "objectives are unbiased and loss and KL are sums over tokens (docs/objectives.md).",
    )
    old_policy: Literal["trainer", "sampler"] = Field(
        "trainer",
        description="π_old of the ratios: the policy at generation as the trainer computes it, or as vLLM computed it, "
        "which adds the differences between both to the ratios (docs/trainer.md).",
    )
    max_grad_norm: Positive = Field(1.0, description="Gradient norm is clipped to this (not stated in the paper).")
    iterations: Count = Field(
        1, description="μ: PPO iterations per generation batch (paper: 3 for off-policy objectives)."
    )
    minibatches: Count = Field(
        1,
        description="Optimiser steps in one iteration, each on another random part of the generation batch: samples "
        "are stale from the second on (paper: 1).",
    )
    evaluation: Heldout | None = Field(None, description="Evaluate during training.")
    checkpoint_every: Count = Field(
        40, description="Generation batches between checkpoints; a killed job resumes from the last one."
    )

    @model_validator(mode="after")
    def _batches_divide(self) -> Training:
        batch, quantum = self.prompts_per_step * self.num_generations, self.processes * self.per_device_batch_size
        if batch % quantum:
            raise ValueError(
                f"prompts_per_step × num_generations = {self.prompts_per_step} × {self.num_generations} = {batch} must "
                f"be a multiple of processes × per_device_batch_size = {self.processes} × "
                f"{self.per_device_batch_size} = {quantum}"
            )
        if batch // quantum % self.minibatches:
            raise ValueError(
                f"minibatches={self.minibatches} must divide the micro-batches of each process, which are "
                f"{batch} / {quantum} = {batch // quantum} per generation batch; lower per_device_batch_size"
            )
        return self

    @model_validator(mode="after")
    def _nodes_share_processes(self) -> Training:
        if self.processes % self.nodes:
            raise ValueError(f"processes={self.processes} must be a multiple of nodes={self.nodes}")
        return self

    @model_validator(mode="after")
    def _launcher_for_several(self) -> Training:
        if self.accelerate is not None and self.processes == 1:
            raise ValueError("accelerate says how several processes share the work; set processes to 2 or more")
        if len(set(self.datasets)) != len(self.datasets):
            raise ValueError(f"datasets={list(self.datasets)} contains a dataset twice")
        return self

    @model_validator(mode="after")
    def _fixed_cache_on_shared_gpus(self) -> Training:
        chosen = self.generator
        if self.gpu < 1 and chosen.backend == "vllm" and chosen.mode == "colocate" and chosen.kv_cache_gb is None:
            raise ValueError(
                f"gpu={self.gpu} shares a GPU, but vLLM would claim all of its free memory; set generator.kv_cache_gb"
            )
        return self

    @model_validator(mode="after")
    def _sampler_gives_probabilities(self) -> Training:
        if self.old_policy == "sampler" and self.generator.backend != "vllm":
            raise ValueError("old_policy: sampler needs the log-probabilities of generator.backend: vllm")
        if self.old_policy == "sampler" and self.generator.importance_sampling != "none":
            raise ValueError("old_policy: sampler would be corrected twice; leave generator.importance_sampling out")
        if self.generator.ahead and (self.old_policy != "sampler" or self.processes > 1):
            raise ValueError(
                "generator.ahead draws from an older policy; it needs old_policy: sampler and processes: 1"
            )
        return self

    @model_validator(mode="after")
    def _reference_is_used(self) -> Training:
        if self.kl_reference == "old" and self.kl_coefficient == 0:
            raise ValueError("kl_reference: old needs a kl_coefficient above 0")
        if self.kl_reference == "old" and self.reference_precision != "float32":
            raise ValueError("kl_reference: old loads no reference model; leave reference_precision out")
        return self

    @property
    def semantics(self) -> dict[str, Any]:
        """The keys that can change the trained policy; those that say where and how it is computed are left out."""
        execution = {"checkpoint_every", "nodes", "gpu", "accelerate", "gradient_checkpointing", "torch_compile"}
        generator = {"url", "gpu_memory_utilization", "kv_cache_gb", "tensor_parallel", "max_model_len"}
        new = {"minibatches": 1, "kl_reference": "base"}  # policies trained before these keys existed remain valid
        execution |= {key for key, default in new.items() if getattr(self, key) == default}
        generator |= set() if self.generator.ahead else {"ahead"}
        return self.model_dump(exclude={**dict.fromkeys(execution, True), "generator": generator})

    @property
    def processes_per_node(self) -> int:
        """Data-parallel processes on each node."""
        return self.processes // self.nodes

    @property
    def micro_batches(self) -> int:
        """Micro-batches per generation batch on each process."""
        return self.prompts_per_step * self.num_generations // (self.processes * self.per_device_batch_size)

    def generation_batches(self, problems: int) -> int:
        """Generation batches of a training on a number of problems."""
        return max(1, round(self.epochs * problems / self.prompts_per_step))

    @property
    def steps_per_batch(self) -> int:
        """Optimiser steps per generation batch; samples are stale from the second on."""
        return self.iterations * self.minibatches
