"""Loads tokenizers and models from disk or hub: weights from safetensors only, and no code of a model's repository.

A pickled weight file or a repository's `modeling_*.py` would run its uploader's code. Both are refused: only this
module calls `from_pretrained` (tests/test_security.py), and TRL and vLLM get the same settings. Hub tokens come from
the environment (HF_TOKEN) or from `hf auth login`, never from a configuration.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from maxk.artifacts import environment, files

NO_CODE: dict[str, Any] = {"trust_remote_code": False}
SAFE: dict[str, Any] = {**NO_CODE, "use_safetensors": True}
# Weights, settings, chat templates, and vocabularies that are not JSON (merges.txt, vocab.txt, tokenizer.model).
_FILES = ("*.safetensors", "*.json", "*.jinja", "additional_chat_templates/*.jinja", "*.txt", "*.model")


def local_files(model: str) -> list[Path]:
    """The files that make a local model: weights, configuration, tokenizer. Empty for a hub id."""
    return sorted(path for pattern in _FILES for path in Path(model).glob(pattern))


def digest(model: str, known: str | Path) -> str | None:
    """Identifies a local model by the content of its files; None for a hub id. `known`: see `files.digest_of_all`."""
    found = local_files(model)
    return files.digest_of_all(found, known) if found else None


def config(model: str, revision: str | None) -> Any:
    """The configuration of a model, given as a hub id or a local folder."""
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(model, revision=revision, **NO_CODE)


def context_length(config: Any) -> int | None:
    """Most tokens that a model takes, as its configuration states; None if it states none."""
    length: int | None = getattr(config.get_text_config(), "max_position_embeddings", None)
    return length


def causal_lm_class(config: Any) -> Any:
    """The class that loads a model with this configuration; None if it writes no text."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    return MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)


def has_recurrent_state(config: Any) -> bool:
    """Whether a model's cache holds more than keys and values, so that its rows cannot be split."""
    layers = set(getattr(config.get_text_config(), "layer_types", None) or ())
    stateful = getattr(causal_lm_class(config), "_is_stateful", False)
    return bool(stateful or layers & {"linear_attention", "conv", "hybrid", "hybrid_sliding"})


def generation_config(model: str, revision: str | None) -> Any:
    """The generation settings that the model's authors recommend. Raises OSError if there are none."""
    from transformers import GenerationConfig

    return GenerationConfig.from_pretrained(model, revision=revision)


def tokenizer(model: str, revision: str | None, **options: Any) -> Any:
    """The tokenizer of a model."""
    environment.quiet_libraries()
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(model, revision=revision, **NO_CODE, **options)


def causal_lm(model: str, revision: str | None, dtype: str, device_map: str | None = None) -> Any:
    """The model, on the CPU or spread as `device_map` says. Raises OSError if it has no safetensors weights."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(model, revision=revision, dtype=dtype, device_map=device_map, **SAFE)
