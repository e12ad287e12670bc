"""Pocket tasks: generated programming problems with exact tests, small enough for a 127k-parameter model.

`grammar` has the operations, `tasks` draws problems from them, `corpus` draws what the base model is pretrained on.

    snakemake --cores 1 results/data/pocket-contests/problems.parquet
    maxk inspect pocket-contests
"""

from maxk.data.pocket.corpus import Corpus
from maxk.data.pocket.tasks import PocketDataset

__all__ = ["Corpus", "PocketDataset"]
