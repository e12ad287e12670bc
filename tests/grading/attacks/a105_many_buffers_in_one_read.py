# reads 2 GiB of random bytes in one call, in which no limit on CPU time is noticed
import os
source = os.open("/dev/urandom", os.O_RDONLY)
while True: os.readv(source, [bytearray(64 << 20)] * 32)
