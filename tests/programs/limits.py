"""Runs into one limit, named by the first argument, and says where it was."""

import errno
import os
import resource
import signal
import sys
import time

from attempt import attempt, report, results

MIB = 1 << 20


def fill(folder, files, each, chunk=MIB // 4):
    """Bytes that fit into files of each bytes, and the errno that ended it."""
    total, ended = 0, "none"
    block = b"\0" * chunk
    for n in range(files):
        fd = os.open(f"{folder}/fill-{n}", os.O_WRONLY | os.O_CREAT)
        try:
            for _ in range(each // chunk):
                total += os.write(fd, block)
        except OSError as e:
            ended = errno.errorcode[e.errno]
        os.close(fd)
        if ended != "none":
            break
    used = os.statvfs(folder)
    results["bytes"], results["ended"] = str(total), ended
    results["free blocks"] = str(used.f_bavail)


def create(folder, files):
    made, ended = 0, "none"
    try:
        for n in range(files):
            os.close(os.open(f"{folder}/empty-{n}", os.O_WRONLY | os.O_CREAT))
            made += 1
    except OSError as e:
        ended = errno.errorcode[e.errno]
    results["files"], results["ended"] = str(made), ended
    results["listed"] = str(len(os.listdir(folder)))


def descriptors():
    made, ended, highest = 0, "none", 0
    try:
        for _ in range(128):
            highest = max(highest, os.open("/in/attempt.py", os.O_RDONLY))
            made += 1
    except OSError as e:
        ended = errno.errorcode[e.errno]
    results.update(opened=str(made), ended=ended, highest=str(highest), limit=str(resource.getrlimit(resource.RLIMIT_NOFILE)))


def one_file(size):
    fd = os.open("/scratch/one", os.O_WRONLY | os.O_CREAT)
    written, ended = 0, "none"
    try:
        for _ in range(size // 65536):
            written += os.write(fd, b"\0" * 65536)
    except OSError as e:
        ended = errno.errorcode[e.errno]
    results.update(written=str(written), ended=ended, size=str(os.fstat(fd).st_size))


def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def children(count):
    made, ended = [], "none"
    for _ in range(count):
        try:
            pid = os.fork()
        except OSError as e:
            ended = errno.errorcode[e.errno]
            break
        if pid == 0:
            time.sleep(2)
            os._exit(0)
        made.append(pid)
    for pid in made:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    results.update(forked=str(len(made)), ended=ended)


def bomb():
    print("ready", flush=True)
    told = False
    while True:
        try:
            os.fork()
        except OSError as e:
            if not told and os.getpid() == 2:
                print(errno.errorcode[e.errno], flush=True)
                told = True


what, rest = sys.argv[1], sys.argv[2:]
if what == "fill":
    fill(rest[0], int(rest[1]), int(rest[2]))
elif what == "create":
    create(rest[0], int(rest[1]))
elif what == "descriptors":
    descriptors()
elif what == "one file":
    if "signal" in rest:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    one_file(int(rest[0]))
elif what == "burn":
    if "ignore" in rest:
        signal.signal(signal.SIGXCPU, signal.SIG_IGN)
    burn(float(rest[0]))
    results["burnt"] = rest[0]
elif what == "burn together":
    for _ in range(int(rest[1]) - 1):
        if os.fork() == 0:
            burn(float(rest[0]))
            os._exit(0)
    burn(float(rest[0]))
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break
elif what == "wait together":
    for _ in range(2):
        if os.fork() == 0:
            break
    time.sleep(float(rest[0]))
    os._exit(0)
elif what == "children":
    children(int(rest[0]))
elif what == "bomb":
    bomb()
elif what == "print":
    for _ in range(int(rest[0])):
        os.write(1, b"x" * int(rest[1]))
    os._exit(0)
elif what == "flood":
    while True:
        os.write(1, b"x" * 9999)
elif what == "memory":
    for _ in range(int(rest[0]) - 1):
        if os.fork() == 0:
            break
    held = bytearray(int(rest[1]) * MIB)
    for at in range(0, len(held), 4096):
        held[at] = 1
    time.sleep(1)
    os._exit(0)
report()
