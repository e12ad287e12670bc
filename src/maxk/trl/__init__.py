"""`MaxkTrainer`: TRL's GRPOTrainer with the advantages of a max@k objective (guide: docs/trainer.md).

    from maxk.trl import MaxkTrainer

    trainer = MaxkTrainer(..., objective={"type": "bon_loo1", "k": 4})  # the rest as for GRPOTrainer
    trainer.train()

No parent code is copied; a few small overrides do the work.

1. `_generate_and_score_completions` replaces the parent's advantages by the objective's.
2. π_old comes from the loss's first forward pass of a micro-batch. TRL's separate pass for it costs time, batches
   differently and therefore rounds differently: in bfloat16, whole completions of 200 tokens then have ratios of 0.6
   to 1.7 although the policy has not moved (docs/results-mini.md).
3. Off-policy objectives need the ratios of whole groups at every optimiser step, but TRL shuffles single sequences over
   micro-batches. If a micro-batch can hold whole groups, `_prepare_inputs` puts them back together, and the advantages
   are recomputed inside the loss's own forward pass. Otherwise it makes one pass without gradient before each optimiser
   step and gathers the ratios over processes. Both give the same: parameters do not change within a step.
4. `importance_sampling_level="sequence"` becomes the clipped surrogate of whole-completion ratios by a factor on the
   advantage (`_sequence_factor`); TRL's own version uses the geometric mean of the token ratios.
5. vLLM returns no log-probabilities where nothing uses them: converting them takes TRL up to 40 % of generation time.
"""

from __future__ import annotations

from maxk.errors import needs_extra

with needs_extra("maxk.trl", "trl"):
    from maxk.trl.trainer import MaxkTrainer

__all__ = ["MaxkTrainer"]
