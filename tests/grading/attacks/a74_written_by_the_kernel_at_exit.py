# has the kernel write into its output when it has ended
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
L = ctypes.c_long
def text(name='PyRun_SimpleString'):
    return ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
print("clean" * 2000, flush=True)
at = libc.mmap(None, L(4096), 3, 1, 1, L(0))
if at and at != ctypes.c_void_p(-1).value: libc.syscall(L(218), L(at))
