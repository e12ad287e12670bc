# a thread made as by vfork: the kernel lets the one that made it wait until it ends, which it never does
import ctypes, mmap, os, signal
if os.uname().machine != "x86_64":
    while True: pass
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
# mov eax, clone; mov edi, VM|FS|FILES|SIGHAND|THREAD|VFORK; syscall; test eax, eax; jnz out; again: mov eax, 34 (pause); syscall; jmp again
code.write(bytes.fromhex("b838000000" "bf004f0100" "31d2" "4d31d2" "4d31c0" "0f05" "85c0" "7509" "b822000000" "0f05" "ebf7" "c3"))
stack = ctypes.create_string_buffer(1 << 16)
make = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_long, ctypes.c_void_p)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
make(0, (ctypes.addressof(stack) + (1 << 16) - 64) & ~15)
