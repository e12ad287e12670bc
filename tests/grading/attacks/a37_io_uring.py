# the asynchronous interface does system calls no filter sees
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
r = libc.syscall(425, 4, ctypes.create_string_buffer(256))
print("PWNED" if r >= 0 else "no", r)
