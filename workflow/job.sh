# What every job's shell reads first (rules/common.smk). It replaces Snakemake's own prefix, so it repeats the strict
# mode, in which `maxk … | tee log` fails if maxk fails.
set -euo pipefail

# Run the source beside this file, also in a job's own environment where maxk is not installed. (A workflow fetched from
# a repository has no source beside it: then the installed maxk runs.)
export PYTHONPATH="${BASH_SOURCE[0]%/*}/../src${PYTHONPATH:+:$PYTHONPATH}"

# torch allocates and frees its activations at every operation. By default glibc returns such blocks to the kernel, and
# each new one costs page faults. Keeping them, in huge pages, saves a seventh of the CPU time of training and sampling.
export GLIBC_TUNABLES="${GLIBC_TUNABLES:-glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=33554432:glibc.malloc.trim_threshold=1073741824}"

# A cluster sends SIGTERM to every process of a job. The shell and `tee` ignore it, so that maxk can write its last lines
# and its checkpoint.
trap '' TERM

# On a terminal, Snakemake's progress bars move the cursor up and erase what jobs print; there only the logs have it.
if [ -t 1 ]; then
    tee() { cat > "$1"; }
fi

# Snakemake ends its jobs by SIGKILL after Ctrl-C, which is no lack of memory.
trap 'interrupted=yes' INT

at_exit() {
    [ $? != 137 ] || [ -n "${interrupted-}" ] || echo "killed (SIGKILL), most likely because memory ran out" \
        "(dmesg or the batch system says so): raise the mem_mb of the job, lower training.per_device_batch_size," \
        "sampling.batch_tokens or verification.workers, or run fewer at once" >&2
    # Snakemake receives Ctrl-C, too; it would report a job that ends before it has noticed as failed.
    [ -z "${interrupted-}" ] || sleep 0.5
}
trap at_exit EXIT
