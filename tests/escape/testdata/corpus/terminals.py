import fcntl
import os


def types_for_the_operator():
    """attempts: put input into the terminal that nsbox was started from
    holds: EPERM ENXIO ENOTTY ENOENT"""
    for fd in (0, 1, 2):
        fcntl.ioctl(fd, 0x5412, b"x")


def opens_the_terminal():
    """attempts: open the controlling terminal
    holds: ENXIO ENOENT EACCES"""
    return os.open("/dev/tty", os.O_RDWR)


def takes_a_terminal():
    """attempts: become a session with a terminal
    holds: ENOTTY EPERM"""
    os.setsid()
    fcntl.ioctl(1, 0x540e, 1)


def makes_a_terminal():
    """attempts: a new terminal of the host's
    holds: ENOENT EACCES"""
    return os.open("/dev/ptmx", os.O_RDWR)


def control():
    """control: an ioctl that is not about terminals"""
    a, b = os.pipe()
    os.write(b, b"x")
    return fcntl.ioctl(a, 0x541b, bytes(4))
