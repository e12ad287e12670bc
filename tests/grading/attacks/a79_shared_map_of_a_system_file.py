# maps system files shared and asks for write access
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
L = ctypes.c_long
def text(name='PyRun_SimpleString'):
    return ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
import mmap
at = 0
found = 0
for name in ("/usr/lib/x86_64-linux-gnu/gconv/gconv-modules.cache", "/etc/ld.so.cache", os.__file__):
    try: fd = os.open(name, os.O_RDONLY)
    except OSError: continue
    at = libc.mmap(None, L(4096), 1, 1, fd, L(0))
    if at and at != ctypes.c_void_p(-1).value:
        if libc.mprotect(L(at), L(4096), 3) == 0: print("PWNED")
        if libc.madvise(L(at), L(4096), 9) == 0: print("PWNED")
print("clean")
