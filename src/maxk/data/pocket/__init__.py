"""Pocket tasks: generated programming problems with exact tests, small enough for a 127k-parameter model.

`grammar` holds the operations, `tasks` draws problems from them, `corpus` draws what the base model is
pretrained on.

    python -m maxk.data.pocket config/config.yaml     # an example task, and figures of every family
"""

from maxk.data.pocket.corpus import corpus
from maxk.data.pocket.tasks import generate

__all__ = ["corpus", "generate"]
