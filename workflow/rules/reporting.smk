"""Tables, figures, summary and report, from the scores of all policies.

Writes results/table*.{csv,md,tex}, results/statistics.csv, results/paired_tests.csv, results/comparison.{csv,md},
results/*.{png,pdf}, results/summary.md and results/report.html. One job makes all tables and one all figures, because
reading scores and drawing the bootstrap takes most of the time.
"""


localrules:
    report,


SCORES = CONFIG.scores(CONFIG.policies)


rule table:
    """Write the paper's tables (CSV, Markdown, LaTeX), intervals, paired tests and the comparison with the paper."""
    input:
        scores=SCORES,
    output:
        [shown_table(OUT.table(name), name, "spreadsheet") for name in TABLES],
        [shown_table(OUT.page(name), name, "page") for name in TABLES],
        [OUT.table(name, suffix) for name in TABLES for suffix in ("md", "tex")],
        shown(
            OUT.statistics,
            "4 Statistics",
            "statistics.rst",
            file="statistics.csv",
            shows="intervals",
        ),
        shown(
            OUT.table("paired_tests"),
            "4 Statistics",
            "paired_tests.rst",
            file="paired_tests.csv",
            shows="paired tests",
        ),
        shown(
            OUT.page("comparison"),
            "1 Summary",
            "comparison.rst",
            page="Versus the paper",
        ),
        [OUT.table("comparison", suffix) for suffix in ("csv", "md")],
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
        further=[specs.made_by_experiments(CONFIG, table) for table in TABLES.values()],
        source=environment.source("reporting", "estimators", "statistics"),
    message:
        "Write tables"
    shell:
        "python -m maxk table all --config {params.config:q} 2>&1 | tee {log:q}"


rule figure:
    """Draw all figures, as PNG and PDF."""
    input:
        scores=SCORES,
    output:
        [
            shown(
                OUT.figure(name),
                "3 Figures",
                f"{name}.rst",
                figure=name,
                shows=title,
            )
            for name, title in specs.FIGURES.items()
        ],
        [OUT.figure(name, "pdf") for name in specs.FIGURES],
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
    """Write the summary, and a page on the run: configuration, versions, funnels, run times."""
    input:
        scores=SCORES,
        statistics=OUT.statistics,
        tests=OUT.table("paired_tests"),
        funnels=[OUT.funnel(dataset) for dataset in CONFIG.evaluated],
    output:
        OUT.summary,
        shown(OUT.page("summary"), "1 Summary", "summary.rst", page="Summary"),
        shown(OUT.page("run"), "1 Summary", "run.rst", page="The run"),
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
        settings=lambda wildcards: canonical(CONFIG.model_dump(mode="json")),
        source=environment.source("reporting", "estimators", "statistics"),
    message:
        "Write the summary"
    shell:
        "python -m maxk summary --config {params.config:q} 2>&1 | tee {log:q}"


rule report:
    """Write one HTML file with all results, and with the experiments that were run."""
    input:
        rules.table.output,
        rules.figure.output,
        rules.summary.output,
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
        snakefile=workflow.main_snakefile,
        experiments=[
            path
            for path in (OUT.experiment(name, "csv") for name in CONFIG.experiments)
            if Path(path).exists()
        ],
    message:
        "Write the report"
    shell:
        "python -m maxk report --snakefile {params.snakefile:q} --config {params.config:q} 2>&1 | tee {log:q}"
