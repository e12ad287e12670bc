"""Experiments beyond the paper's tables; their policies are trained only on demand.

Writes results/experiments/{experiment}.{csv,md,png,pdf}.
"""


rule experiment:
    """Write an experiment's table and figure."""
    input:
        scores=lambda wildcards: CONFIG.scores(
            CONFIG.restricted_to(wildcards.experiment).policies
        ),
    output:
        [
            OUT.experiment("{experiment}", suffix)
            for suffix in ("csv", "md", "png", "pdf")
        ],
    log:
        OUT.log("experiment", "{experiment}"),
    benchmark:
        OUT.benchmark("experiment", "{experiment}")
    wildcard_constraints:
        experiment="|".join(CONFIG.experiments) or "none",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=4_000,
        runtime=30,
    params:
        config=OUT.config,
        settings=lambda wildcards: canonical(
            [
                CONFIG.experiments[wildcards.experiment].model_dump(),
                CONFIG.restricted_to(wildcards.experiment).settings("report"),
            ]
        ),
        source=environment.source("reporting", "estimators", "statistics"),
    message:
        "Report on experiment {wildcards.experiment}"
    shell:
        "python -m maxk experiment {wildcards.experiment} --config {params.config:q} 2>&1 | tee {log:q}"
