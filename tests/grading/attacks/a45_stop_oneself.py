# a stopped child sends SIGCHLD too: the server must not take it for an end
import os, signal
os.kill(os.getpid(), signal.SIGSTOP)
