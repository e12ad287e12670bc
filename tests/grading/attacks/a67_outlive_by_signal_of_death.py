# takes back what kills it when the server ends; every process of its own is one too many
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
hit = [option for option, value in ((1, 0), (4, 1), (36, 1), (59, 1), (22, 1), (0x59616D61, -1)) if libc.prctl(option, value, 0, 0, 0) == 0]
if hit: print("PWNED", hit)
