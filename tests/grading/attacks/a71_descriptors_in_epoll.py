# watches are counted per user
import os, select
watched, sets = 0, []
try:
    while True:
        sets.append(select.epoll())
        a, b = os.pipe()
except OSError as e: print(e)
for one in sets:
    for fd in range(3, 200):
        try: one.register(fd); watched += 1
        except (OSError, ValueError): pass
print("PWNED" if watched > 1 << 16 else "stopped", watched)
