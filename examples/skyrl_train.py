"""SkyRL with advantages for the best of 4; arguments are those of SkyRL's own entry point.

python examples/skyrl_train.py trainer.algorithm.advantage_estimator=maxk generator.n_samples_per_prompt=8 …
"""

from __future__ import annotations

import sys

import ray
from skyrl.train.config import SkyRLTrainConfig
from skyrl.train.entrypoints.main_base import BasePPOExp, validate_cfg
from skyrl.train.utils import initialize_ray

from maxk.integrations import skyrl


@ray.remote(num_cpus=1)
def train(config: SkyRLTrainConfig) -> None:
    """The trainer's process, so that the estimator is registered where it is looked up."""
    skyrl.register({"type": "bon_loo1", "k": 4})
    BasePPOExp(config).run()


def main() -> None:
    skyrl.register({"type": "bon_loo1", "k": 4})  # here too: the configuration's names are checked in this process
    config = SkyRLTrainConfig.from_cli_overrides(sys.argv[1:])
    validate_cfg(config)
    initialize_ray(config)
    ray.get(train.remote(config))


if __name__ == "__main__":
    main()
