"""Print what this process is, sees and may do, one JSON object of strings.

The values are the same for every box of one plan: numbers that differ from box
to box (inodes, host pids, device numbers) are left out.
"""
import ctypes, json, os, re, resource, socket, stat

print("began", flush=True)
view = {}


def note(key, value):
    view[key] = str(value)


def attempt(key, act):
    try:
        note("try " + key, "done %s" % (act(),))
    except (OSError, ValueError) as e:
        note("try " + key, e)


for pid in ("self", "1"):
    try:
        lines = open("/proc/%s/status" % pid).read().splitlines()
    except OSError as e:
        lines = ["unreadable: %s" % os.strerror(e.errno)]
    for line in lines:
        name, _, value = line.partition(":")
        if name in ("Uid", "Gid", "Groups", "NoNewPrivs", "Seccomp", "Seccomp_filters", "Umask", "NSpid", "NSsid", "NSpgid", "PPid",
                    "Cpus_allowed_list", "SigBlk", "SigIgn", "unreadable") or name.startswith("Cap"):
            note("status %s %s" % (pid, name), value.strip())

note("cgroup", open("/proc/self/cgroup").read().split())
note("setgroups", open("/proc/self/setgroups").read().strip())
for name in ("uid_map", "gid_map"):
    note(name, [(l.split()[0], l.split()[2]) for l in open("/proc/self/" + name)])
for line in open("/proc/self/mountinfo"):
    left, _, right = line.partition(" - ")
    fields, kind = left.split(), right.split()
    note("mount " + fields[4], " ".join(fields[5:] + [kind[0], re.sub(r",[ug]id=\d+", "", kind[2])]))
for fd in sorted(os.listdir("/proc/self/fd")):
    try:
        st = os.stat("/proc/self/fd/" + fd)
        note("fd " + fd, "%o %x" % (stat.S_IFMT(st.st_mode), st.st_rdev))
    except OSError:
        pass  # the listing's own
for name in sorted(dir(resource)):
    if name.startswith("RLIMIT_"):
        note(name, resource.getrlimit(getattr(resource, name)))
note("environment", sorted(os.environ))
note("working directory", os.getcwd())
note("names", (os.uname().nodename, open("/proc/sys/kernel/domainname").read().strip()))
note("interfaces", sorted(l.split(":")[0].strip() for l in open("/proc/net/dev") if ":" in l))
for name in ("user_namespaces", "inotify_instances", "inotify_watches"):
    note(name, open("/proc/sys/user/max_" + name).read().strip())
for name in ("keys", "kallsyms", "timer_list", "cmdline", "bus", "fs"):
    try:
        st = os.stat("/proc/" + name)
        note("masked " + name, "%o %x %o" % (stat.S_IFMT(st.st_mode), st.st_rdev, st.st_mode & 0o777))
    except OSError as e:
        note("masked " + name, os.strerror(e.errno))
for top, dirs, files in os.walk("/"):
    dirs[:] = [d for d in dirs if top + d not in ("/proc", "/scratch", "/in") and top.count("/") < 3]
    for name in dirs + files:
        path = os.path.join(top, name)
        note("path " + path, "%o" % os.lstat(path).st_mode)

libc = ctypes.CDLL(None, use_errno=True)


def call(name, *args):
    if getattr(libc, name)(*args) < 0:
        raise OSError(ctypes.get_errno(), "")
    return ""


attempt("write a device that only Landlock guards", lambda: os.open("/dev/zero", os.O_WRONLY))
attempt("write a device", lambda: os.open("/dev/null", os.O_WRONLY) and "")
attempt("user namespace", lambda: call("unshare", 0x10000000))
attempt("unshare of nothing", lambda: call("unshare", 0))
attempt("mount", lambda: call("mount", b"none", b"/scratch", b"tmpfs", 0, None))
attempt("chroot", lambda: os.chroot("/scratch"))
attempt("become root", lambda: os.setuid(0))
attempt("groups", lambda: os.setgroups([0]))
attempt("internet socket", lambda: socket.socket(socket.AF_INET).close())
attempt("local socket", lambda: socket.socket(socket.AF_UNIX).close())
attempt("write the root", lambda: os.mkdir("/x"))
attempt("write the input", lambda: os.open("/in/x", os.O_CREAT | os.O_WRONLY))
attempt("raise a limit", lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096)))
attempt("memory of pid 1", lambda: os.open("/proc/1/mem", os.O_RDWR))
attempt("host name", lambda: socket.sethostname("x"))
attempt("the terminal", lambda: os.open("/dev/tty", os.O_RDWR))

with open("/out/summary.csv", "w") as f:
    f.write("the program,ran\n")
print(json.dumps(view))
