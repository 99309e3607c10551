"""Ways to somebody else: sockets of every family, names of the host's, a port."""

import socket
import sys

from attempt import attempt, libc, report, results


def families():
    made = []
    for family in range(64):
        for kind in (1, 2, 3, 5):
            fd = libc.socket(family, kind, 0)
            if fd >= 0:
                made.append(family)
                socket.close(fd)
                break
    results["families"] = " ".join(map(str, made))


def names(abstract, port):
    def connect(family, address):
        with socket.socket(family) as s:
            s.settimeout(2)
            s.connect(address)

    attempt("abstract name", lambda: connect(socket.AF_UNIX, "\0" + abstract))
    attempt("port", lambda: connect(socket.AF_INET, ("127.0.0.1", int(port))))
    for path in ("/run/systemd/notify", "/run/dbus/system_bus_socket", "/run/docker.sock", "/dev/log", "/var/run/nscd/socket"):
        attempt(path, lambda: connect(socket.AF_UNIX, path))

    def squat():
        # The box's own name space: nobody on the host is deceived by this.
        with socket.socket(socket.AF_UNIX) as mine, socket.socket(socket.AF_UNIX) as caller:
            mine.bind("\0" + abstract)
            mine.listen()
            caller.connect("\0" + abstract)

    attempt("control", squat)


{"families": families, "names": names}[sys.argv[1]](*sys.argv[2:])
report()
