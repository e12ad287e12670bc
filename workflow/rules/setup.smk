"""Hooks at the start and the end of a run, and the data.

Writes results/config.json and results/tracking.json when a run starts, and results/data/{dataset}/problems.parquet.
"""


# Not a rule: a changed configuration must not make every result out of date, and `ancient()` inputs of a rule that runs
# hide jobs that must run. Each rule has the settings that determine its result in its params.
onstart:
    with user_errors():
        RUN_LOCK.append(files.lock(OUT.root, wait=False))
        shell(
            "python -m maxk configure {content:q} {here}",
            content=CONFIG.model_dump_json(),
            here="--local" if workflow.local_exec else "",
        )
    if workflow.local_exec:
        # The limit of job starts per second, which no machine reaches. With it, each search for ready jobs leads to
        # another one a second later, and each finished job to one more: after 500 jobs they take a whole core.
        workflow.scheduler.job_rate_limiter = None
    exit_report.start(CONFIG)


onsuccess:
    shell("python -m maxk finalize --config {OUT.config:q}")
    atexit.register(exit_report.success(CONFIG))


onerror:
    if INTERRUPTION.came:
        INTERRUPTION.tell()
    else:
        atexit.register(exit_report.failure)
    shell("python -m maxk finalize --failed --config {OUT.config:q}")
    if INTERRUPTION.came:
        sys.exit(interruption.STATUS)  # Snakemake's own is that of a failed run


rule prepare:
    """Convert a source's rows into problems; count the rows left by every filter."""
    input:
        local_data,
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
        mem_mb=doubled_on_retry(
            lambda wildcards: memory.prepare(CONFIG, wildcards.dataset)
        ),
        runtime=60,
    params:
        config=OUT.config,
        settings=settings("prepare", "dataset"),
        content=lambda wildcards: content(local_data(wildcards)),
        source=environment.source("data"),
    message:
        "Make the problems of {wildcards.dataset}"
    shell:
        "python -m maxk prepare {wildcards.dataset:q} --config {params.config:q} 2>&1 | tee {log:q}"
