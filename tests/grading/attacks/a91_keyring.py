# keys in the user's keyring outlive the process and are counted per user
import ctypes, os
libc = ctypes.CDLL(None)
print("PWNED", libc.syscall({"x86_64": 248, "aarch64": 217}[os.uname().machine], b"user", b"pwn", b"data", 4, -5))
