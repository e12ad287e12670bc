# is called when the collector runs at the very end; never returns, and raises what is never shown
import gc, signal, weakref
for number in (signal.SIGPROF, signal.SIGXCPU): signal.signal(number, signal.SIG_IGN)
def spin(phase, information):
    while True: pass
class Ring: pass
ring = Ring(); ring.ring = ring
weakref.finalize(ring, print, "late")
print("6", flush=True)
gc.callbacks.append(spin)
