"""A tree that does not want to end. The first argument says how."""

import os
import signal
import sys
import time


def ignore_everything():
    for n in range(1, 65):
        try:
            signal.signal(n, signal.SIG_IGN)
        except (OSError, ValueError):
            pass


def linger():
    time.sleep(30)
    os._exit(0)


how = sys.argv[1]
if how == "keeps stdout":
    if os.fork() == 0:
        os.setsid()
        linger()
elif how == "writes on":
    if os.fork() == 0:
        os.setsid()
        while True:
            os.write(1, b".")
            time.sleep(0.01)
elif how == "double fork":
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            ignore_everything()
            linger()
        os._exit(0)
    os.wait()
elif how == "stopped child":
    pid = os.fork()
    if pid == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
        linger()
    os.waitpid(pid, os.WUNTRACED)
elif how == "ignores signals":
    ignore_everything()
    os.fork()
    print("ready", flush=True)
    linger()
elif how == "stops itself":
    if os.fork() == 0:
        ignore_everything()
        linger()
    print("ready", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
    linger()
print("ready", flush=True)
