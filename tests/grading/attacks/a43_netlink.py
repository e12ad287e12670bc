import socket
s = socket.socket(16, socket.SOCK_RAW, 0); print("PWNED")
