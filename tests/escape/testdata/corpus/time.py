import ctypes
import os
import resource

libc = ctypes.CDLL(None, use_errno=True)


def sets_the_clock():
    """attempts: change the machine's time
    holds: EPERM"""
    import time
    time.clock_settime(time.CLOCK_REALTIME, 0)


def raises_its_cpu_limit():
    """attempts: more cpu time than the policy gives
    holds: ValueError EPERM"""
    resource.setrlimit(resource.RLIMIT_CPU, (10000, 10000))


def wakes_the_machine():
    """attempts: an alarm that wakes a machine from sleep
    holds: EPERM ENOTSUP EINVAL"""
    if libc.timerfd_create(8, 0) < 0:
        raise OSError(ctypes.get_errno(), "")


def control():
    """control: read the clock"""
    import time
    return time.time() > 0
