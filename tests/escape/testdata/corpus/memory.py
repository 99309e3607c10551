import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)


def locks_memory():
    """attempts: keep 16 MiB from being swapped
    holds: ENOMEM EPERM EAGAIN"""
    if libc.mlock(ctypes.create_string_buffer(16 << 20), ctypes.c_size_t(16 << 20)) < 0:
        raise OSError(ctypes.get_errno(), "")


def makes_code_in_a_file():
    """attempts: a memory file that can be executed
    holds: EPERM EACCES EINVAL"""
    fd = os.memfd_create("x", 0x10)
    return fd


def steers_page_faults():
    """attempts: stop the kernel at a page fault of its choice
    holds: EPERM ENOSYS"""
    if libc.syscall(323, 1) < 0:
        raise OSError(ctypes.get_errno(), "")
    return "made"


def hides_memory():
    """attempts: memory that not even the kernel looks into
    holds: ENOSYS EPERM"""
    if libc.syscall(447, 0) < 0:
        raise OSError(ctypes.get_errno(), "")
    return "made"


def control():
    """control: 8 MiB can be held"""
    return len(bytearray(8 << 20))
