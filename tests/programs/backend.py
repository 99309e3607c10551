"""The same attempts from every kind of process a program can be: itself, its
child, its thread, and itself after an exec. The first argument is the set of
attempts, the second the way (empty: all of them, one report)."""

import ctypes
import json
import os
import socket
import sys
import threading
import time

from attempt import attempt, read, report, results, syscall, write_to

what, way, given = sys.argv[1], sys.argv[2], sys.argv[3:]


def files():
    allowed, denied, credential, folder = given
    name = f"/scratch/{time.monotonic_ns()}"
    attempt("read allowed", lambda: read(allowed))
    attempt("read denied", lambda: read(denied))
    attempt("read credential", lambda: read(credential))
    attempt("write allowed", lambda: write_to(name))
    for path, label in ((folder + "/written", "folder"), (denied, "neighbour"), ("/in/written", "in"), ("/usr/written", "usr"), ("/written", "root"), (allowed, "input")):
        attempt("write " + label, lambda: write_to(path))
    os.symlink(denied, name + ".link")
    os.symlink(folder, name + ".dir")
    os.symlink(allowed, name + ".within")
    attempt("read by a link", lambda: read(name + ".link"))
    attempt("write by a link", lambda: write_to(name + ".link"))
    attempt("write by a link to a folder", lambda: write_to(name + ".dir/written"))
    attempt("read by a link within", lambda: read(name + ".within"))
    attempt("credential in the environment", lambda: os.environ["NSBOX_VERIFY"])
    attempt("a program of the host", lambda: os.posix_spawn("/bin/sh", ["sh", "-c", "true"], {}))


def state():
    for line in read("/proc/thread-self/status").splitlines():
        key, _, value = line.partition(":")
        if key in ("Uid", "Gid", "Groups", "NoNewPrivs", "Seccomp", "SigBlk", "SigIgn") or key.startswith("Cap"):
            results["status " + key] = value.strip()
    for line in read("/proc/thread-self/limits").splitlines():
        if line.startswith("Max "):
            f = line[26:].split()
            results["limit " + line[4:26].strip()] = " ".join(f[:2])
    for name in ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup"):
        results["namespace " + name] = os.readlink("/proc/thread-self/ns/" + name)
    results["names"] = f"{os.uname().nodename} {read('/proc/sys/kernel/domainname').strip()}"
    results["cgroup"] = " ".join(line.split(":")[2] for line in read("/proc/self/cgroup").splitlines())
    results["descriptors"] = " ".join(str(n) for n in range(64) if os.path.lexists(f"/proc/thread-self/fd/{n}"))
    results["interfaces"] = " ".join(sorted(line.split(":")[0].strip() for line in read("/proc/thread-self/net/dev").splitlines()[2:]))
    results["cpus"] = str(len(os.sched_getaffinity(0)))
    for name in ("user_namespaces", "inotify_instances", "inotify_watches"):
        results["most " + name] = read("/proc/sys/user/max_" + name).strip()
    for line in read("/proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        f = left.split()
        results["mount " + f[4]] = " ".join([right.split()[0]] + sorted(o for o in f[5].split(",") if o != "relatime") + f[6:])
    results["pids"] = str(sum(p.isdigit() and int(p) == 1 for p in os.listdir("/proc")))
    results["session"] = str(os.getsid(0))


def calls():
    """Each denied class by a call that, without the filter, would come to another
    answer: it succeeds, or fails for its arguments."""
    bad = ctypes.c_void_p(8)
    attempt("mount", lambda: syscall(165, bad, bad, bad, 0, None))
    attempt("unshare", lambda: syscall(272, 0))
    attempt("setns", lambda: syscall(308, -1, 0))
    attempt("ptrace", lambda: syscall(101, 16, -1, 0, 0))
    attempt("keyctl", lambda: syscall(250, 0, -3, 0))
    attempt("bpf", lambda: syscall(321, 9999, bad, 1 << 20))
    attempt("perf", lambda: syscall(298, bad, 0, -1, -1, 0))
    attempt("userfaultfd", lambda: syscall(323, 1))
    attempt("io_uring", lambda: syscall(425, 1, bad))
    attempt("inet", lambda: socket.socket(socket.AF_INET).close())
    attempt("vsock", lambda: socket.socket(40).close())
    attempt("netlink", lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close())
    attempt("local", lambda: socket.socket(socket.AF_UNIX).close())
    attempt("only Landlock", lambda: os.close(os.open("/dev/zero", os.O_WRONLY)))
    attempt("a device", lambda: os.close(os.open("/dev/null", os.O_WRONLY)))


def endpoints():
    import urllib.request  # costs more than all the rest

    allowed, denied, hops = given

    def dial(where):
        host, _, port = where.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=10) as s:
            return s.recv(16).decode().strip()

    attempt("allowed", lambda: dial(allowed))
    attempt("denied", lambda: dial(denied))
    attempt("redirect", lambda: urllib.request.urlopen(f"http://{hops}/", timeout=10).read(16).decode())


def limit():
    """One limit, from one way."""
    kind = given[0]
    if kind == "processes":
        made = 0
        try:
            for _ in range(int(given[1])):
                if os.fork() == 0:
                    time.sleep(2)
                    os._exit(0)
                made += 1
        except OSError as e:
            results["ended"] = str(e.errno)
        results["forked"] = str(made)
    elif kind == "output":
        for _ in range(int(given[1])):
            os.write(1, b"x" * 4096)
    elif kind == "memory":
        held = []
        for _ in range(int(given[1])):
            block = bytearray(8 << 20)
            block[::4096] = b"x" * len(block[::4096])
            held.append(block)
        results["held"] = str(len(held))
    elif kind == "time":
        time.sleep(float(given[1]))


acts = {"files": files, "state": state, "calls": calls, "endpoints": endpoints, "limit": limit}


def in_way(w):
    results.clear()
    if w == "self" or w == "after exec":
        acts[what]()
    elif w == "thread":
        thread = threading.Thread(target=acts[what])
        thread.start()
        thread.join()
    elif w == "child":
        pid = os.fork()
        if pid == 0:
            try:
                acts[what]()
                with open("/scratch/child", "w") as f:
                    json.dump(results, f)
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        results.update(json.loads(read("/scratch/child")) if os.path.exists("/scratch/child") else {})
    return dict(results)


if way:
    if way == "after exec" and os.environ.get("AFTER") is None:
        os.execve("/usr/bin/python3", ["python3"] + sys.argv, {**os.environ, "AFTER": "1"})
    in_way(way)
    report()
else:
    found = {w: in_way(w) for w in ("self", "thread", "child")}
    keep = "/scratch/found"
    with open(keep, "w") as f:
        json.dump(found, f)
    os.execve("/usr/bin/python3", ["python3", "-c", "import json, os, runpy, sys\n"
              "found = json.load(open('/scratch/found'))\n"
              "sys.argv = sys.argv[1:]\nsys.path.insert(0, '/in')\n"
              "import attempt\n"
              "attempt.report = lambda: None\n"
              "runpy.run_path(sys.argv[0])\n"
              "found['after exec'] = attempt.results\n"
              "print(json.dumps({w + ': ' + k: v for w, r in found.items() for k, v in r.items()}))\n",
              sys.argv[0], what, "self", *given], dict(os.environ))
