# other children of the same server have numbers close to its own
import ctypes, os, resource
libc = ctypes.CDLL(None, use_errno=True)
me = os.getpid()
for pid in [*range(max(1, me - 40), me), *range(me + 1, me + 40), os.getppid()]:
    for name, call in {
        "limits": lambda: resource.prlimit(pid, resource.RLIMIT_CPU, (0, 0)),
        "read limits": lambda: resource.prlimit(pid, resource.RLIMIT_CPU),
        "affinity": lambda: os.sched_setaffinity(pid, {0}),
        "read affinity": lambda: os.sched_getaffinity(pid),
        "scheduler": lambda: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0)),
        "priority": lambda: os.setpriority(os.PRIO_PROCESS, pid, 19),
        "group": lambda: os.setpgid(pid, pid),
        "descriptor": lambda: os.pidfd_open(pid),
    }.items():
        try: call(); print("PWNED", name, pid)
        except OSError: pass
print("clean")
