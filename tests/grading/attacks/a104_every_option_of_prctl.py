# whatever a process may ask about itself: dumps, merging of equal pages, speculation, who may trace it
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
allowed = {15, 16, 38}  # its name, and no new privileges
for option in [*range(1, 100), 0x41555856, 0x53564D41, 0x59616D61]:
    for value in (0, 1, 2):
        if option not in allowed and libc.prctl(option, value, ctypes.create_string_buffer(64), 0, 0) >= 0: print("PWNED", option, value)
print("clean")
