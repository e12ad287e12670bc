# changes its input for the runs that come after
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
L = ctypes.c_long
def text(name='PyRun_SimpleString'):
    return ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
data = os.read(0, 100)
print("PWNED" if data != b"3\n" else "clean")
for call in (lambda: os.pwrite(0, b"9\n", 0), lambda: os.ftruncate(0, 0), lambda: os.write(0, b"x")):
    try: call(); print("PWNED")
    except OSError: pass
at = libc.mmap(None, L(4096), 3, 1, 0, L(0))
if at and at != ctypes.c_void_p(-1).value:
    ctypes.memmove(at, b"9\n", 2); print("PWNED")
