# tells the server that a child has ended
import ctypes, os, signal
try: os.kill(os.getppid(), signal.SIGCHLD); print("PWNED")
except OSError as e: print(e)
