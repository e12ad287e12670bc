# puts something else in the output's place, and changes the output through a map until the end
import mmap, os, threading
os.write(1, b"x" * 8192)
space = mmap.mmap(1, 8192)
inside, outside = os.pipe()
for target in (0, 2, 1): os.dup2(outside, target)
def change():
    while True: space[:] = bytes([space[0] ^ 1]) * 8192
threading.Thread(target=change, daemon=True).start()
for _ in range(1000): os.write(1, b"6\n")
os.close(1)
os.close(0)
os._exit(0)
