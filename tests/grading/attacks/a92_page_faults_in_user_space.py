# stops the kernel in the middle of a copy for as long as it likes
import ctypes, os
libc = ctypes.CDLL(None)
print("PWNED", libc.syscall({"x86_64": 323, "aarch64": 282}[os.uname().machine], 1))
