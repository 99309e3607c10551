"""A2a: sockets. Only AF_UNIX between processes of the box works."""

import socket

from attempt import attempt, report


def make(family, kind, protocol=0):
    socket.socket(family, kind, protocol).close()


def control():
    a, b = socket.socketpair()
    a.sendall(b"hello")
    return b.recv(5).decode()


def connect(path):
    s = socket.socket(socket.AF_UNIX)
    s.connect(path)


attempt("AF_INET", lambda: make(socket.AF_INET, socket.SOCK_STREAM))
attempt("AF_INET6", lambda: make(socket.AF_INET6, socket.SOCK_DGRAM))
attempt("AF_NETLINK", lambda: make(socket.AF_NETLINK, socket.SOCK_RAW))
attempt("AF_PACKET", lambda: make(socket.AF_PACKET, socket.SOCK_RAW))
attempt("AF_VSOCK", lambda: make(socket.AF_VSOCK, socket.SOCK_STREAM))
attempt("control path", lambda: connect("/run/mock-control.sock"))
attempt("host's abstract socket", lambda: connect("\0nsbox-e2e-abstract"))
attempt("lookup", lambda: socket.getaddrinfo("example.com", 80))
attempt("socketpair", control)
report()
