"""What ordinary Python programs use."""

import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
import time

from attempt import attempt, report, results


def threads():
    done = []
    all_of_them = [threading.Thread(target=done.append, args=(n,)) for n in range(8)]
    for t in all_of_them:
        t.start()
    for t in all_of_them:
        t.join()
    return sorted(done) == list(range(8))


def temporary():
    with tempfile.NamedTemporaryFile() as f:
        f.write(b"x")
        return os.path.dirname(f.name)


def database():
    import sqlite3

    db = sqlite3.connect("/scratch/db")
    db.execute("create table t (x)")
    db.execute("insert into t values (42)")
    return db.execute("select x from t").fetchone()[0]


def secure():
    import ssl

    return bool(ssl.create_default_context().get_ciphers())


def numbers():
    from decimal import Decimal

    return Decimal("0.1") + Decimal("0.2")


def document():
    import json

    return json.loads(json.dumps({"é": [1]}))["é"][0]


def foreign():
    import ctypes

    return ctypes.CDLL(None).abs(-3)


def packing():
    import bz2
    import lzma
    import zlib

    return all(m.decompress(m.compress(b"x" * 99)) == b"x" * 99 for m in (bz2, lzma, zlib))


def hashes():
    import hashlib
    import uuid

    return len(hashlib.sha3_256(b"").hexdigest()) + len(str(uuid.uuid4()))


def zones():
    import datetime
    import time as clock

    return clock.tzname[0], datetime.datetime.fromtimestamp(0).isoformat()


def processes():
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    p = context.Process(target=lambda: theirs.send(os.getpid()))
    p.start()
    there = ours.recv()
    p.join()
    return there != os.getpid() and p.exitcode == 0


# First: where only the address space can be limited, the arenas of threads leave
# too little of it for a compressor.
attempt("compression", packing)
attempt("threads", threads)
attempt("tempfile", temporary)
attempt("sqlite3", database)
attempt("ssl", secure)
attempt("decimal", numbers)
attempt("json", document)
attempt("ctypes", foreign)
attempt("hashes", hashes)
attempt("process", processes)
attempt("child of the same interpreter", lambda: subprocess.run([sys.executable, "-c", "print(6 * 7)"], capture_output=True, text=True, check=True).stdout.strip())
attempt("shell", lambda: subprocess.run(["/bin/sh", "-c", "true"]))
attempt("os.system", lambda: os.system("true"))
attempt("lock in /dev/shm", multiprocessing.Lock)
attempt("timer", lambda: time.sleep(0.01))
attempt("time zone", zones)
attempt("user", lambda: __import__("pwd").getpwuid(os.getuid()).pw_uid)
attempt("cpu count", lambda: len(os.sched_getaffinity(0)))
attempt("locale", lambda: __import__("locale").setlocale(__import__("locale").LC_ALL, ""))
attempt("encodings", lambda: f"{sys.stdout.encoding} {sys.getfilesystemencoding()} {open('/scratch/x', 'w').encoding}")
report()
