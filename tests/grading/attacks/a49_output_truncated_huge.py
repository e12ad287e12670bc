# a sparse gigabyte of output
import os
try: os.ftruncate(1, 1 << 34); print("PWNED")
except OSError as e: print(e)
