import socket
try:
    s = socket.socket(socket.AF_UNIX); s.connect("\0maxk-attack"); print("PWNED connected")
except OSError as e: print(e)
try:
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); a.sendto(b"x", "\0maxk-attack"); print("PWNED datagram")
except OSError as e: print(e)
