"""The base policy, and one training job per objective and seed.

Writes results/policies/base/policy.json and results/policies/{objective}/seed{seed}/policy.json, each with its model. A
training also writes its milestones, results/policies/{objective}@{i}/seed{seed}/, where an experiment asks for them.
"""


rule base:
    """Pretrain the base policy, or take it from the hub or a folder."""
    input:
        CONFIG.base.inputs,
    output:
        OUT.policy(BASE),
    log:
        OUT.log("base"),
    benchmark:
        OUT.benchmark("base")
    priority: 1000
    conda:
        "../../environment.yml"
    threads: CONFIG.base.processes
    resources:
        mem_mb=8_000,
        runtime=120,
    params:
        config=OUT.config,
        settings=settings("base"),
        content=lambda _: content(CONFIG.base.inputs),
    message:
        "Make the base policy"
    shell:
        "python -m maxk base --processes {threads} --config {params.config:q} 2>&1 | tee {log:q}"


rule train:
    """Train a policy with GRPO and the objective's advantages; resumes from its last checkpoint."""
    input:
        base=OUT.policy(BASE),
        problems=lambda wildcards: [
            OUT.problems(dataset) for dataset in training_of(wildcards).datasets
        ],
        entropy=lambda wildcards: [
            OUT.policy(policy_name(followed, wildcards.seed))
            for followed in [CONFIG.entropy_of(wildcards.objective)]
            if followed
        ],
    output:
        policy=OUT.policy("{objective}/seed{seed}"),
    log:
        OUT.log("train", "{objective}", "seed{seed}"),
    benchmark:
        OUT.benchmark("train", "{objective}", "seed{seed}")
    priority: lambda wildcards: longest_first(training_of(wildcards))
    conda:
        "../../environment.yml"
    threads: lambda wildcards: training_of(wildcards).processes_per_node
    resources:
        mem_mb=doubled_on_retry(
            lambda wildcards: memory.train(CONFIG, wildcards.objective)
        ),
        runtime=24 * 60,
        nodes=lambda wildcards: training_of(wildcards).nodes,
        gpu=lambda wildcards: (
            whole_gpus(training_of(wildcards).processes)
            if training_of(wildcards).nodes == 1
            else 0
        ),
        gres=on_several_nodes("gres"),
        tasks=on_several_nodes("tasks"),
        tasks_per_gpu=on_several_nodes("tasks_per_gpu"),
        mpi=on_several_nodes("mpi"),
        vllm_server=lambda wildcards: int(
            training_of(wildcards).generator.mode == "server"
        ),
        gpu_percent=lambda wildcards: gpu_percent(
            training_of(wildcards).processes, training_of(wildcards).gpu
        ),
    params:
        config=OUT.config,
        settings=settings("train", "objective"),
        milestones=lambda wildcards: CONFIG.milestones(wildcards.objective),
    message:
        "Train {wildcards.objective}, seed {wildcards.seed}"
    shell:
        "python -m maxk train {wildcards.objective:q} --seed {wildcards.seed} --config {params.config:q} 2>&1 | tee {log:q}"
