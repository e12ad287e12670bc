# memory no RLIMIT_DATA counts: shared anonymous maps, pipes, socket buffers
import mmap, os, socket
n = 0
try:
    maps = []
    for _ in range(64):
        m = mmap.mmap(-1, 64 << 20, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS); m.write(b"x" * (64 << 20)); maps.append(m); n += 64
except BaseException as e: print(type(e).__name__, e)
print("PWNED" if n >= 2048 else "stopped", n)
