import os
import threading
import time


def forks_until_denied():
    """attempts: more processes than the policy gives
    holds: EAGAIN"""
    made = []
    try:
        for _ in range(100):
            pid = os.fork()
            if pid == 0:
                time.sleep(60)
                os._exit(0)
            made.append(pid)
        return len(made)
    finally:
        for pid in made:
            os.kill(pid, 9)
            os.waitpid(pid, 0)


def starts_threads_until_denied():
    """attempts: the same with threads
    holds: RuntimeError"""
    stop = threading.Event()
    made = []
    try:
        for _ in range(100):
            t = threading.Thread(target=stop.wait, daemon=True)
            t.start()
            made.append(t)
        return len(made)
    finally:
        stop.set()
        for t in made:
            t.join()


def lowers_its_own_count():
    """attempts: a higher limit of processes
    holds: ValueError EPERM"""
    import resource
    resource.setrlimit(resource.RLIMIT_NPROC, (1000, 1000))


def pushes_others_aside():
    """attempts: a real-time priority
    holds: EPERM"""
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))


def control():
    """control: three processes at once"""
    made = []
    for _ in range(3):
        pid = os.fork()
        if pid == 0:
            time.sleep(0.05)
            os._exit(0)
        made.append(pid)
    return sum(os.waitpid(p, 0)[1] for p in made)
