"""What an accelerate config file does with a model's weights, read as `accelerate launch` reads it.

sharding.read("config/accelerate/fsdp2.yaml").read_once
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from maxk.config import read_yaml


@dataclass(frozen=True)
class Sharding:
    """`strategy` is accelerate's `distributed_type`.

    Weights are read by the first process alone (`read_once`) or by all; `offloaded` ones stay in main memory.
    """

    strategy: str
    fsdp2: bool
    read_once: bool
    offloaded: bool

    @property
    def shards(self) -> bool:
        """Whether a process holds only a part of the weights."""
        return self.strategy not in ("NO", "MULTI_GPU", "MULTI_CPU")


def read(path: str) -> Sharding:
    """The sharding of an accelerate config file; UserError where it cannot be read."""
    content = read_yaml(path)
    strategy = str(content.get("distributed_type", "NO"))
    # Both spellings are accelerate's: fsdp_version and, as in its Python API, version.
    fsdp = {str(key).removeprefix("fsdp_"): value for key, value in _section(content, "fsdp_config").items()}
    deepspeed = _section(content, "deepspeed_config")
    devices = {str(deepspeed.get(key, "none")) for key in ("offload_optimizer_device", "offload_param_device")}
    # `accelerate launch` takes efficient loading for true where the key is left out.
    first_alone = strategy == "FSDP" and _true(fsdp.get("cpu_ram_efficient_loading", True))
    return Sharding(
        strategy,
        fsdp2=strategy == "FSDP" and str(fsdp.get("version", 1)) == "2",
        read_once=first_alone or (strategy == "DEEPSPEED" and str(deepspeed.get("zero_stage")) == "3"),
        offloaded=_true(fsdp.get("offload_params", False)) or "cpu" in devices,
    )


def _section(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section: Mapping[str, Any] = content.get(name) or {}
    return section


def _true(value: Any) -> bool:
    """YAML's booleans, and the texts and numbers that accelerate takes for them."""
    return str(value).lower() not in ("false", "0", "no", "n", "off", "none", "")
