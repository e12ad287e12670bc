# spends its time in the kernel
import os
while True: os.getrandom(1 << 28)
