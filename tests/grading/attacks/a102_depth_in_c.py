# recursion that the interpreter does not count, with the crash handler on and a thread of a large stack
import faulthandler, sys, threading
faulthandler.enable(file=sys.stdout)
sys.setrecursionlimit((1 << 31) - 1)
threading.stack_size(64 << 20)
def down():
    class Deep:
        def __repr__(self): return repr(self)
        def __getattr__(self, name): return getattr(self, name + "x")
    nested = []
    for _ in range(10**6): nested = [nested]
    print(len(repr(nested)))
thread = threading.Thread(target=down)
thread.start()
thread.join()
