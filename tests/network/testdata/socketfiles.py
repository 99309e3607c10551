"""Tries every way to the sockets that lie in a directory of the host."""

import ctypes
import os
import socket
import sys

from attempt import attempt, report, syscall

tree, host = sys.argv[1], sys.argv[2]
UNIX, STREAM, PACKET, DATAGRAM = socket.AF_UNIX, socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM


def tcp():
    with socket.create_connection((host, 8443), timeout=15) as s:
        s.sendall(b"GET / HTTP/1.0\r\n\r\n")
        return s.recv(100)[:15].decode()


def connect(kind, name):
    with socket.socket(UNIX, kind) as s:
        s.connect(os.path.join(tree, name))


def pair(kind):
    a, b = socket.socketpair(UNIX, kind)
    a.send(b"x")
    return b.recv(1).decode()


def datagram(a):
    a.sendto(b"x", os.path.join(tree, "datagram"))


def connected(kind, name, widowed=False):
    a, b = socket.socketpair(UNIX, kind)
    if widowed:
        b.close()
    a.connect(os.path.join(tree, name))


def dissolved():
    """A datagram socket loses its peer by connecting to AF_UNSPEC; a stream does not."""
    a, _b = socket.socketpair(UNIX, STREAM)
    syscall(42, a.fileno(), ctypes.create_string_buffer(16), 16)


attempt("tcp", tcp)
attempt("pair", lambda: pair(STREAM))
attempt("packet pair", lambda: pair(PACKET))
attempt("stream", lambda: connect(STREAM, "stream"))
attempt("seqpacket", lambda: connect(PACKET, "seqpacket"))
attempt("datagram", lambda: datagram(socket.socket(UNIX, DATAGRAM)))
attempt("raw", lambda: datagram(socket.socket(UNIX, socket.SOCK_RAW)))
attempt("a pair's datagram", lambda: datagram(socket.socketpair(UNIX, DATAGRAM)[0]))
attempt("a pair connects", lambda: connected(STREAM, "stream"))
attempt("a pair sends", lambda: datagram(socket.socketpair(UNIX, STREAM)[0]))
attempt("a packet pair connects", lambda: connected(PACKET, "seqpacket"))
attempt("a widowed pair connects", lambda: connected(STREAM, "stream", True))
attempt("a pair dissolved", dissolved)
report()
