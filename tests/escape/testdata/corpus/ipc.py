import ctypes
import os
import socket

libc = ctypes.CDLL(None, use_errno=True)


def finds_the_hosts_segment():
    """attempts: attach shared memory of the host by its key
    holds: ENOENT EPERM ENOSYS"""
    return call(29, 0x6e736278, 0, 0)


def finds_the_hosts_queue():
    """attempts: open a message queue of the host by its key
    holds: ENOENT EPERM ENOSYS"""
    return call(68, 0x6e736278, 0)


def connects_to_an_abstract_name():
    """attempts: reach a listener of the host that has a name and no file
    holds: ECONNREFUSED EPERM EACCES"""
    s = socket.socket(socket.AF_UNIX)
    s.connect("\0nsbox-corpus-NAME")
    return "connected"


def opens_a_posix_queue():
    """attempts: a queue that outlives the box
    holds: EMFILE EPERM ENOSYS EACCES"""
    if libc.mq_open(b"/corpus", 0o102, 0o600, None) < 0:
        raise OSError(ctypes.get_errno(), "")


def forges_its_sender():
    """attempts: claim another process as the sender of a message
    holds: EPERM"""
    import struct
    a, b = socket.socketpair()
    a.sendmsg([b"x"], [(socket.SOL_SOCKET, 2, struct.pack("iII", 1, 0, 0))])


def control():
    """control: a pair of sockets"""
    a, b = socket.socketpair()
    a.send(b"x")
    return b.recv(1)
