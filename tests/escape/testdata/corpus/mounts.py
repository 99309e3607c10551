import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)


def want(value):
    if value < 0:
        raise OSError(ctypes.get_errno(), "")
    return value


def remounts_the_root():
    """attempts: make the root writable
    holds: EPERM"""
    return want(libc.mount(b"none", b"/", b"", 32, None))


def mounts_its_own_proc():
    """attempts: a second /proc without masks
    holds: EPERM"""
    return want(libc.mount(b"proc", b"/scratch", b"proc", 0, None))


def uncovers_a_mask():
    """attempts: take away what lies over /proc/keys
    holds: EPERM"""
    return want(libc.umount2(b"/proc/keys", 2))


def leaves_its_root():
    """attempts: chroot into a directory and climb out of it
    holds: EPERM"""
    os.chroot("/scratch")


def opens_a_file_system():
    """attempts: the new mount calls
    holds: EPERM"""
    return want(libc.syscall(430, b"tmpfs", 0))


def control():
    """control: read the mount table"""
    return len(open("/proc/self/mountinfo").readlines()) > 3
