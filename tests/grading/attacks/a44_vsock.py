import socket
s = socket.socket(40, socket.SOCK_STREAM, 0); print("PWNED")
