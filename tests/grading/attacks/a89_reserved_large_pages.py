# large pages that an administrator reserved count neither as resident memory nor as the program's own
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
L = ctypes.c_long
for size in (0, 21 << 26, 30 << 26):  # default, 2 MiB, 1 GiB
    at = libc.mmap(None, L(1 << 30), 3, 0x40022 | size, -1, L(0))
    if at != ctypes.c_void_p(-1).value or ctypes.get_errno() != errno.EPERM: print("PWNED", size, ctypes.get_errno())
print("clean")
