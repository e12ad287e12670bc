"""Tables, statistics and figures, from the scores of all policies.

Makes results/table*.{csv,md,tex}, results/statistics.csv, results/paired_tests.csv, results/comparison.{csv,md} and
results/figure*.{png,pdf}.
"""

SCORES = scores_of(CONFIG)


rule table:
    """Write one of the paper's tables, with Markdown and LaTeX twins."""
    input:
        scores=SCORES,
    output:
        [OUT.table("{table}", suffix) for suffix in ("csv", "md", "tex")],
    log:
        OUT.log("table", "{table}"),
    benchmark:
        OUT.benchmark("table", "{table}")
    wildcard_constraints:
        table=r"table\d+",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=4_000,
        runtime=30,
    params:
        config=OUT.config,
        settings=settings("report"),
        source=environment.source("reporting", "estimators"),
    message:
        "Write {wildcards.table}"
    shell:
        "python -m maxk table {wildcards.table} --config {params.config:q} 2>&1 | tee {log:q}"


rule statistics:
    """Intervals of every number, and paired tests between policies."""
    input:
        scores=SCORES,
    output:
        OUT.statistics,
        OUT.table("paired_tests"),
    log:
        OUT.log("statistics"),
    benchmark:
        OUT.benchmark("statistics")
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=8_000,
        runtime=60,
    params:
        config=OUT.config,
        settings=settings("report"),
        source=environment.source("reporting", "estimators"),
    message:
        "Compute intervals and paired tests"
    shell:
        "python -m maxk statistics --config {params.config:q} 2>&1 | tee {log:q}"


rule compare:
    """Set our numbers beside the published ones."""
    input:
        scores=SCORES,
    output:
        OUT.table("comparison"),
        OUT.table("comparison", "md"),
    log:
        OUT.log("compare"),
    benchmark:
        OUT.benchmark("compare")
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=4_000,
        runtime=30,
    params:
        config=OUT.config,
        settings=settings("report"),
        source=environment.source("reporting", "estimators"),
    message:
        "Compare with the published numbers"
    shell:
        "python -m maxk compare --config {params.config:q} 2>&1 | tee {log:q}"


rule figure:
    """Draw a figure, as PNG and PDF."""
    input:
        scores=SCORES,
    output:
        [OUT.figure("{figure}", suffix) for suffix in ("png", "pdf")],
    log:
        OUT.log("figure", "{figure}"),
    benchmark:
        OUT.benchmark("figure", "{figure}")
    wildcard_constraints:
        figure=r"figure\d+|training|ratios",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=4_000,
        runtime=30,
    params:
        config=OUT.config,
        settings=settings("report"),
        source=environment.source("reporting", "estimators"),
    message:
        "Draw {wildcards.figure}"
    shell:
        "python -m maxk figure {wildcards.figure} --config {params.config:q} 2>&1 | tee {log:q}"
