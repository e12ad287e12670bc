# asks for processes with flags that look like those of threads
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
L = ctypes.c_long
def text(name='PyRun_SimpleString'):
    return ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
for flags in (0x10000, 0x10800, 0x10100, 0x10900 ^ 0x100, 0x10f00 & ~0x800, 1 << 32 | 0x10000):
    if libc.syscall(L(56), L(flags), L(0), L(1), L(1), L(0)) >= 0: print("PWNED")
import threading
for _ in range(300):
    t = threading.Thread(target=int); t.start(); t.join()
print("clean")
sys.stdout.flush()
libc.syscall(L(56), L(0x10f00 | 0x4000), L(0), L(0), L(0), L(0))  # two threads on one stack
