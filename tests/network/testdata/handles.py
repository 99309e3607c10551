"""Looks for a hold on what nsbox listens with, and on nsbox itself.

Arguments: an endpoint of the box as address and port.
"""

import os
import socket
import stat
import sys

from attempt import attempt, report, syscall

at = (sys.argv[1], int(sys.argv[2]))
PIDFD_OPEN, PIDFD_GETFD = 434, 438


def rebind(*options):
    with socket.socket() as s:
        for o in options:
            s.setsockopt(socket.SOL_SOCKET, o, 1)
        s.bind(at)
        s.listen()


def take(pid):
    """The descriptors of another process, by number."""
    fd = syscall(PIDFD_OPEN, pid, 0)
    for n in range(3, 64):
        syscall(PIDFD_GETFD, fd, n, 0)


def early():
    """TCP Fast Open sends with the connect, past what watches connect(2)."""
    with socket.socket() as s:
        s.sendto(b"GET / HTTP/1.0\r\n\r\n", socket.MSG_FASTOPEN, ("192.0.2.66", 80))


kinds = sorted(stat.S_IFMT(os.fstat(int(n)).st_mode) for n in os.listdir("/proc/self/fd") if n in "012")
attempt("sockets among the streams", lambda: sum(k == stat.S_IFSOCK for k in kinds))
attempt("descriptors beyond", lambda: max(int(n) for n in os.listdir("/proc/self/fd")) > 3)  # 3 is the listing's own
attempt("bind", lambda: rebind())
attempt("bind beside", lambda: rebind(socket.SO_REUSEADDR, socket.SO_REUSEPORT))
attempt("descriptors of init", lambda: os.listdir("/proc/1/fd"))
attempt("take from init", lambda: take(1))
attempt("fast open", early)
attempt("mapped", lambda: socket.create_connection(("::ffff:192.0.2.66", 80), timeout=15).close())
report()
