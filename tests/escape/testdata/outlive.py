"""Trees that do not want to end. The first argument says how; the main program exits with 7."""

import os
import signal
import sys
import threading
import time

from attempt import libc, syscall

CLONE_PARENT, CLONE_VM, CLONE_VFORK = 0x8000, 0x100, 0x4000


def linger():
    os.setsid()
    libc.sigprocmask(0, b"\xff" * 128, None)
    time.sleep(30)
    os._exit(0)


def siblings():
    """Children of init, made by us: nobody here has to wait for them."""
    for _ in range(5):
        if syscall(56, CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0) == 0:
            linger()


def many_siblings():
    """Init reaps two hundred strangers, each with a status of its own."""
    for n in range(200):
        while True:
            try:
                pid = syscall(56, CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
                break
            except OSError:
                time.sleep(0.002)
        if pid == 0:
            os._exit(n & 127)


def silent_child():
    """A child whose end is announced by no signal."""
    if syscall(56, 0, 0, 0, 0, 0) == 0:
        linger()


def leader_goes():
    """The first thread ends; the process lives on in another."""
    def rest():
        time.sleep(0.3)
        os.write(1, b"the thread\n")
        os._exit(7)
    threading.Thread(target=rest).start()
    syscall(60, 0)


def fork_storm():
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for _ in range(6):
        if os.fork() == 0:
            libc.sigprocmask(0, b"\xff" * 128, None)
            while True:
                try:
                    if os.fork() == 0:
                        os._exit(0)
                except OSError:
                    pass


def vfork():
    """A parent that waits in the kernel for a child which never lets it go."""
    if os.fork() == 0:
        syscall(56, CLONE_VFORK | CLONE_VM | signal.SIGCHLD, 0, 0, 0, 0)
        time.sleep(30)
    time.sleep(0.2)


def closed_streams():
    for n in (0, 1, 2):
        os.close(n)
    if os.fork() == 0:
        linger()


def subreaper():
    """Orphans come to us and not to init."""
    libc.prctl(36, 1, 0, 0, 0)
    if os.fork() == 0:
        if os.fork() == 0:
            linger()
        os._exit(0)
    os.wait()


def late_writer():
    if os.fork() == 0:
        os.setsid()
        time.sleep(0.05)
        while True:
            os.write(1, b"LATE\n")
            time.sleep(0.001)


def kill_everybody():
    for _ in range(5):
        if os.fork() == 0:
            linger()
    os.kill(-1, signal.SIGKILL)


{f.__name__: f for f in (siblings, many_siblings, silent_child, leader_goes, fork_storm, vfork, closed_streams, subreaper, late_writer, kill_everybody)}[sys.argv[1]]()
os._exit(7)
