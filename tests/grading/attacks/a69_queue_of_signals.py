# queued signals are counted per user
import ctypes, os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN, signal.SIGPROF, signal.SIGXCPU])
for _ in range(2000): os.kill(os.getpid(), signal.SIGRTMIN)
n = 0
while signal.sigtimedwait([signal.SIGRTMIN], 0): n += 1
print("PWNED" if n > 1 else "stopped", n)
