# takes memory in large pages by touching a byte of each
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
L = ctypes.c_long
def text(name='PyRun_SimpleString'):
    return ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
at = libc.mmap(None, L(400 << 20), 3, 0x22, -1, L(0))
libc.madvise(L(at), L(400 << 20), 14)
for page in range(at, at + (400 << 20), 2 << 20): ctypes.memset(page, 1, 1)
print("touched")
