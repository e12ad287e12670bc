# timers every microsecond, handled in the interpreter, and a limit on CPU time that is signalled all the time
import resource, signal
calls = []
for number in (signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF, signal.SIGXCPU): signal.signal(number, lambda *a: calls.append(a))
for which in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF): signal.setitimer(which, 1e-6, 1e-6)
resource.setrlimit(resource.RLIMIT_CPU, (0, resource.getrlimit(resource.RLIMIT_CPU)[1]))
while True: pass
