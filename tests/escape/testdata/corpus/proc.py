import os


def reads_kernel_memory():
    """attempts: read the kernel's own memory
    holds: ENOENT EACCES EPERM EIO, or nothing is in it"""
    data = open("/proc/kcore", "rb").read(64)
    if not data:
        raise PermissionError(13, "")
    return data


def reads_symbols():
    """attempts: read the kernel's symbols
    holds: ENOENT EACCES, or nothing is in it"""
    if not open("/proc/kallsyms").read(64):
        raise PermissionError(13, "")
    return "symbols"


def pulls_the_trigger():
    """attempts: sysrq
    holds: EACCES ENOENT EROFS EPERM"""
    open("/proc/sysrq-trigger", "w").write("h")


def changes_a_sysctl():
    """attempts: name a program that the kernel starts for core dumps
    holds: EACCES EROFS EPERM ENOENT"""
    open("/proc/sys/kernel/core_pattern", "w").write("|/scratch/x")


def lifts_its_oom_score():
    """attempts: be the last that the kernel kills for memory
    holds: EACCES EPERM EROFS"""
    open("/proc/self/oom_score_adj", "w").write("-1000")


def reads_the_launchers_line():
    """attempts: read the command line of process 1 and its parent
    holds: ENOENT EACCES EPERM"""
    return open("/proc/1/cmdline").read()


def maps_itself_root():
    """attempts: write an id map
    holds: EACCES EPERM EROFS"""
    open("/proc/self/uid_map", "w").write("0 0 1")


def control():
    """control: read its own status"""
    return len(open("/proc/self/status").read()) > 100
