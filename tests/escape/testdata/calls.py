"""Ways to more rights: other calling conventions, namespaces, foreign processes."""

import ctypes
import fcntl
import mmap
import os
import resource
import signal
import struct
import sys

from attempt import attempt, in_child, libc, report, results, syscall


def run(code):
    """Runs machine code from a page of our own and returns what it leaves in rax."""
    page = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=7)
    page.write(code)
    return ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()


def conventions():
    """The filter knows one way to make a call; the processor knows more."""
    def load(number):
        return b"\xb8" + struct.pack("<I", number)

    x32 = 0x40000000
    for name, code in (
            ("int 0x80 getpid", load(20) + b"\xcd\x80\xc3"),
            ("int 0x80 unshare", b"\xbb\0\0\0\x10" + load(310) + b"\xcd\x80\xc3"),
            ("x32 getpid", load(x32 | 39) + b"\x0f\x05\xc3"),
            ("x32 unshare", b"\xbf\0\0\0\x10" + load(x32 | 272) + b"\x0f\x05\xc3"),
            ("x32 ptrace", load(x32 | 521) + b"\x0f\x05\xc3"),
            ("sysenter", load(20) + b"\x0f\x34\xc3"),
            ("control getpid", load(39) + b"\x0f\x05\xc3")):
        attempt(name, lambda: in_child(lambda: run(code)))


def namespaces():
    flags = {"mnt": 0x20000, "cgroup": 0x2000000, "uts": 0x4000000, "ipc": 0x8000000, "user": 0x10000000, "pid": 0x20000000, "net": 0x40000000}
    for name, bit in flags.items():
        attempt("clone " + name, lambda: in_child(lambda: syscall(56, bit | signal.SIGCHLD, 0, 0, 0, 0) and None))
        attempt("unshare " + name, lambda: in_child(lambda: syscall(272, bit) and None))
    attempt("clone user under high bits", lambda: in_child(lambda: syscall(56, 0x7fffffff00000000 | flags["user"] | signal.SIGCHLD, 0, 0, 0, 0) and None))
    attempt("unshare time", lambda: in_child(lambda: syscall(272, 0x80) and None))
    attempt("clone3", lambda: syscall(435, bytes(88), 88))
    for kind in ("user", "mnt", "net", "pid"):
        attempt("setns " + kind, lambda: syscall(308, os.open("/proc/self/ns/" + kind, os.O_RDONLY), 0))
    for name, kind, request in (("parent of user", "user", 0xb702), ("parent of pid", "pid", 0xb702), ("next mount namespace", "mnt", 0x8010b70b), ("last mount namespace", "mnt", 0x8010b70c)):
        attempt(name, lambda: fcntl.ioctl(os.open("/proc/self/ns/" + kind, os.O_RDONLY), request, bytes(struct.pack("I", 24)) + bytes(20)) and None)
    attempt("control", lambda: in_child(lambda: None))
    with open("/proc/self/status") as f:
        results["capabilities"] = " ".join(sorted({line.split()[1] for line in f if line.startswith("Cap")}))


def processes():
    """Steers and reads a process of our own: the right to it would be ours."""
    pid = os.fork()
    if pid == 0:
        signal.pause()
    page = ctypes.create_string_buffer(64)
    vector = ctypes.create_string_buffer(struct.pack("QQ", ctypes.addressof(page), 8))
    where = ctypes.addressof(vector)
    attempt("attach", lambda: syscall(101, 16, pid, 0, 0))
    attempt("seize", lambda: syscall(101, 0x4206, pid, 0, 0))
    attempt("read memory", lambda: syscall(310, pid, where, 1, where, 1, 0))
    attempt("write memory", lambda: syscall(311, pid, where, 1, where, 1, 0))
    attempt("take a descriptor", lambda: syscall(438, os.pidfd_open(pid), 0, 0))
    attempt("compare", lambda: syscall(312, pid, os.getpid(), 0, 0, 0))
    attempt("listener", lambda: syscall(317, 1, 8, bytes(16)))
    attempt("listener with wait", lambda: syscall(317, 1, 0x28, bytes(16)))
    for name, number, *args in (("bpf", 321, 0, bytes(128), 128), ("perf", 298, bytes(128), 0, -1, -1, 0), ("userfaultfd", 323, 0), ("io uring", 425, 8, bytes(120)),
                                ("key", 248, b"user", b"k", b"v", 1, -3), ("session key", 250, 1, 0), ("key request", 249, b"user", b"k", 0, -3), ("kernel log", 103, 3, bytes(64), 64),
                                ("ports", 172, 3), ("segments", 154, 1, bytes(16), 16), ("personality", 135, 0x40000)):
        attempt(name, lambda: in_child(lambda: syscall(number, *args) and None))
    attempt("control signal", lambda: os.kill(pid, signal.SIGKILL))
    results["control wait"] = str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def init():
    """Process 1 holds the control socket; nothing of ours may move it."""
    for n in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGSEGV, 40):
        attempt(f"signal {int(n)}", lambda: os.kill(1, n))
    attempt("by descriptor", lambda: signal.pidfd_send_signal(os.pidfd_open(1), signal.SIGKILL))
    attempt("queued", lambda: syscall(129, 1, 40, bytes(128)))
    attempt("limits", lambda: resource.prlimit(1, resource.RLIMIT_NOFILE, (1, 1)))
    attempt("priority", lambda: os.setpriority(os.PRIO_PROCESS, 1, 19))
    attempt("scheduler", lambda: os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0)))
    attempt("io priority", lambda: syscall(251, 1, 1, 0x6007))
    attempt("robust list", lambda: syscall(274, 1, bytes(8), bytes(8)))
    attempt("group", lambda: os.setpgid(1, 1))
    attempt("signals of descriptors", lambda: fcntl.fcntl(1, fcntl.F_SETFL, os.O_ASYNC) and None)
    fcntl.fcntl(1, fcntl.F_SETOWN, 1)
    fcntl.fcntl(1, fcntl.F_SETFL, 0)
    attempt("control", lambda: os.kill(os.getpid(), 0))


def scheduling():
    attempt("real time", lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)))
    attempt("round robin", lambda: os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1)))
    attempt("deadline", lambda: syscall(314, 0, struct.pack("IIQiIQQQ", 48, 6, 0, 0, 0, 10**6, 10**7, 10**7), 0))
    attempt("nicer", lambda: os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0) - 1))
    attempt("more tasks", lambda: resource.setrlimit(resource.RLIMIT_NPROC, (4096, 4096)))
    attempt("more memory locked", lambda: resource.setrlimit(resource.RLIMIT_MEMLOCK, (1 << 30, 1 << 30)))
    attempt("control", lambda: os.setpriority(os.PRIO_PROCESS, 0, 19))


def standing():
    """How far ahead of others this process is."""
    results["personality"] = str(libc.personality(0xffffffff))
    results["policy"] = str(os.sched_getscheduler(0))
    results["nice"] = str(os.getpriority(os.PRIO_PROCESS, 0))
    results["disk"] = str(syscall(252, 1, 0))


{f.__name__: f for f in (conventions, namespaces, processes, init, scheduling, standing)}[sys.argv[1]](*sys.argv[2:])
report()
