import os
import signal


def kills_process_1():
    """attempts: end the box's own init
    holds: EPERM ESRCH"""
    os.kill(1, signal.SIGKILL)


def signals_everybody_outside():
    """attempts: reach processes of the host by numbers that exist there
    holds: ESRCH, or EPERM of a thread of init"""
    for pid in range(3, 4000):
        if pid != os.getpid():
            try:
                os.kill(pid, 0)
                return pid
            except ProcessLookupError:
                pass
    raise ProcessLookupError(3, "")


def traces_init():
    """attempts: attach to process 1
    holds: EPERM ESRCH"""
    return call(101, 16, 1, 0, 0)


def traces_its_parent():
    """attempts: attach to the program that started it, of the same ids
    holds: EPERM"""
    return call(101, 16, os.getppid(), 0, 0)


def steals_a_descriptor():
    """attempts: take a descriptor out of another process
    holds: EPERM"""
    return call(438, call(434, os.getppid(), 0), 0, 0)


def queues_a_signal_to_init():
    """attempts: a queued signal with a forged sender
    holds: EPERM ESRCH EFAULT"""
    return call(129, 1, 9, 0)


def control():
    """control: end a child of its own"""
    pid = os.fork()
    if pid == 0:
        signal.pause()
    os.kill(pid, 9)
    return os.waitpid(pid, 0)[1]
