import os
for base in ("/dev/shm", "/dev/mqueue", "/run", "/proc/self", "/sys"):
    try: print("PWNED", base, os.listdir(base))
    except OSError as e: print(e)
