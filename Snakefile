"""maxk: from benchmark data to the paper's tables and figures (arXiv 2510.23393).

    snakemake --cores all results/table2.csv             # the default experiment, on two CPU cores
    snakemake --cores all                                # everything; parts of it: tables, figures, summary, report
    snakemake --cores all results/experiments/k_sweep.csv # a further question; all of them: `experiments`
    snakemake --cores all --configfile config/other.yaml # another experiment, laid over the default

Rules are thin: each calls one subcommand of `maxk`, which reads the resolved configuration `results/config.json`. What
decides a rule's result stands in its `params`, so a changed setting repeats just the jobs it concerns. The rules'
`conda:` counts only with `--sdm conda`; otherwise jobs run in the environment that Snakemake runs in.
"""

from snakemake.utils import min_version

min_version("9.0")


report: "workflow/report/workflow.rst"


include: "workflow/rules/common.smk"
include: "workflow/rules/setup.smk"
include: "workflow/rules/policies.smk"
include: "workflow/rules/evaluation.smk"
include: "workflow/rules/reporting.smk"
include: "workflow/rules/experiments.smk"


rule all:
    """Everything an experiment shows."""
    default_target: True
    input:
        rules.table.output,
        rules.figure.output,
        rules.summary.output,
        rules.report.output,


rule tables:
    """Every table, with the intervals and tests that they rest on."""
    input:
        rules.table.output,


rule figures:
    """Every figure."""
    input:
        rules.figure.output,


rule experiments:
    """Every experiment of the configuration (hours on two cores)."""
    input:
        [OUT.experiment(name, "csv") for name in CONFIG.experiments],
