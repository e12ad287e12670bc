#!/usr/bin/env bash
# A Slurm cluster of two nodes on this machine, without systemd:  cluster.sh start FOLDER | cluster.sh stop FOLDER
# Needs root and Debian's munge, slurmctld, slurmd and slurm-client. Each node claims 32 cores, 1 TB and one GPU, so that
# jobs of any size fit; nothing is enforced. Partitions: `cpu` and `gpu`.
set -euo pipefail
export PATH=$PATH:/usr/sbin:/sbin
action=$1 folder=$2
conf=/etc/slurm/slurm.conf # at no other place do the steps of a job look for it
mark="# written by maxk's tests/slurm/cluster.sh"

start() {
    if [ -e $conf ] && ! grep -q "^$mark" $conf; then
        echo "$conf belongs to a cluster of this machine; it is left alone" >&2
        exit 2
    fi
    mkdir -p "$folder"/{ctld,slurmd,log} /etc/slurm
    touch "$folder"/gpu
    cat > $conf << END
$mark
ClusterName=loopback
SlurmctldHost=$(hostname)(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
StateSaveLocation=$folder/ctld
SlurmdSpoolDir=$folder/slurmd/%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.%n.pid
SlurmctldLogFile=$folder/log/slurmctld.log
SlurmdLogFile=$folder/log/slurmd.%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SchedulerParameters=sched_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc=$folder/jobs.txt
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
MinJobAge=86400
GresTypes=gpu
NodeName=one NodeHostname=$(hostname) NodeAddr=127.0.0.1 Port=6821 CPUs=32 RealMemory=1000000 Gres=gpu:1
NodeName=two NodeHostname=$(hostname) NodeAddr=127.0.0.1 Port=6822 CPUs=32 RealMemory=1000000 Gres=gpu:1
PartitionName=cpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=gpu Nodes=ALL MaxTime=INFINITE State=UP
END
    echo "Name=gpu File=$folder/gpu" > /etc/slurm/gres.conf
    echo "CgroupAutomount=no" > /etc/slurm/cgroup.conf
    [ -f /etc/munge/munge.key ] || mungekey --create --keyfile=/etc/munge/munge.key
    mkdir -p /run/munge
    chown munge:munge /run/munge /etc/munge/munge.key
    if ! munge --no-input > /dev/null 2>&1; then
        runuser -u munge -- munged
        touch "$folder/our-munged"
    fi
    slurmctld
    slurmd -N one
    slurmd -N two
    for _ in $(seq 60); do
        if [ "$(sinfo --noheader --states=idle --partition=gpu --format=%D)" = 2 ]; then
            sinfo
            return
        fi
        sleep 0.5
    done
    tail "$folder"/log/*.log >&2
    echo "Slurm did not start" >&2
    exit 1
}

stop() {
    if [ -f "$folder/slurmctld.pid" ]; then
        timeout 10 scancel --user=root || true
        for _ in $(seq 20); do
            [ -n "$(timeout 10 squeue --noheader)" ] || break # a job's processes end before their slurmd
            sleep 0.5
        done
    fi
    for daemon in slurmd.one slurmd.two slurmctld; do
        [ -f "$folder/$daemon.pid" ] || continue
        pid=$(cat "$folder/$daemon.pid")
        kill "$pid" || true
        for _ in $(seq 40); do
            kill -0 "$pid" 2> /dev/null || continue 2
            sleep 0.5
        done
        kill -KILL "$pid" || true
    done
    [ ! -e "$folder/our-munged" ] || munged --stop
    if [ -e $conf ] && grep -q "^$mark" $conf; then
        rm -f $conf /etc/slurm/gres.conf /etc/slurm/cgroup.conf
    fi
}

"$action"
