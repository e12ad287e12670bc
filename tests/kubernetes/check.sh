#!/usr/bin/env bash
# A small experiment (tests/configs/smallest.yaml) through the shipped Kubernetes profile on a real cluster, set up as
# docs/clusters.md says. A training job is deleted midway, the same command runs again and has its Snakemake killed, and
# after `--unlock` it goes on. Each time the job must save a checkpoint as it is stopped, and in the end the tables must
# be those of a run within one pod, byte for byte.
#   make test-kubernetes IMAGE=maxk:check
# From Linux. IMAGE is made by the Dockerfile; the node has it or can pull it (`kind load docker-image maxk:check`). The
# cluster that kubectl reaches has one node, whose disk holds the volumes, with two cores and 12 GB. All happens in a
# namespace of its own, which is deleted at the end.
set -euo pipefail
cd "$(dirname "$0")/../.."
image=${1:?which image? make test-kubernetes IMAGE=…}
space=maxk-check
targets="results/seconds/table2.csv results/seconds/statistics.csv"

say() { echo "test-kubernetes: $*, after $SECONDS s"; }
die() { say "$*" >&2; exit 1; }
k() { kubectl --namespace $space "$@"; }
within() { k exec maxk -- bash -c "cd /work/maxk && $*"; }
pipeline() { # FOLDER ARGUMENTS
    within "snakemake --configfile tests/configs/smallest.yaml --directory /work/$1 $2 -- $targets"
}
# Jobs of one core, for a node of two; no retries, for the deleted job is to stop the run; and no checkpoints but those
# of jobs that are stopped.
options="--workflow-profile /work/maxk/workflow/profiles/kubernetes --jobs 2 --retries 0 --max-threads 1"
options+=" --config training='{checkpoint_every: 1000}'"

training=/work/cluster/results/seconds/policies/bon_offpolicy_exact/seed0
steps() { within "cat $training/metrics.jsonl 2> /dev/null | wc -l"; }
checkpoints() { within "ls $training/checkpoints/*/*/trainer_state.json 2> /dev/null | wc -l"; }
# Waits until the training job of the run in the background has made some steps more than STEPS.
until_training() { # STEPS LOG
    until [ "$(steps)" -ge $(($1 + 4)) ]; do
        kill -0 $run 2> /dev/null || { tail -n 40 "$2"; die "the run ended before it trained"; }
    done
}
require_stopped() { # CHECKPOINTS
    until [ -z "$(k get pods --selector app=maxk --field-selector=status.phase!=Succeeded,status.phase!=Failed \
        --output=name)" ]; do
        [ $SECONDS -lt 1200 ] || die "pods do not end"
        sleep 1
    done
    within "test ! -e $training/policy.json" || die "a stopped job left a policy"
    [ "$(checkpoints)" = "$1" ] || die "a stopped job left $(checkpoints) checkpoints where $1 should be"
}

training_status() {
    local code='import json, sys; print(json.load(sys.stdin)["sent"]["train/bon_offpolicy_exact/seed0"]["status"])'
    within "python -c '$code' < /work/cluster/results/seconds/tracking.json"
}

nodes=$(kubectl get nodes --output=name) || nodes=
if [ "$(wc -w <<< "$nodes")" != 1 ]; then
    echo "test-kubernetes: not run, kubectl reaches no cluster of one node (kind, minikube, k3s …)" >&2
    exit 2
fi
if kubectl get namespace $space > /dev/null 2>&1; then
    echo "test-kubernetes: not run, remove an earlier one: kubectl delete namespace/$space pv/$space" >&2
    exit 2
fi

work=$(mktemp --directory)
finish() {
    status=$?
    kill $(jobs -p) 2> /dev/null || true
    if [ $status = 0 ]; then
        within "rm -rf /work/*"
        kubectl delete namespace/$space persistentvolume/$space > /dev/null
        rm -rf "$work"
    else
        echo "test-kubernetes: failed; logs are in $work, namespace $space is left for a look" >&2
    fi
    exit $status
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# ---- the site: this folder with image and volumes named in the profile
mkdir "$work/maxk"
git ls-files --cached --others --exclude-standard -z |
    xargs -0 cp --parents --no-dereference --target-directory "$work/maxk"
profile=$work/maxk/workflow/profiles/kubernetes
sed -i "s#registry.example.org/maxk:0.1.0#$image#" "$profile"/{job,cluster}.yaml
# A claim of a volume on the node's disk; and a node of two cores is full with one job.
sed -i "s/accessModes:/storageClassName: $space\n  &/; s/requests: {cpu: \"2\"/requests: {cpu: 100m/" \
    "$profile/cluster.yaml"

kubectl create namespace $space
kubectl apply --filename=- << END
apiVersion: v1
kind: PersistentVolume
metadata: {name: $space}
spec:
  storageClassName: $space
  accessModes: [ReadWriteMany]
  capacity: {storage: 2Ti}
  hostPath: {path: /var/tmp/$space, type: DirectoryOrCreate}
END
k apply --filename="$profile/cluster.yaml"
# The node created the volume's folder for root; a site's storage classes heed fsGroup.
k apply --filename=- << END
apiVersion: v1
kind: Pod
metadata: {name: folders}
spec:
  restartPolicy: Never
  containers:
    - name: folders
      image: $image
      securityContext: {runAsUser: 0}
      command: [sh, -c, "rm -rf /work/* && chown 1000:1000 /work"]
      volumeMounts: [{name: maxk, mountPath: /work}]
  volumes: [{name: maxk, persistentVolumeClaim: {claimName: maxk}}]
END
until [ "$(k get pod folders --output='jsonpath={.status.phase}')" = Succeeded ]; do
    [ $SECONDS -lt 300 ] || die "the first pod did not run"
    sleep 1
done
k wait --for=condition=Ready pod/maxk --timeout=300s
tar --create --file=- --directory "$work" maxk |
    k exec --stdin maxk -- tar --extract --file=- --directory /work
say "the cluster is set up"

pipeline local "--cores 2 --config tracking='{enabled: false}'" > "$work/local.log" 2>&1 ||
    { tail -n 40 "$work/local.log"; die "the run in one pod failed"; }
say "the run in one pod is done"

pipeline cluster "$options" > "$work/first.log" 2>&1 &
run=$!
until_training 0 "$work/first.log"
job=$(k get jobs --output='jsonpath={range .items[?(@.metadata.annotations.rule=="train")]}{.metadata.name}{end}')
k delete job "$job"
say "training job $job was deleted after $(steps) steps"
if wait $run; then die "the run did not notice the deleted job"; fi
require_stopped 1

before=$(steps)
pipeline cluster "$options" > "$work/second.log" 2>&1 &
run=$!
until_training "$before" "$work/second.log"
within "python -c 'import psutil; [p.kill() for p in psutil.process_iter() if p.name() == \"snakemake\"]'"
if wait $run; then die "the killed run ended well"; fi
k delete jobs --selector app=maxk
say "Snakemake was killed (kill -9) and its jobs were deleted after $(steps) steps"
require_stopped 2
pipeline cluster "$options --unlock"

pipeline cluster "$options" > "$work/third.log" 2>&1 || { tail -n 40 "$work/third.log"; die "the third run failed"; }
say "the third run is done"
for target in $targets; do
    within "cmp /work/local/$target /work/cluster/$target"
done
[ "$(training_status)" = FINISHED ] || die "the tracked run of the training job is $(training_status)"
echo "test-kubernetes: passed in $SECONDS s"
