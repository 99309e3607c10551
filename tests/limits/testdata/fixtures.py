"""Runs into one limit of the job, named by the first argument. What it prints
before it is stopped is all that is left of it, so every line is flushed. In an
emulated machine each import costs a part of a small cpu budget: only those
that are built into the interpreter stand here."""

import errno
import os
import sys
import time

MIB = 1 << 20
what, rest = sys.argv[1], sys.argv[2:]


def say(**values):
    text = ", ".join(f'"{k}": ' + (f'"{v}"' if isinstance(v, str) else str(v)) for k, v in values.items())
    os.write(1, ("{" + text + "}\n").encode())


def spin(steps):
    n = 0
    while n < steps:
        n += 1


def hold(mib):
    """Memory that was really touched."""
    return b"\1" * (mib * MIB)


def threads(count):
    import _thread
    import zlib

    block = bytes(MIB)

    def busy():
        while True:
            zlib.crc32(block)  # runs without the interpreter's lock

    for _ in range(count):
        _thread.start_new_thread(busy, ())
    return count


def fill(folder, mib, first=0):
    """Files of 16 MiB until there are mib or no more: RLIMIT_FSIZE is not what is meant."""
    block, written = b"\0" * MIB, 0
    try:
        while written < mib:
            f = os.open(f"{folder}/fill-{first + written // 16}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.write(f, block)
            os.close(f)
            written += 1
    except OSError as e:
        return written, errno.errorcode[e.errno]
    return written, "none"


def forks(count, act):
    made, ended = [], "none"
    for _ in range(count):
        try:
            pid = os.fork()
        except OSError as e:
            ended = errno.errorcode[e.errno]
            break
        if pid == 0:
            act()
            os._exit(0)
        made.append(pid)
    return made, ended


def reap(pids):
    for pid in pids:
        os.waitpid(pid, 0)


if what == "short":
    say(sum=sum(range(int(rest[0]))))
elif what == "deliver":
    f = os.open("/out/summary.csv", os.O_WRONLY | os.O_CREAT, 0o644)
    os.write(f, b"a,b\n1,2\n")
    os.close(f)
elif what == "spin":
    say(processes=1)
    spin(int(rest[0]))
    say(finished=1)
elif what == "spin together":
    made, _ = forks(int(rest[0]) - 1, lambda: spin(int(rest[1])))
    say(processes=len(made) + 1)
    spin(int(rest[1]))
    reap(made)
    say(finished=1)
elif what == "allocate":
    held = []
    for _ in range(int(rest[0])):
        held.append(hold(8))
        say(held_mib=8 * len(held))
    say(finished=1)
elif what == "exit 0 beside it":
    # The main process ends well while a child runs into the memory limit: at
    # which of the child's steps is told by the argument.
    import mmap

    reached = mmap.mmap(-1, 4096)

    def grow():
        held = []
        for n in range(128):
            held.append(hold(1))
            reached[0] = n + 1

    forks(1, grow)
    while reached[0] < int(rest[0]):
        pass
    say(left_at_mib=reached[0])
    os._exit(0)
elif what == "huge pages":
    import mmap

    def answer(act):
        try:
            act()
        except OSError as e:
            return errno.errorcode[e.errno]
        return "none"

    huge = 0x40000  # MAP_HUGETLB
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    say(
        ordinary=answer(lambda: mmap.mmap(-1, 2 * MIB, flags=private)),
        mapping=answer(lambda: mmap.mmap(-1, 2 * MIB, flags=private | huge)),
        ordinary_file=answer(lambda: os.memfd_create("x", 0x8)),
        file=answer(lambda: os.memfd_create("x", 0x8 | 0x4)),
    )
elif what == "children":
    made, ended = forks(int(rest[0]), lambda: time.sleep(2))
    reap(made)
    say(forked=len(made), ended=ended)
elif what == "wait together":
    made, _ = forks(2, lambda: time.sleep(float(rest[0])))
    say(processes=len(made) + 1)
    reap(made)
    say(finished=1)
elif what == "fill":
    written, ended = fill("/scratch", int(rest[0]))
    free = os.statvfs("/scratch").f_bavail
    say(written_mib=written, ended=ended, free_blocks=free)
elif what == "fork bomb":
    told = False
    while True:
        try:
            os.fork()
        except OSError as e:
            if not told:
                told = True
                say(ended=errno.errorcode[e.errno])
elif what == "memory bomb":
    made, ended = forks(int(rest[0]) - 1, lambda: (hold(int(rest[1])), time.sleep(60)))
    say(processes=len(made) + 1, ended=ended)
    held = hold(int(rest[1]))
    time.sleep(60)
elif what == "cpu hog":
    say(threads=threads(int(rest[0])))
    time.sleep(3600)
elif what == "all at once":
    try:
        made = threads(8)
    except RuntimeError:
        made = 0
    say(threads=made)
    forks(4, lambda: (hold(24), time.sleep(3600)))
    n = 0
    while True:
        fill("/scratch", 1, n)
        n += 1
        forks(1, lambda: time.sleep(3600))
else:
    raise SystemExit(f"no fixture {what}")
