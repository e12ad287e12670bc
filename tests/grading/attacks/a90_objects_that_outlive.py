# objects of the kernel that stay when the process has ended, or that are counted per user
import ctypes, os
if os.uname().machine != "x86_64": raise SystemExit
libc = ctypes.CDLL(None, use_errno=True)
calls = {
    "shmget": (29, 0, 4096, 0o1666), "semget": (64, 0, 1, 0o1666), "msgget": (68, 0, 0o1666), "mq_open": (240, b"pwn", 0o102, 0o666, None),
    "inotify_init": (253,), "inotify_init1": (294, 0), "fanotify_init": (300, 0, 0), "timerfd_create": (283, 1, 0), "signalfd4": (289, -1, ctypes.create_string_buffer(8), 8, 0),
    "memfd_create": (319, b"pwn", 0), "memfd_secret": (447, 0), "landlock_create_ruleset": (444, None, 0, 1), "pidfd_open": (434, os.getpid(), 0),
    "io_setup": (206, 8, ctypes.create_string_buffer(8)), "mlockall": (151, 3), "set_mempolicy": (238, 0, None, 0), "personality": (135, 0x0040000), "ioprio_set": (251, 1, 0, 0x2000),
    "shm_open": (257, -100, b"/dev/shm/made_pwn", 0o102, 0o666), "setsid": (112,), "setpgid": (109, 0, 0), "vmsplice": (278, 1, None, 0, 0), "syslog": (103, 3, ctypes.create_string_buffer(64), 64),
}
for name, (number, *arguments) in calls.items():
    if libc.syscall(number, *arguments) >= 0: print("PWNED", name)
print("clean")
