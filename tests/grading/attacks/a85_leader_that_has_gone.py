# ends its first thread, so that the process cannot be waited for while another one runs
import ctypes, os, threading
libc = ctypes.CDLL(None)
def spin():
    while True: pass
threading.Thread(target=spin).start()
libc.syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)
