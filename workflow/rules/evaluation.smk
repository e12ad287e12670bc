"""Samples, verdicts and scores of every policy; the base model is one of them.

A job takes one shard of all evaluated datasets, so that a model is loaded once.
Writes results/samples/… (completions and prompts; results/drawn/ keeps them for a larger n), results/verdicts/… and
results/scores/{policy}/{dataset}.parquet.
"""

PROBLEMS = [OUT.problems(dataset) for dataset in CONFIG.evaluated]


rule sample:
    """Draw the evaluation completions of a policy."""
    input:
        policy=lambda wildcards: OUT.policy(trained(wildcards.policy)),
        problems=PROBLEMS,
    output:
        samples=[
            OUT.samples("{policy}", dataset, "{shard}") for dataset in CONFIG.evaluated
        ],
        prompts=[
            OUT.prompts("{policy}", dataset, "{shard}") for dataset in CONFIG.evaluated
        ],
    log:
        OUT.log("sample", "{policy}", "{shard}"),
    benchmark:
        OUT.benchmark("sample", "{policy}", "{shard}")
    priority: 2
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=doubled_on_retry(lambda _: memory.sample(CONFIG)),
        runtime=12 * 60,
        gpu=whole_gpus(CONFIG.sampling.gpus),
        gpu_percent=gpu_percent(CONFIG.sampling.gpus, CONFIG.sampling.gpu),
    params:
        config=OUT.config,
        settings=settings("sample"),
        n=CONFIG.sampling.n,
        shards=CONFIG.sampling.shards,
    message:
        "Sample from {wildcards.policy} (shard {wildcards.shard})"
    shell:
        "python -m maxk sample {wildcards.policy:q} --shard {wildcards.shard} --config {params.config:q} 2>&1 | tee {log:q}"


rule verify:
    """Run the sampled programs in the sandbox and compare their outputs."""
    input:
        problems=PROBLEMS,
        samples=rules.sample.output.samples,
    output:
        [OUT.verdicts("{policy}", dataset, "{shard}") for dataset in CONFIG.evaluated],
    log:
        OUT.log("verify", "{policy}", "{shard}"),
    benchmark:
        OUT.benchmark("verify", "{policy}", "{shard}")
    priority: 3
    conda:
        "../../environment.yml"
    threads: CONFIG.verification.workers
    resources:
        mem_mb=doubled_on_retry(lambda _: memory.verify(CONFIG)),
        runtime=12 * 60,
    params:
        config=OUT.config,
        settings=settings("verify"),
        shards=CONFIG.sampling.shards,
    message:
        "Grade the samples of {wildcards.policy} (shard {wildcards.shard})"
    shell:
        "python -m maxk verify {wildcards.policy:q} --shard {wildcards.shard} --config {params.config:q} 2>&1 | tee {log:q}"


rule score:
    """Compute max@k and pass@k of every problem from the verdicts."""
    input:
        files=[
            path("{policy}", dataset, shard)
            for path in (OUT.samples, OUT.verdicts)
            for dataset in CONFIG.evaluated
            for shard in SHARDS
        ],
    output:
        [OUT.scores("{policy}", dataset) for dataset in CONFIG.evaluated],
    log:
        OUT.log("score", "{policy}"),
    benchmark:
        OUT.benchmark("score", "{policy}")
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        mem_mb=8_000,
        runtime=60,
    params:
        config=OUT.config,
        settings=settings("score"),
        source=environment.source("evaluation", "estimators"),
    message:
        "Score {wildcards.policy}"
    shell:
        "python -m maxk score {wildcards.policy:q} --config {params.config:q} 2>&1 | tee {log:q}"
