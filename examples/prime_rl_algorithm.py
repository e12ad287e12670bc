"""prime-rl with advantages for the best of 4: copy this file into its src/prime_rl/orchestrator/algo/.

prime-rl takes algorithms from its own tree: list the class in ALGORITHM_CLASSES and add its name to the configuration's
algorithm types.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prime_rl.orchestrator.algo.base import Algorithm

from maxk.integrations import prime_rl


class MaxkAlgorithm(Algorithm):
    """The advantages of one group of episodes."""

    async def score_group(self, episodes: Sequence[Any]) -> None:
        prime_rl.score_group(episodes, {"type": "bon_loo1", "k": 4})
