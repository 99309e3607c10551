def adds_a_key():
    """attempts: leave something in the caller's keyring
    holds: EPERM"""
    return call(248, b"user", b"corpus", b"x", 1, -4)


def searches_the_session():
    """attempts: look for the caller's keys
    holds: EPERM"""
    return call(250, 10, -3, b"user", b"corpus", 0)


def asks_for_a_key():
    """attempts: make the kernel start its helper for a key
    holds: EPERM"""
    return call(249, b"user", b"corpus", b"x", -3)


def lists_keys():
    """attempts: read the list of keys
    holds: ENOENT EACCES, or nothing is in it"""
    if not open("/proc/keys").read():
        raise PermissionError(13, "")
    return "keys"


def control():
    """control: another call with the same conventions"""
    return call(39) > 0
