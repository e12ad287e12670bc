# has the kernel copy 2 GiB in one call
import os
try: source = os.open("/dev/urandom", os.O_RDONLY)
except OSError: source = 0
while True: os.sendfile(2, source, None, (1 << 31) - 4096)
