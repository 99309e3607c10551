"""What the box shows of itself and of the host."""

import os

from attempt import attempt, read, report, results

results["root"] = " ".join(sorted(os.listdir("/")))
results["pids"] = " ".join(sorted(p for p in os.listdir("/proc") if p.isdigit()))
results["self"] = os.readlink("/proc/self")
for name in ("environ", "mem", "maps", "fd", "root", "exe", "status", "cmdline"):
    attempt("init " + name, lambda: os.stat("/proc/1/" + name))
attempt("open init environ", lambda: read("/proc/1/environ"))
for name in ("/sys", "/run", "/var", "/tmp", "/home", "/root", "/opt", "/boot", "/mnt", "/dev/tty", "/dev/shm", "/dev/mem", "/dev/kmsg", "/dev/ptmx"):
    attempt("stat " + name, lambda: os.stat(name))
for name in ("keys", "key-users", "kallsyms", "timer_list"):
    attempt("masked " + name, lambda: repr(read("/proc/" + name)))
attempt("kcore", lambda: repr(read("/proc/kcore", 16)))
attempt("sysrq", lambda: open("/proc/sysrq-trigger", "w"))
results["cgroup"] = "; ".join(line for line in read("/proc/self/cgroup").splitlines() if line.startswith("0::"))
results["mountinfo"] = read("/proc/self/mountinfo")
results["devices"] = " ".join(sorted(os.listdir("/dev")))
results["interfaces"] = " ".join(sorted(line.split(":")[0].strip() for line in read("/proc/self/net/dev").splitlines()[2:]))
results["hostname"] = os.uname().nodename
results["streams"] = " ".join(os.readlink(f"/proc/self/fd/{n}").split(":")[0] for n in (0, 1, 2))
results["terminal"] = str([os.isatty(n) for n in (0, 1, 2)])
results["environment"] = " ".join(sorted(os.environ))
results["working directory"] = os.getcwd()
old = os.umask(0)
results["umask"] = f"{old:03o}"
attempt("full device", lambda: open("/dev/full", "w"))
attempt("null device", lambda: open("/dev/null", "w").write("x") and None)
attempt("zero device", lambda: open("/dev/zero", "rb").read(1).hex())
attempt("random device", lambda: len(open("/dev/urandom", "rb").read(8)))
attempt("write zero device", lambda: open("/dev/zero", "wb"))
report()
