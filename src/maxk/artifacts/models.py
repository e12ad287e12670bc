"""Loads tokenizers and models from disk or hub: weights from safetensors only, and no code of a model's repository.

A pickled weight file or a repository's `modeling_*.py` would run its uploader's code. Both are refused: only this
module calls `from_pretrained` (tests/test_security.py), and TRL and vLLM get the same settings. Hub tokens come from
the environment (HF_TOKEN) or from `hf auth login`, never from a configuration.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from maxk.artifacts import environment, files
from maxk.artifacts.digests import digest_of

NO_CODE: dict[str, Any] = {"trust_remote_code": False}
SAFE: dict[str, Any] = {**NO_CODE, "use_safetensors": True}


def local_files(model: str) -> list[Path]:
    """The files that make a local model: weights, configuration, tokenizer. Empty for a hub id."""
    return sorted(path for pattern in ("*.safetensors", "*.json", "*.jinja") for path in Path(model).glob(pattern))


def digest(model: str, known: str | Path) -> str | None:
    """Identifies a local model by the content of its files; None for a hub id.

    `known` is a JSON file of digests found before: weights can be gigabytes, and every shard asks. A file is read again
    if its size, inode or times differ.
    """
    found = local_files(model)
    if not found:
        return None
    with files.lock(Path(known).parent):
        digests = files.read_json(known) if Path(known).exists() else {}
        now = {str(path.resolve()): _stamp(path) for path in found}
        for path, stamp in now.items():
            if digests.get(path, [None])[0] != stamp:
                digests[path] = [stamp, files.digest(path)]
        files.write_json(known, digests)
    return digest_of({path.name: digests[str(path.resolve())][1] for path in found})


def _stamp(path: Path) -> list[int]:
    """Values that change whenever a file is written or replaced."""
    status = path.stat()
    return [status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns]


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
    with environment.without("sklearn"):
        from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(model, revision=revision, **NO_CODE, **options)


def causal_lm(model: str, revision: str | None, dtype: str, device_map: str | None = None) -> Any:
    """The model, on the CPU or spread as `device_map` says. Raises OSError if it has no safetensors weights."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(model, revision=revision, dtype=dtype, device_map=device_map, **SAFE)
