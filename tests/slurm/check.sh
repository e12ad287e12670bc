#!/usr/bin/env bash
# A small experiment (tests/configs/smallest.yaml) through the shipped Slurm profile and a real Slurm of two nodes on this
# machine. Its training job takes one process on each node; it is cancelled midway and saves a checkpoint, the same
# command runs again, and the tables must be those of a run without Slurm, with two processes on one node, byte for byte.
# `make test-slurm`, as root on Debian; it installs Slurm and munge where they are missing, and stops them at the end.
set -euo pipefail
export PATH=$PATH:/usr/sbin:/sbin # Debian's daemons; a bare environment lacks these folders
cd "$(dirname "$0")/../.."
here=$PWD

if [ "$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then
    echo "test-slurm: not run, it needs root and apt-get" >&2
    exit 2
fi
if ! (command -v slurmctld && command -v slurmd && command -v munged && command -v sbatch) > /dev/null; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq munge slurmctld slurmd slurm-client > /dev/null
fi

work=$(mktemp --directory)
chmod 755 "$work"
# Snakemake's Slurm plugin, as locked: in a folder of its own, for where it is installed every call asks Slurm.
pins=$(grep '^snakemake-executor-plugin-slurm' requirements/gpu.txt)
pip install --quiet --no-deps --target "$work/plugins" $pins
export PYTHONPATH=$work/plugins${PYTHONPATH:+:$PYTHONPATH}
run=
finish() {
    status=$?
    [ -z "$run" ] || kill -- "-$run" 2> /dev/null || true
    tests/slurm/cluster.sh stop "$work/slurm"
    if [ $status = 0 ]; then rm -rf "$work"; else echo "test-slurm: failed; logs are in $work" >&2; fi
    exit $status
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

say() { echo "test-slurm: $*, after $SECONDS s"; }
die() { say "$*" >&2; exit 1; }
targets=(results/seconds/table2.csv results/seconds/statistics.csv)
pipeline() {
    snakemake --snakefile "$here/Snakefile" --configfile "$here/tests/configs/smallest.yaml" --directory "$work/$1" \
        "${@:2}" -- "${targets[@]}"
}
# Site values on the command line; else the profile as it stands. No retries: the cancelled job is to stop the run. No
# checkpoint but that of a job that is stopped. Jobs ask Slurm for GPUs that are pretended, so the configuration says that
# they compute on the CPU.
on_slurm() {
    pipeline slurm --workflow-profile "$here/workflow/profiles/slurm" --jobs 2 --retries 0 --latency-wait 10 \
        --set-resources train:gres=gpu:1 sample:gpu=1 --seconds-between-status-checks 1 \
        --config 'training={processes: 2, nodes: 2, checkpoint_every: 1000}' \
        --slurm-no-account --slurm-init-seconds-before-status-checks 1 --slurm-status-command squeue
}

pipeline local --cores 2 --config 'training={processes: 2}' > "$work/local.log" 2>&1 || { tail -n 40 "$work/local.log"; die "the local run failed"; }
say "the local run is done"
tests/slurm/cluster.sh start "$work/slurm"
say "Slurm is up"

set -o monitor # the run is a process group of its own
on_slurm > "$work/first.log" 2>&1 &
run=$!
set +o monitor
training=$work/slurm/results/seconds/policies/bon_offpolicy_exact/seed0
until [ "$(cat "$training/metrics.jsonl" 2> /dev/null | wc -l)" -ge 4 ]; do
    kill -0 "$run" 2> /dev/null || { tail -n 40 "$work/first.log"; die "the run ended before its training job"; }
    sleep 0.1
done
job=$(squeue --noheader --states=RUNNING --format='%i %k' | awk '/rule_train.*bon_offpolicy_exact/ {print $1}')
scancel "$job"
say "training job $job was cancelled"
if wait "$run"; then die "the run did not notice the cancelled job"; fi
run=
until [ -z "$(squeue --noheader --jobs="$job" 2> /dev/null)" ]; do sleep 0.5; done
[ ! -e "$training/policy.json" ] || die "the cancelled job left a policy"
saved=$(ls "$training"/checkpoints/*/*/trainer_state.json 2> /dev/null | wc -l)
[ "$saved" = 1 ] || die "the cancelled job left $saved checkpoints, not one"
grep -q "JobId=$job .*JobState=CANCELLED .*Partition=gpu .*NodeList=one,two .*NodeCnt=2" "$work/slurm/jobs.txt" ||
    die "Slurm did not cancel job $job, or it was not on two nodes"

on_slurm > "$work/second.log" 2>&1 || { tail -n 40 "$work/second.log"; die "the second run failed"; }
say "the second run is done"
grep -q "Partition=cpu" "$work/slurm/jobs.txt" || die "no job ran in partition cpu"
for target in "${targets[@]}"; do
    cmp "$work/local/$target" "$work/slurm/$target"
done
echo "test-slurm: passed in $SECONDS s; $(grep -c JobState=COMPLETED "$work/slurm/jobs.txt") jobs went through Slurm"
