import os
import socket

PORT = "PORT"


def dials_the_host():
    """attempts: connect to a listener of the host
    holds: EPERM EACCES ENETUNREACH ECONNREFUSED"""
    socket.create_connection(("127.0.0.1", int(PORT)), 3)
    return "connected"


def sends_datagrams():
    """attempts: a datagram to a name server
    holds: EPERM EACCES ENETUNREACH"""
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", 53))


def speaks_raw():
    """attempts: frames of its own
    holds: EPERM EAFNOSUPPORT"""
    socket.socket(17, socket.SOCK_RAW)
    return "made"


def asks_the_kernel_by_netlink():
    """attempts: routes and links by netlink
    holds: EPERM EAFNOSUPPORT"""
    socket.socket(16, socket.SOCK_RAW)
    return "made"


def uses_kernel_crypto():
    """attempts: AF_ALG, seldom used kernel code
    holds: EPERM EAFNOSUPPORT"""
    socket.socket(38, socket.SOCK_SEQPACKET)
    return "made"


def talks_to_the_hypervisor():
    """attempts: AF_VSOCK, which no network namespace divides
    holds: EPERM EAFNOSUPPORT"""
    socket.socket(40, socket.SOCK_STREAM)
    return "made"


def control():
    """control: a local stream"""
    a, b = socket.socketpair()
    a.send(b"x")
    return b.recv(1)
