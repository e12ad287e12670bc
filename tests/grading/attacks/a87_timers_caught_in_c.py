# handles the signals of the CPU timers in C, then keeps the interpreter busy in one call
import faulthandler, re, signal, sys
for number in (signal.SIGPROF, signal.SIGXCPU): faulthandler.register(number, file=sys.stdout, chain=False)
re.match("(a|a)*$", "a" * 64 + "b")
