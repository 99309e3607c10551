"""Does to the endpoints what a program must not gain anything by, until it is killed.

Arguments: the host, then one port for each of the attackers.
"""

import ctypes
import os
import signal
import socket
import struct
import sys
import time

host, ports = sys.argv[1], [int(p) for p in sys.argv[2:]]
RESET = struct.pack("ii", 1, 0)


def connect(port, block=True):
    s = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    s.setblocking(block)
    try:
        s.connect((host, port))
    except OSError:
        pass
    return s


def resets(port):
    """Connections that end by a reset, with something on the way or nothing."""
    for n in range(1 << 40):
        s = connect(port)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        if n % 2:
            try:
                s.send(b"x" * 1000)
            except OSError:
                pass
        s.close()


def flood(port):
    """Connects that nobody waits for, as many as there are descriptors."""
    while True:
        many = [connect(port, block=False) for _ in range(100)]
        for s in many:
            s.close()


def idle(port):
    """Connections that are opened, fed a byte now and then, and never finished."""
    held = [connect(port) for _ in range(6)]
    while True:
        for s in held:
            try:
                s.send(b"x")
            except OSError:
                pass
        time.sleep(0.05)


def glut(port):
    """Asks for bytes without end and takes none of them."""
    held = [connect(port) for _ in range(6)]
    while held:
        time.sleep(1)


def halves(port):
    """Closes one half at once and sends into what the other side may have closed."""
    while True:
        s = connect(port)
        try:
            s.shutdown(socket.SHUT_RD)
            s.send(b"x" * 70000)
            s.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        s.close()


signal.signal(signal.SIGTERM, signal.SIG_IGN)
for attack, port in zip((resets, flood, idle, glut, halves), ports):
    if os.fork() == 0:
        attack(port)
while True:
    time.sleep(1)
