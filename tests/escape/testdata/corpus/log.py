import os


def reads_the_kernel_log():
    """attempts: read the kernel's messages
    holds: ENOENT EACCES EPERM"""
    return open("/dev/kmsg").read(10)


def writes_the_hosts_log():
    """attempts: a line in the log of the host
    holds: ENOENT EACCES EPERM"""
    import socket
    socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).connect("/dev/log")


def control():
    """control: a line on its own stream"""
    return os.write(2, b"a line\n")
