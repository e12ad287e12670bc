"""Loading tokenizers and models, the one way: weights from safetensors alone, and no code of a model's repository.

A pickled weight file, or the `modeling_*.py` that a repository may bring, runs code of whoever uploaded it. Both are
refused here and everywhere else: nothing but this module calls `from_pretrained` (tests/test_security.py), and what TRL
and vLLM load by themselves gets the same settings. Hub tokens come from the environment (HF_TOKEN) or from
`hf auth login`, never from a configuration.
"""

from __future__ import annotations

from typing import Any

NO_CODE: dict[str, Any] = {"trust_remote_code": False}
SAFE: dict[str, Any] = {**NO_CODE, "use_safetensors": True}


def config(model: str, revision: str | None) -> Any:
    """The configuration of a model: a hub id or a local folder."""
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(model, revision=revision, **NO_CODE)


def generation_config(model: str, revision: str | None) -> Any:
    """What the model's authors recommend for generation. Raises OSError where they say nothing."""
    from transformers import GenerationConfig

    return GenerationConfig.from_pretrained(model, revision=revision)


def tokenizer(model: str, revision: str | None, **options: Any) -> Any:
    """The tokenizer of a model."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(model, revision=revision, **NO_CODE, **options)


def causal_lm(model: str, revision: str | None, dtype: str) -> Any:
    """The model itself. Raises OSError where it has no safetensors weights."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(model, revision=revision, dtype=dtype, **SAFE)
