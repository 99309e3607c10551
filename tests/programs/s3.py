"""S3: one byte to eight places outside of /scratch and /out."""

import hashlib
import os

from attempt import attempt, read, report, results, write_to


def digest():
    h = hashlib.sha256()
    for top in ("/in", "/etc", "/bin", "/usr/bin", "/usr/lib/python3"):
        for folder, _, names in sorted(os.walk(top)):
            for name in sorted(names):
                path = os.path.join(folder, name)
                h.update(f"{path} {os.lstat(path).st_mode} {os.lstat(path).st_size}\n".encode())
                if os.path.isfile(path):
                    h.update(open(path, "rb").read())
    return h.hexdigest()


def control():
    write_to("/scratch/control")
    return read("/scratch/control")


before = digest()
attempt("root", lambda: write_to("/written"))
attempt("in", lambda: write_to("/in/victim.csv"))
attempt("etc", lambda: write_to("/etc/passwd"))
attempt("usr", lambda: write_to("/usr/lib/written"))
attempt("interpreter", lambda: write_to(os.path.realpath("/proc/self/exe")))
attempt("proc sys", lambda: write_to("/proc/sys/kernel/hostname"))
attempt("sys", lambda: write_to("/sys/kernel/written"))
attempt("traversal", lambda: write_to("/scratch/../../etc/hosts"))
attempt("control", control)
results["unchanged"] = str(digest() == before)
results["written"] = str(os.path.exists("/written") or os.path.exists("/usr/lib/written"))
report()
