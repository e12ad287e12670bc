# 0 and negative numbers name groups, in which the server is
import os, signal
for target in (0, -os.getpgrp(), -os.getppid()):
    try: os.kill(target, signal.SIGCONT); print("PWNED", target)
    except OSError as e: print(e)
