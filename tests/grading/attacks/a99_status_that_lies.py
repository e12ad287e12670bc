# ends with objects that are not what they say, where the exit status is worked out
import sys
class Code(int):
    def __and__(self, other): return Code(0)
    def __le__(self, other): return Code(1)
    __ge__ = __lt__ = __gt__ = __rand__ = __le__
    def __bool__(self): raise KeyboardInterrupt
class Ended(SystemExit):
    __class__ = property(lambda self: MemoryError)
    code = property(lambda self: Code(7))
class Stream:
    closed = property(lambda self: sys.setrecursionlimit(2))
    def __getattr__(self, name): raise SystemExit(0)
sys.stdout = sys.__stdout__ = Stream()
sys.excepthook = lambda *details: sys.exit(Code(0))
raise Ended
