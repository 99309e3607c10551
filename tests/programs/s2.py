"""S2: six ways to a file of the host, given as the first argument."""

import os
import sys

from attempt import attempt, read, report

path = sys.argv[1]
os.symlink(path, "/scratch/link")
attempt("direct", lambda: read(path))
attempt("traversal", lambda: read("/in/../../../../.." + path))
attempt("own root", lambda: read("/proc/self/root" + path))
attempt("init's root", lambda: read("/proc/1/root" + path))
attempt("working directory", lambda: read("/proc/self/cwd/../.." + path))
attempt("symbolic link", lambda: read("/scratch/link"))
if len(sys.argv) > 2:
    attempt("control", lambda: read(sys.argv[2]))
report()
