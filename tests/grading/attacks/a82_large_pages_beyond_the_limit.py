# takes memory in large pages by touching a byte of each; in small ones where there are none
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
L = ctypes.c_long
at = libc.mmap(None, L(400 << 20), 3, 0x22, -1, L(0))
libc.madvise(L(at), L(400 << 20), 14)
for step in (2 << 20, 4096):
    for page in range(at, at + (400 << 20), step): ctypes.memset(page, 1, 1)
print("touched")
