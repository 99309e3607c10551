"""What a running box takes from the host or learns of it. Reports, then waits to be ended."""

import ctypes
import fcntl
import glob
import mmap
import os
import resource
import signal
import socket
import struct
import sys
import time

from attempt import attempt, libc, report, results, syscall

MIB = 1 << 20


def semaphores():
    made = 0
    while made < 40 and libc.semget(0, 32000, 0o1600) >= 0:
        made += 1
    results["made"] = str(made)


def messages():
    text, made = struct.pack("q", 1) + bytes(8192), 0
    while made < 4000 and (queue := libc.msgget(0, 0o1600)) >= 0:
        made += 1
        while libc.msgsnd(queue, text, 8192, 0o4000) == 0:
            pass
    results["made"] = str(made)


def watches(most):
    """Instances of inotify, in several processes: each may hold less than 64 descriptors."""
    most, held = int(most), []
    while len(held) * 40 < most:
        reader, writer = os.pipe()
        if os.fork() == 0:
            made = 0
            while made < min(40, most - len(held) * 40) and libc.inotify_init1(0) >= 0:
                made += 1
            os.write(writer, bytes([made]))
            time.sleep(30)
        held.append(os.read(reader, 1)[0])
        os.close(reader)
        os.close(writer)
    results["instances"] = str(sum(held))


def signals():
    """Real-time signals to ourselves, never taken."""
    libc.sigprocmask(0, b"\xff" * 128, None)
    sent = 0
    while sent < 4000 and libc.sigqueue(os.getpid(), 40, None) == 0:
        sent += 1
    results["queued"] = str(sent)


def core():
    """A handler of core dumps is started on the host unless the limit is exactly 1."""
    attempt("setrlimit", lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)))
    attempt("prlimit", lambda: resource.prlimit(os.getpid(), resource.RLIMIT_CORE, (0, 1)))
    attempt("control", lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (32, 64)))


def buffers():
    """What one socket holds of data that nobody reads."""
    own, other = socket.socketpair()
    try:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 24)
    except OSError:
        pass
    own.setblocking(False)
    held = 0
    try:
        while True:
            held += own.send(bytes(65536))
    except BlockingIOError:
        pass
    results["bytes"] = str(held)


def forgotten():
    """Shared pages that are written and then dropped from the address space are kept, and counted for no process."""
    def keep():
        memory = mmap.mmap(-1, 60 * MIB)
        start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        for at in range(0, 60 * MIB, MIB):
            ctypes.memset(start + at, 1, MIB)
            libc.madvise(ctypes.c_void_p(start + at), ctypes.c_size_t(MIB), 4)
        return memory

    for n in range(3):
        reader, writer = os.pipe()
        if os.fork() == 0:
            try:
                memory = keep()
                os.write(writer, b"held")
            except BaseException as e:
                os.write(writer, repr(e).encode()[:99])
            time.sleep(30)
        results[f"process {n}"] = os.read(reader, 99).decode()


def lock(path):
    results["fd"] = str(os.open(path, os.O_RDONLY))
    fcntl.flock(int(results["fd"]), fcntl.LOCK_EX | fcntl.LOCK_NB)


def spy(path):
    attempt("watch", lambda: syscall(254, syscall(253), path.encode(), 0xfff) and None)


def facts():
    """Prints what /proc says of the machine."""
    for path in sorted(p for p in glob.glob("/proc/*") + glob.glob("/proc/bus/pci/*/*") + glob.glob("/proc/fs/*/*/*") + glob.glob("/proc/irq/*") +
                       glob.glob("/proc/sys/kernel/random/*") if not p.startswith(("/proc/self", "/proc/thread-self")) and os.path.isfile(p)):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            results[path] = os.read(fd, 300).decode("latin-1")
            os.close(fd)
        except OSError as e:
            results[path] = ""


{f.__name__: f for f in (semaphores, messages, watches, signals, core, buffers, forgotten, lock, spy, facts)}[sys.argv[1]](*sys.argv[2:])
report()
signal.pause()
