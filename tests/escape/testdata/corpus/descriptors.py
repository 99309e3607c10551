import os


def finds_a_directory():
    """attempts: an open directory of the launcher's to walk out by
    holds: EBADF"""
    for fd in range(3, 64):
        try:
            if os.path.isdir(f"/proc/self/fd/{fd}"):
                return fd
        except OSError:
            pass
    raise OSError(9, "")


def reopens_its_input():
    """attempts: open the launcher's end of a stream anew for writing
    holds: EACCES EPERM ENXIO ENOENT EROFS, or it is /dev/null"""
    if os.path.samefile("/proc/self/fd/0", "/dev/null"):
        raise PermissionError(13, "")
    return os.open("/proc/self/fd/0", os.O_WRONLY)


def raises_its_limit():
    """attempts: more descriptors than the policy gives
    holds: EPERM EINVAL ValueError"""
    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))


def opens_by_handle():
    """attempts: a file of the host by its inode number
    holds: EPERM"""
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(304, 0, ctypes.create_string_buffer(32), 0) < 0:
        raise OSError(ctypes.get_errno(), "")


def control():
    """control: an open of its own"""
    return os.path.isdir(f"/proc/self/fd/{os.open('/scratch', os.O_RDONLY)}")
