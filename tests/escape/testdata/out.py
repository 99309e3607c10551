"""What is left in /out, or still moves in it, when the program ends."""

import fcntl
import os
import sys
import time

FILE = "/out/summary.csv"
ROW = b"1,2\n"


def put(path=FILE, data=b"a,b\n" + ROW):
    with open(path, "wb") as f:
        f.write(data)


def good():
    put()


def growing():
    put()
    if os.fork() == 0:
        os.setsid()
        fd = os.open(FILE, os.O_WRONLY | os.O_APPEND)
        while True:
            os.write(fd, ROW)
            time.sleep(0.0005)
    time.sleep(0.05)


def swapped(target):
    """A link to the host's file and the good file take turns."""
    put()
    if os.fork() == 0:
        os.setsid()
        while True:
            os.rename(FILE, "/out/t")
            os.symlink(target, FILE)
            os.unlink(FILE)
            os.rename("/out/t", FILE)
    time.sleep(0.05)


def truncated():
    """The file's size changes between a mebibyte and nothing."""
    put()
    if os.fork() == 0:
        os.setsid()
        while True:
            os.truncate(FILE, 1 << 20)
            os.truncate(FILE, 8)
    time.sleep(0.05)


def locked():
    put()
    fd = os.open(FILE, os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)


def closed():
    put()
    os.chmod(FILE, 0)
    os.chmod("/out", 0)


def set_id():
    put()
    os.chmod(FILE, 0o6777)
    os.chmod("/out", 0o7777)
    os.setxattr(FILE, "user.note", b"1" * 1000)
    os.utime(FILE, (2**33, -2**31))


def deep():
    """Directories whose path no call can name, the innermost closed to everybody."""
    put()
    os.chdir("/out")
    for _ in range(55):
        os.mkdir("d" * 255)
        os.chdir("d" * 255)
    os.chmod(".", 0)


{f.__name__: f for f in (good, growing, swapped, truncated, locked, closed, set_id, deep)}[sys.argv[1]](*sys.argv[2:])
os._exit(0)
