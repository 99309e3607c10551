import os


def makes_a_user_namespace():
    """attempts: become root of a namespace of its own
    holds: EPERM ENOSPC"""
    return call(272, 0x10000000)


def clones_into_namespaces():
    """attempts: the same by clone, with every kind at once
    holds: EPERM ENOSPC"""
    return call(56, 0x7e020000 | 17, 0, 0, 0, 0)


def joins_its_own_again():
    """attempts: setns to a namespace it is in, which regains rights where it is allowed
    holds: EPERM"""
    return call(308, os.open("/proc/self/ns/user", os.O_RDONLY), 0)


def climbs_to_the_parent():
    """attempts: ask a namespace for the one above it
    holds: EPERM"""
    import fcntl
    return fcntl.ioctl(os.open("/proc/self/ns/user", os.O_RDONLY), 0xb702)


def control():
    """control: a process without new namespaces"""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    return os.waitpid(pid, 0)[1]
