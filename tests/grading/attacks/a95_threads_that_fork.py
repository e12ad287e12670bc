# starts processes from several threads at once, each in another way
import ctypes, os, threading
threads = []
libc = ctypes.CDLL(None)
ways = [os.fork, lambda: os.posix_spawn("/bin/true", ["true"], {}), libc.fork, libc.vfork, lambda: libc.syscall(435, None, 0), lambda: os.forkpty()[0]]
start = threading.Barrier(len(ways) + 1)
def run(way):
    start.wait()
    try: pid = way()
    except (OSError, RuntimeError): return
    if pid == 0: libc._exit(0)
    if pid > 0: os.write(1, b"PWNED")
for way in ways:
    threads.append(threading.Thread(target=run, args=(way,)))
    threads[-1].start()
start.wait()
for thread in threads: thread.join()
