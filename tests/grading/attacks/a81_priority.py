# takes CPU time from others by priority and affinity
import os
for call in (lambda: os.nice(-5), lambda: os.sched_setaffinity(0, {0}), lambda: os.setpriority(os.PRIO_USER, 0, 19), lambda: os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0)), lambda: os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)):
    try: call(); print("PWNED")
    except OSError: pass
print("clean")
