# looks for what an earlier program of the same server printed, in every container and every frame
import gc, sys
MARK = "OUTPUT-OF-" + str("ANOTHER-PROGRAM")
def holds(value):
    return isinstance(value, str) and MARK in value or isinstance(value, (bytes, bytearray)) and MARK.encode() in value
def items(o):
    if isinstance(o, dict): return list(o.values()) + list(o)
    return list(o) if isinstance(o, (list, tuple, set, frozenset)) else []
for o in gc.get_objects():
    if o is not globals() and any(holds(x) for x in items(o)): print("PWNED", str(o)[:80])
frame = sys._getframe().f_back
while frame:
    if any(holds(x) for x in frame.f_locals.values()): print("PWNED frame")
    frame = frame.f_back
