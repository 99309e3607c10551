"""System calls that reach past the box, each with a neighbour that works."""

import ctypes
import os
import signal
import subprocess

from attempt import attempt, read, report, results, syscall

KEYCTL, ADD_KEY, PTRACE, VM_READV, CLONE, SETNS, BPF, PERF, UFFD, IO_URING, MEMFD, CLONE3 = 250, 248, 101, 310, 56, 308, 321, 298, 323, 425, 319, 435
NEW_USER = 0x10000000


def ptrace_child():
    pid = os.fork()
    if pid == 0:
        signal.pause()
    try:
        syscall(PTRACE, 16, pid, 0, 0)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def memfd_exec():
    fd = syscall(MEMFD, ctypes.c_char_p(b"program"), 0)
    with open(os.path.realpath("/proc/self/exe"), "rb") as f:
        while chunk := f.read(1 << 20):
            os.write(fd, chunk)
    pid = os.fork()
    if pid == 0:
        try:
            os.execve(fd, ["python3", "-c", "pass"], {})
        except OSError as e:
            os._exit(e.errno)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def scratch_exec():
    with open("/scratch/program", "wb") as target, open(os.path.realpath("/proc/self/exe"), "rb") as source:
        target.write(source.read())
    os.chmod("/scratch/program", 0o755)
    os.posix_spawn("/scratch/program", ["program", "-c", "pass"], {})


def fork_and_wait():
    pid = os.fork()
    if pid == 0:
        os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def run(*argv):
    done = subprocess.run(argv, capture_output=True, text=True, timeout=10)
    return f"{done.returncode} {done.stdout.strip()}{done.stderr.strip()[-120:]}"


attempt("keyctl session", lambda: syscall(KEYCTL, 0, -3, 0))
attempt("add_key", lambda: syscall(ADD_KEY, ctypes.c_char_p(b"user"), ctypes.c_char_p(b"k"), ctypes.c_char_p(b"v"), 1, -3))
attempt("ptrace child", ptrace_child)
attempt("ptrace traceme", lambda: syscall(PTRACE, 0, 0, 0, 0))
attempt("process_vm_readv", lambda: syscall(VM_READV, os.getpid(), 0, 0, 0, 0, 0))
attempt("unshare user", lambda: syscall(272, NEW_USER))
attempt("clone user", lambda: syscall(CLONE, NEW_USER | signal.SIGCHLD, 0, 0, 0, 0))
attempt("clone3", lambda: syscall(CLONE3, 0, 0))
attempt("setns", lambda: syscall(SETNS, os.open("/proc/self/ns/net", os.O_RDONLY), 0))
attempt("bpf", lambda: syscall(BPF, 0, 0, 0))
attempt("perf_event_open", lambda: syscall(PERF, 0, 0, -1, -1, 0))
attempt("userfaultfd", lambda: syscall(UFFD, 0))
attempt("io_uring_setup", lambda: syscall(IO_URING, 1, 0))
attempt("unknown call", lambda: syscall(9999))
attempt("memfd exec", memfd_exec)
attempt("exec from scratch", scratch_exec)
attempt("shell", lambda: run("/bin/sh", "-c", "true"))
attempt("control fork", fork_and_wait)
attempt("control subprocess", lambda: run("/usr/bin/python3", "-c", "print('child')"))
# The loader is a program that runs programs; README says so. Recorded, not wanted.
loader = "/lib64/ld-linux-x86-64.so.2"
attempt("record loader", lambda: run(loader, os.path.realpath("/proc/self/exe"), "-c", "print('loaded')"))
attempt("record loader scratch", lambda: run(loader, "/scratch/program", "-c", "print('loaded')"))
# None of these may be a refusal: libraries take EPERM for a reason to give up.
for number, name in ((436, "close_range"), (437, "openat2"), (439, "faccessat2"), (332, "statx"), (452, "fchmodat2"), (334, "rseq"),
                     (449, "futex_waitv"), (462, "mseal"), (453, "map_shadow_stack"), (273, "set_robust_list"), (324, "membarrier"),
                     (318, "getrandom"), (434, "pidfd_open")):
    attempt("harmless " + name, lambda: syscall(number, -1, 0, -1, -1, -1))
report()
