"""Runs into one limit of the job, named by the first argument. What it prints
before it is stopped is all that is left of it, so every line is flushed."""

import errno
import json
import mmap
import os
import sys
import threading
import time
import zlib

MIB = 1 << 20
what, rest = sys.argv[1], sys.argv[2:]


def say(**values):
    print(json.dumps(values), flush=True)


def spin(steps):
    n = 0
    while n < steps:
        n += 1


def hold(mib):
    """Memory that was really touched."""
    held = bytearray(mib * MIB)
    for at in range(0, len(held), 4096):
        held[at] = 1
    return held


def busy_thread(stop):
    block = bytes(MIB)
    while not stop.is_set():
        zlib.crc32(block)  # runs without the interpreter's lock


def threads(count):
    stop, made = threading.Event(), []
    for _ in range(count):
        t = threading.Thread(target=busy_thread, args=(stop,), daemon=True)
        t.start()
        made.append(t)
    return made


def fill(folder, mib, start=0):
    block = b"\0" * MIB
    written = 0
    try:
        with open(f"{folder}/fill-{start}", "wb", buffering=0) as f:
            while written < mib:
                f.write(block)
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
elif what == "spin":
    spin(int(rest[0]))
    say(finished=True)
elif what == "spin together":
    made, _ = forks(int(rest[0]) - 1, lambda: spin(int(rest[1])))
    say(processes=len(made) + 1)
    spin(int(rest[1]))
    reap(made)
    say(finished=True)
elif what == "allocate":
    held = []
    for _ in range(int(rest[0])):
        held.append(hold(8))
        say(held_mib=8 * len(held))
    say(finished=True)
elif what == "exit 0 beside it":
    # The main process ends well while a child runs into the memory limit: at
    # which of the child's steps is told by the argument.
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
elif what == "children":
    made, ended = forks(int(rest[0]), lambda: time.sleep(2))
    reap(made)
    say(forked=len(made), ended=ended)
elif what == "wait together":
    made, _ = forks(2, lambda: time.sleep(float(rest[0])))
    say(processes=len(made) + 1)
    reap(made)
    say(finished=True)
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
    say(threads=len(threads(int(rest[0]))))
    time.sleep(3600)
elif what == "all at once":
    try:
        made = threads(8)
    except RuntimeError:
        made = []
    say(threads=len(made))
    forks(4, lambda: (hold(24), time.sleep(3600)))
    n = 0
    while True:
        fill("/scratch", 1, n)
        n += 1
        forks(1, lambda: time.sleep(3600))
else:
    raise SystemExit(f"no fixture {what}")
