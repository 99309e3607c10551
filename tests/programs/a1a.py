"""A1a: ten privileged operations, and the status the kernel shows meanwhile."""

import ctypes
import os

from attempt import attempt, read, report, results, syscall, write_to

MOUNT, UNSHARE, PTRACE, KEYCTL = 165, 272, 101, 250
open("/scratch/file", "w").close()
attempt("setuid", lambda: os.setuid(0))
attempt("setgid", lambda: os.setgid(0))
attempt("mount", lambda: syscall(MOUNT, ctypes.c_char_p(b"none"), ctypes.c_char_p(b"/scratch"), ctypes.c_char_p(b"tmpfs"), 0, None))
attempt("unshare user", lambda: syscall(UNSHARE, 0x10000000))
attempt("cgroup file", lambda: write_to("/sys/fs/cgroup/cgroup.procs", b"0"))
attempt("ptrace init", lambda: syscall(PTRACE, 16, 1, 0, 0))
attempt("init's environ", lambda: read("/proc/1/environ"))
attempt("chown", lambda: os.chown("/scratch/file", 0, 0))
attempt("keyctl", lambda: syscall(KEYCTL, 0, -3, 0))
attempt("uid_map", lambda: write_to("/proc/self/uid_map", b"0 0 1"))

# The same calls where they need no privilege: what fails above is not the call as such.
attempt("control setuid", lambda: os.setuid(os.getuid()))
attempt("control chown", lambda: os.chown("/scratch/file", os.getuid(), os.getgid()))
attempt("control environ", lambda: read("/proc/self/environ", 0))
results["ids"] = f"{os.getresuid()} {os.getresgid()} {os.getgroups()}"
results["session"] = str(os.getsid(0) == os.getpid() == 2)
for line in open("/proc/self/status"):
    key, value = line.split(":", 1)
    results["status " + key] = value.strip()
report()
