# waits in ways that no timer of Python ends, signals blocked
import os, signal, threading
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
a, b = os.pipe()
lock = threading.Lock()
lock.acquire()
threading.Thread(target=os.read, args=(a, 1)).start()
lock.acquire()
