# new namespaces give new capabilities
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
if libc.unshare(0x10000000) == 0: print("PWNED unshare")
