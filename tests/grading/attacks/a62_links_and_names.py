# makes or changes names where it runs
import os
hit = []
for folder in (".", "/tmp", "/dev/shm", "/var/tmp", "@OUTSIDE_DIR@"):
    for name, act in {
        "symlink": lambda p: os.symlink("/etc/passwd", p),
        "link": lambda p: os.link("/usr/lib/os-release", p),
        "mkdir": lambda p: os.mkdir(p),
        "mkfifo": lambda p: os.mkfifo(p),
        "mknod": lambda p: os.mknod(p),
        "rename": lambda p: os.rename(folder + "/victim", p),
        "unlink": lambda p: os.unlink(folder + "/victim"),
        "chmod": lambda p: os.chmod(folder, 0o777),
        "utime": lambda p: os.utime(folder),
    }.items():
        try: act(folder + "/made_pwn"); hit.append((folder, name))
        except OSError: pass
if hit: print("PWNED", hit)
