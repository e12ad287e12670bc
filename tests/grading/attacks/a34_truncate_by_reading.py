# before Landlock ABI 3 a read-only open with O_TRUNC destroyed files
import os
for path in ("@SECRET_FILE@", "@OUTSIDE_DIR@/victim"):
    for flags in (os.O_RDONLY | os.O_TRUNC, os.O_WRONLY, os.O_RDWR | os.O_CREAT, os.O_TMPFILE | os.O_RDWR):
        try: os.open(path, flags); print("PWNED", path, flags)
        except OSError as e: print(e)
    try: os.truncate(path, 0); print("PWNED truncate")
    except OSError as e: print(e)
