"""What one job can find of another: its files, its processes."""

import os
import sys

from attempt import attempt, read, report, results

marker = sys.argv[1]
for path in ("/scratch/canary", "/out/canary", "/scratch/sub/canary", "/dev/shm/canary"):
    attempt("read " + path, lambda: read(path))
results["scratch"] = " ".join(sorted(os.listdir("/scratch")))
results["out"] = " ".join(sorted(os.listdir("/out")))
pids = [p for p in os.listdir("/proc") if p.isdigit()]
results["processes"] = " ".join(sorted(pids))
seen = 0
for pid in pids:
    try:
        seen += marker in read(f"/proc/{pid}/cmdline") and pid != str(os.getpid())
    except OSError:
        pass
results["others with the marker"] = str(seen)
for pid in sys.argv[2:]:
    for name in ("cmdline", "root/scratch/canary", "environ"):
        attempt(f"host pid {name}", lambda: read(f"/proc/{pid}/{name}"))
    attempt("signal host pid", lambda: os.kill(int(pid), 0))
report()
