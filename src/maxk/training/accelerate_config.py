"""Whether an accelerate config file, read as `accelerate launch` reads it, suits a training."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from maxk.config import Training, read_yaml
from maxk.errors import UserError

DEEPSPEED = "deepspeed==0.19.8"  # the tested version (docs/scale.md)
REPLICATED = ("NO", "MULTI_CPU", "MULTI_GPU")  # strategies under which every process holds the whole model


def sharding(content: Mapping[str, Any]) -> tuple[str, bool]:
    """accelerate's `distributed_type` in a config file, and whether only the first process holds the weights it reads.

    The latter is FSDP2 with "efficient loading".
    """
    strategy = str(content.get("distributed_type", "NO"))
    # Both spellings are accelerate's: fsdp_version and, as in its Python API, version.
    fsdp = {str(key).removeprefix("fsdp_"): value for key, value in (content.get("fsdp_config") or {}).items()}
    fsdp2 = strategy == "FSDP" and str(fsdp.get("version", 1)) == "2"
    # `accelerate launch` defaults to efficient loading.
    return strategy, fsdp2 and _true(fsdp.get("cpu_ram_efficient_loading", True))


def _require_one_precision(content: Mapping[str, Any]) -> None:
    """Raises UserError if the DeepSpeed file that it names sets a precision, which would replace ours."""
    own = (content.get("deepspeed_config") or {}).get("deepspeed_config_file")
    if not own:
        return
    deepspeed = read_yaml(str(own))  # JSON is YAML
    for name, allowed in {"bf16": ("auto",), "fp16": ("auto", False)}.items():
        enabled = (deepspeed.get(name) or {}).get("enabled", "auto")
        if enabled not in allowed:
            raise UserError(
                f'training.accelerate: {own}: {name}.enabled is {enabled!r}; expected "auto", because '
                "training.precision decides"
            )


def _true(value: Any) -> bool:
    """Booleans as accelerate reads them: also from strings and numbers."""
    return str(value).lower() not in ("false", "0", "no", "n", "off", "none", "")


def has_deepspeed() -> bool:
    """Whether DeepSpeed is installed here."""
    return importlib.util.find_spec("deepspeed") is not None


def require_sound(training: Training, gpus: int) -> None:
    """Raises UserError for combinations that accelerate would accept and silently get wrong, and for missing files.

    Accelerate shards on GPUs only; on the CPU it copies the model. Adapters can be merged only into whole weights.
    Under FSDP2, TRL 1.16 shards the reference model from what each process holds; with "efficient loading" only the
    first process holds any weights (docs/scale.md).
    """
    file = training.accelerate
    if file is None:
        return
    if not Path(file).is_file():
        raise UserError(f"training.accelerate: no file {file!r}; see config/accelerate/")
    content = read_yaml(file)
    strategy, loads_once = sharding(content)
    if strategy in REPLICATED:
        return
    _require_one_precision(content)
    if not gpus:
        raise UserError(
            f"training.accelerate: {file} shards weights ({strategy}) over GPUs, and `gpus` is 0; set `gpus`, or "
            "leave `accelerate` out"
        )
    if training.lora is not None:
        raise UserError(
            f"training.lora: adapters cannot be merged into weights that {file} shards ({strategy}); "
            "use config/accelerate/ddp.yaml, or train all weights"
        )
    if training.reference_precision != "float32":
        raise UserError(
            f"training.reference_precision: {file} shards the reference model ({strategy}) and sets its "
            "precision; leave the key out"
        )
    if training.kl_coefficient and training.kl_reference == "base" and loads_once:
        raise UserError(
            f"training.accelerate: set fsdp_cpu_ram_efficient_loading: false in {file}; otherwise only the first "
            "process has the reference model that the KL penalty needs (or set kl_coefficient: 0 or kl_reference: old)"
        )
    if strategy == "DEEPSPEED" and not has_deepspeed():
        raise UserError(
            f"training.accelerate: {file} needs DeepSpeed, which is not installed: pip install --no-build-isolation "
            f"{DEEPSPEED}, or use config/accelerate/fsdp2.yaml"
        )
