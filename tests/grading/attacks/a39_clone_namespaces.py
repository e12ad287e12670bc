import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
nr = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
pid = libc.syscall(nr, 0x10000000 | 17, 0, 0, 0, 0)
if pid == 0: os._exit(0)
print("PWNED" if pid > 0 else "no", pid)
