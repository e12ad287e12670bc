"""Configuration, tracking and data: what every job needs before it starts.

Makes results/config.json and results/tracking.json when a run starts, and results/data/{dataset}/problems.parquet.
"""

# Told before Snakemake looks at the files: it would list those that it cannot write. Only a run names cores or nodes.
asked = workflow.resource_settings
if (
    workflow.is_main_process
    and (asked.cores or asked.nodes)
    and not workflow.output_settings.dryrun
):
    with user_errors():
        if reason := refusal(OUT.root):
            raise UserError(reason)


# Not a rule: a changed configuration must not make everything out of date, and `ancient()` inputs of a rule that runs
# hide jobs that must run. What decides a job's result stands in its params.
onstart:
    with user_errors():
        files.claim(OUT.root)
        shell(CLOCK)
        shell(
            "python -m maxk configure {content:q} {here}",
            content=CONFIG.model_dump_json(),
            here="--local" if workflow.local_exec else "",
        )


onsuccess:
    shell("python -m maxk conclude --config {OUT.config:q}")
    print(outcome.success(CONFIG), file=sys.stderr)


onerror:
    shell("python -m maxk conclude --failed --config {OUT.config:q}")
    print(outcome.failure(log), file=sys.stderr)


def local_data(wildcards):
    """Local files of a dataset: after an edit, its problems are made again."""
    with user_errors():
        return CONFIG.datasets[wildcards.dataset].inputs


rule prepare:
    """Convert a source's rows to problems, counting what every filter leaves."""
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
        mem_mb=lambda wildcards: memory.prepare(CONFIG, wildcards.dataset),
        runtime=60,
    params:
        config=OUT.config,
        settings=settings("prepare", "dataset"),
        source=environment.source("data"),
    message:
        "Make the problems of {wildcards.dataset}"
    shell:
        "python -m maxk prepare {wildcards.dataset:q} --config {params.config:q} 2>&1 | tee {log:q}"
