# time that jumps would end or spare other runs
import time
time.clock_settime(time.CLOCK_REALTIME, 0)
print("PWNED")
