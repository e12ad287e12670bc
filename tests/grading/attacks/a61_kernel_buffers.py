# memory that no limit of a process counts: pipes and sockets; an honest neighbour needs some too
import os, socket, time
full = 0
try:
    while True:
        for a, b in (os.pipe(), [s.detach() for s in socket.socketpair()]):
            os.set_blocking(b, False)
            try:
                while True: full += os.write(b, bytes(1 << 16))
            except BlockingIOError: pass
except OSError as e: print(e)
print("PWNED" if full > 64 << 20 else "stopped", full)
time.sleep(0.5)
