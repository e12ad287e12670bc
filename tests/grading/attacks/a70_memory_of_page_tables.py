# touches one page of each table, and splits maps, so that the kernel holds more than the program
import mmap
size = 700 << 20
try: space = mmap.mmap(-1, size)
except OSError as e: raise SystemExit(str(e))
for at in range(0, size, 2 << 20): space[at] = 1
parts = []
try:
    for _ in range(20000): parts.append(mmap.mmap(-1, 4096, prot=mmap.PROT_READ | len(parts) % 2 * mmap.PROT_WRITE))
except (OSError, ValueError) as e: print(e)
print("stopped", len(parts))
