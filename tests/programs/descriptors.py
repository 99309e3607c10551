"""The numbers of the open descriptors, without the one that lists them, and
every environment that can be read."""

import os

from attempt import attempt, report, results

listing = os.open("/proc/self/fd", os.O_RDONLY)
results["descriptors"] = " ".join(sorted((n for n in os.listdir(listing) if int(n) != listing and os.path.lexists("/proc/self/fd/" + n)), key=int))
os.close(listing)
found = [f"{k}={v}" for k, v in os.environ.items()]
readable = 0
for pid in os.listdir("/proc"):
    if pid.isdigit():
        for name in ("environ", "cmdline"):
            try:
                found.append(open(f"/proc/{pid}/{name}", "rb").read().decode("latin-1"))
                readable += 1
            except OSError:
                pass
results["environments"] = "\n".join(found)
results["readable"] = str(readable)
report()
