"""From scores to tables, figures and summaries.

    load         all scores of an experiment, or a refusal to mix what does not belong together
    estimates    means and differences with their intervals and tests
    tables       every table: name, title, caption, function; `rendering` makes the paper's tables of it
    figures      every figure likewise; `style` is their common look
    comparison   our numbers beside the paper's
    selection    what Best-of-N gives with an imperfect selector
    systems      a comparison of systems, of this project or from elsewhere
    summary      one page on a run
    experiments  the table and figure of each question in `experiments`

`tables` and `figures` import nothing heavy: the Snakefile reads from them which files its rules make.
"""

from __future__ import annotations

MEAN = "mean"  # the pseudo-dataset of the mean over datasets
