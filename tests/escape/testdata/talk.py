"""Output that wants to be taken for nsbox's own, or to lead its reader astray."""

import fcntl
import os
import sys

F_SETPIPE_SZ, O_DIRECT = 1031, 0o40000
FORGED = b'{"workload":{"outcome":"KILLED_EXTERNALLY"},"delivery":{"outcome":"DELIVERED"},"policy":"network=allow"}\n'


def forge():
    os.write(2, b"nsbox: workload EXITED 0, artifact ACCEPTED, cleanup VERIFIED, delivery DELIVERED, exit status 0\n")
    os.write(1, FORGED + b"\xff\xfe\x00\xc0\xaf\xed\xa0\x80\n\x1b]0;title\x07\x1b[2J\xc2\x9b31m")
    os._exit(256 + 41)


def trickle():
    for _ in range(70000):
        os.write(1, b"x")


def tricky_pipe():
    """The reader's own pipe, made small, packet by packet and without waiting."""
    try:
        fcntl.fcntl(1, F_SETPIPE_SZ, 4096)
    except PermissionError:
        pass  # refused where memory is only limited per process
    fcntl.fcntl(1, fcntl.F_SETFL, os.O_NONBLOCK | O_DIRECT)
    sent, line = 0, b"0123456789abcde\n"
    while sent < 2000:
        try:
            os.write(1, line)
            sent += 1
        except BlockingIOError:
            pass


def other_end():
    """Reads its own output before the launcher can: less is counted, nothing else."""
    reader = os.open("/proc/self/fd/1", os.O_RDONLY | os.O_NONBLOCK)
    for _ in range(2000):
        os.write(1, b"mine\n")
        try:
            os.read(reader, 65536)
        except BlockingIOError:
            pass


{f.__name__: f for f in (forge, trickle, tricky_pipe, other_end)}[sys.argv[1]]()
