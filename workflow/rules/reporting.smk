"""Tables, figures, summary and report, from the scores of all policies.

Writes results/table*.{csv,md,tex}, results/statistics.csv, results/paired_tests.csv, results/comparison.{csv,md},
results/diversity.{csv,md}, results/*.{png,pdf}, results/summary.md and results/report.html. One job makes all tables,
and one all figures, because reading scores takes most of the time. `maxk.reporting.tables` and `.figures` declare
names, titles and captions.
"""

SCORES = CONFIG.scores(CONFIG.policies)


rule table:
    """Write the paper's tables (CSV, Markdown, LaTeX), intervals, paired tests, diversity and the comparison with the paper."""
    input:
        scores=SCORES,
    output:
        [path for table in TABLES.values() for path in table.paths(CONFIG)],
    log:
        OUT.log("table"),
    benchmark:
        OUT.benchmark("table")
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=8_000,
        runtime=60,
    params:
        config=OUT.config,
        settings=settings("report"),
        further=[
            table.made_by_experiments(CONFIG) for table in tables.paper_tables(CONFIG)
        ],
        source=environment.source("reporting", "estimators", "statistics"),
    message:
        "Write tables"
    shell:
        "python -m maxk table all --config {params.config:q} 2>&1 | tee {log:q}"


rule figure:
    """Draw all figures, as PNG and PDF."""
    input:
        scores=SCORES,
        statistics=OUT.table("statistics"),
        tests=OUT.table("paired_tests"),
        diversity=OUT.table("diversity"),
    output:
        [
            OUT.figure(name, suffix)
            for name in figures.figures(CONFIG)
            for suffix in figures.SUFFIXES
        ],
    log:
        OUT.log("figure"),
    benchmark:
        OUT.benchmark("figure")
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=8_000,
        runtime=60,
    params:
        config=OUT.config,
        settings=settings("report"),
        source=environment.source("reporting", "estimators", "statistics"),
    message:
        "Draw figures"
    shell:
        "python -m maxk figure all --config {params.config:q} 2>&1 | tee {log:q}"


rule summary:
    """Write the summary."""
    input:
        scores=SCORES,
        statistics=OUT.table("statistics"),
        tests=OUT.table("paired_tests"),
    output:
        OUT.summary,
    log:
        OUT.log("summary"),
    benchmark:
        OUT.benchmark("summary")
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=4_000,
        runtime=30,
    params:
        config=OUT.config,
        settings=settings("report"),
        source=environment.source("reporting", "estimators", "statistics"),
    message:
        "Write the summary"
    shell:
        "python -m maxk summary --config {params.config:q} 2>&1 | tee {log:q}"


rule report:
    """Write one HTML page of all results, with the experiments that were run."""
    input:
        rules.table.output,
        rules.figure.output,
        rules.summary.output,
        funnels=[OUT.funnel(dataset) for dataset in CONFIG.evaluated],
    output:
        OUT.report,
    log:
        OUT.log("report"),
    benchmark:
        OUT.benchmark("report")
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=4_000,
        runtime=30,
    params:
        config=OUT.config,
        settings=lambda wildcards: canonical(CONFIG.model_dump(mode="json")),
        source=environment.source("reporting"),
        experiments=[
            files.digest(path)
            for path in (
                OUT.written(OUT.experiment(name, "csv")) for name in CONFIG.experiments
            )
            if Path(path).exists()
        ],
    message:
        "Write the report"
    shell:
        "python -m maxk report --config {params.config:q} 2>&1 | tee {log:q}"
