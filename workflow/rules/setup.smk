"""Configuration, tracking and data: what every job needs before it starts.

Makes results/config.json, results/tracking.json and results/data/{dataset}/problems.parquet.
"""


localrules:
    configure,
    track,


rule configure:
    """Write the resolved configuration that all stages read."""
    output:
        OUT.config,
    log:
        OUT.log("configure"),
    conda:
        "../../environment.yml"
    params:
        content=lambda _: CONFIG.model_dump_json(),
    message:
        "Write the resolved configuration to {output}"
    shell:
        "python -m maxk configure {params.content:q} --config {output:q} 2> {log:q}"


rule track:
    """Create the MLflow database, experiment and parent run, before jobs run side by side."""
    input:
        config=ancient(OUT.config),
    output:
        OUT.tracking,
    log:
        OUT.log("track"),
    conda:
        "../../environment.yml"
    params:
        experiment=CONFIG.name,
        tracking=str(CONFIG.tracking),
    message:
        "Start the experiment in MLflow"
    shell:
        "python -m maxk track --config {input.config:q} 2>&1 | tee {log:q}"


rule prepare:
    """Turn a source's rows into problems, counting what every filter leaves."""
    input:
        config=ancient(OUT.config),
        tracking=ancient(OUT.tracking),
    output:
        problems=OUT.problems("{dataset}"),
        funnel=OUT.funnel("{dataset}"),
    log:
        OUT.log("prepare", "{dataset}"),
    benchmark:
        OUT.benchmark("prepare", "{dataset}")
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=4_000,
        runtime=60,
    params:
        settings=settings("prepare", "dataset"),
    message:
        "Make the problems of {wildcards.dataset}"
    shell:
        "python -m maxk prepare {wildcards.dataset:q} --config {input.config:q} 2>&1 | tee {log:q}"
