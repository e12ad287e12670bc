# ends while its threads wait for the server to allow more of them
import threading, os
def again(depth=0):
    try: threading.Thread(target=again, daemon=True).start()
    except RuntimeError: os._exit(0)
for _ in range(20): again()
import time; time.sleep(0.05)
os._exit(0)
