"""Ways out of the tree: links of /proc, the page cache, devices, mounts, handles."""

import ctypes
import fcntl
import mmap
import os
import socket
import struct
import sys

from attempt import attempt, in_child, libc, report, results, syscall

LIBRARY = os.path.realpath(os.__file__)
INTERPRETER = os.path.realpath("/proc/self/exe")


def magic_links(canary):
    def climb(path):
        results[name + " is"] = str(os.stat(path).st_ino == os.stat("/").st_ino)
        os.stat(path + canary)

    for name, path in (("own root", "/proc/self/root/../../.."), ("thread root", "/proc/thread-self/root/.."), ("own cwd", "/proc/self/cwd/../../..")):
        attempt(name, lambda: climb(path))
    attempt(name := "opened root", lambda: climb(f"/proc/self/fd/{os.open('/', os.O_PATH)}/../.."))
    attempt("control", lambda: os.stat("/proc/self/root/in") and None)


def init():
    os.symlink("/proc/1/root", "/scratch/link")
    for name in ("root", "cwd", "exe", "fd", "ns/mnt", "environ", "maps", "mem", "auxv", "stack", "task/1/root"):
        attempt(name, lambda: os.stat("/proc/1/" + name) and None)
    attempt("by a link", lambda: os.listdir("/scratch/link"))
    attempt("by a thread", lambda: os.stat("/proc/self/task/1") and None)
    attempt("control", lambda: os.readlink("/proc/2/root"))


def page_cache():
    """Overwrites cached pages of a file that is only readable, as several kernel faults allowed."""
    def address():
        with open("/proc/self/maps") as maps:
            return next(int(line.split("-")[0], 16) for line in maps if line.rstrip().endswith(LIBRARY))

    def own_memory(flags):
        file = os.open(LIBRARY, os.O_RDONLY)
        memory = mmap.mmap(file, 4096, flags=flags, prot=mmap.PROT_READ)
        mem = os.open("/proc/self/mem", os.O_RDWR)
        os.pwrite(mem, b"#OWNED", address())
        memory.close()

    def spliced():
        reader, writer = os.pipe()
        for _ in range(16):
            os.write(writer, b"a" * 4096)
        for _ in range(16):
            os.read(reader, 4096)
        os.splice(os.open(LIBRARY, os.O_RDONLY), writer, 1, offset_src=0)
        os.write(writer, b"OWNED")

    attempt("own memory shared", lambda: own_memory(mmap.MAP_SHARED))
    attempt("own memory private", lambda: own_memory(mmap.MAP_PRIVATE))
    attempt("writable mapping", lambda: mmap.mmap(os.open(LIBRARY, os.O_RDONLY), 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE))
    attempt("splice", spliced)
    attempt("reopen the interpreter", lambda: os.open("/proc/self/exe", os.O_RDWR))
    attempt("map files", lambda: os.open("/proc/self/map_files/" + os.listdir("/proc/self/map_files")[0], os.O_RDWR))
    with open(LIBRARY, "rb") as f:
        results["unchanged"] = str(b"OWNED" not in f.read())


def host_inodes():
    """Changes inodes that the host shares with the box."""
    for name, path in (("library", LIBRARY), ("interpreter", INTERPRETER), ("device", "/dev/null")):
        attempt(name + " times", lambda: os.utime(path))
        attempt(name + " mode", lambda: os.chmod(path, 0o6777))
        attempt(name + " owner", lambda: os.chown(path, 10001, 10001))
        attempt(name + " attribute", lambda: os.setxattr(path, "user.x", b"1"))
        attempt(name + " second name", lambda: os.link(path, "/scratch/second"))
        attempt(name + " rename", lambda: os.rename(path, path + ".old"))
        attempt(name + " lease", lambda: fcntl.fcntl(os.open(path, os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_RDLCK))
        attempt(name + " inode flags", lambda: fcntl.ioctl(os.open(path, os.O_RDONLY), 0x40086602, b"\x10" + bytes(7)))
    attempt("library truncate", lambda: os.truncate(LIBRARY, 0))
    attempt("library hole", lambda: syscall(285, os.open(LIBRARY, os.O_RDONLY), 3, 0, 4096))
    os.close(os.open("own", os.O_CREAT | os.O_WRONLY))
    attempt("control times", lambda: os.utime("own"))
    attempt("control mode", lambda: os.chmod("own", 0o600))
    attempt("control second name", lambda: os.link("own", "second"))


def devices():
    for where in ("/scratch", "/out", "/dev"):
        for kind, mode, number in (("memory", 0o20666, os.makedev(1, 1)), ("disk", 0o60666, os.makedev(254, 0)), ("whiteout", 0o20666, 0)):
            attempt(f"{where} {kind}", lambda: os.mknod(f"{where}/{kind}", mode, number))
    attempt("control", lambda: os.mkfifo("/scratch/fifo"))
    results["nodes"] = " ".join(n for d in ("/scratch", "/out") for n in os.listdir(d) if n != "fifo")


def privileges():
    """Set-id bits, file capabilities and programs of the box's own making."""
    own = "/scratch/program"
    with open(own, "wb") as f, open(INTERPRETER, "rb") as image:
        f.write(image.read())
    attempt("set-id bits", lambda: os.chmod(own, 0o6755))
    attempt("file capability", lambda: os.setxattr(own, "security.capability", bytes.fromhex("0100000200000080") + bytes(12)))
    attempt("trusted attribute", lambda: os.setxattr(own, "trusted.x", b"1"))
    attempt("exec", lambda: os.posix_spawn(own, [own, "-c", "pass"], {}))
    attempt("exec by descriptor", lambda: in_child(lambda: os.execve(os.open(own, os.O_RDONLY), [own, "-c", "pass"], {})))
    attempt("by the loader", lambda: os.waitstatus_to_exitcode(os.waitpid(os.posix_spawn("/lib64/ld-linux-x86-64.so.2", ["ld.so", own, "-c", "pass"], {}), 0)[1]))
    attempt("executable mapping", lambda: mmap.mmap(os.open(own, os.O_RDONLY), 4096, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC))
    attempt("memory file", lambda: syscall(319, b"x", 0))

    def later():
        memory = mmap.mmap(os.open(own, os.O_RDWR), 4096, flags=mmap.MAP_PRIVATE)
        if libc.mprotect(ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(memory))), 4096, 5):
            raise OSError(ctypes.get_errno(), "mprotect")

    attempt("executable later", later)
    attempt("control", lambda: os.waitstatus_to_exitcode(os.waitpid(os.posix_spawn(INTERPRETER, ["python3", "-c", "pass"], {}), 0)[1]))


def mounts():
    def table():
        with open("/proc/self/mountinfo") as f:
            return f.read()

    before = table()
    for name, number, *args in (
            ("mount", 165, b"none", b"/scratch", b"tmpfs", 0, 0), ("remount", 165, b"none", b"/", b"", 0x1020, 0), ("bind", 165, b"/proc", b"/scratch", b"", 0x1000, 0),
            ("umount", 166, b"/etc", 2), ("pivot root", 155, b"/scratch", b"/scratch"), ("chroot", 161, b"/scratch"), ("fsopen", 430, b"tmpfs", 0), ("fsmount", 432, 3, 0, 0),
            ("open tree", 428, -100, b"/", 1), ("move mount", 429, -100, b"/etc", -100, b"/scratch", 0), ("mount setattr", 442, -100, b"/", 0, bytes(32), 32),
            ("fspick", 433, -100, b"/", 0), ("open tree attr", 467, -100, b"/", 1, bytes(32), 32), ("listmount", 458, bytes(32), bytes(64), 8, 0), ("statmount", 457, bytes(32), bytes(512), 512, 0)):
        attempt(name, lambda: syscall(number, *args))
    results["unchanged"] = str(table() == before)
    attempt("control", lambda: os.statvfs("/scratch") and None)


def handles():
    handle = ctypes.create_string_buffer(struct.pack("Ii", 120, 0) + bytes(120))
    mount = ctypes.c_int()
    attempt("make", lambda: syscall(303, -100, b"/usr", ctypes.addressof(handle), ctypes.addressof(mount), 0))
    # The root of ext4 and of most file systems is inode 2.
    for kind in (1, 2, 0x81):
        handle = ctypes.create_string_buffer(struct.pack("IiII", 8, kind, 2, 0) + bytes(120))
        attempt(f"open {kind}", lambda: syscall(304, os.open("/usr/bin", os.O_RDONLY), ctypes.addressof(handle), 0))
    attempt("control", lambda: os.open("/usr/bin", os.O_RDONLY) and None)


def writable():
    """Every file of /proc and every directory: what can be written?"""
    opened, made = [], []
    for top, directories, files in os.walk("/proc"):
        if top == "/proc":
            directories[:] = [d for d in directories if not d.isdigit() and d != "thread-self"]
        for path in (os.path.join(top, f) for f in files):
            try:
                fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
                # What is masked is the null device; the links to own descriptors lead to own pipes.
                if os.fstat(fd).st_rdev != os.stat("/dev/null").st_rdev and "/fd/" not in path:
                    opened.append(path)
                os.close(fd)
            except OSError:
                pass
    for top, directories, _ in os.walk("/"):
        directories[:] = [d for d in directories if os.path.join(top, d) != "/proc"]
        try:
            os.close(os.open(os.path.join(top, "made"), os.O_CREAT | os.O_WRONLY))
            made.append(top)
        except OSError:
            pass
    os.unlink("/out/made")
    results["files"], results["directories"] = " ".join(opened), " ".join(sorted(made))


def descriptors():
    results["held"] = " ".join(sorted(os.listdir("/proc/self/fd")[:3]))
    for n in (0, 1, 2):
        results[f"{n} leads to"] = os.readlink(f"/proc/self/fd/{n}").split(":")[0]
    results["owned"] = str({os.fstat(n).st_uid for n in (1, 2)} == {os.getuid()})

    def send(*sender):
        own, other = socket.socketpair()
        own.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_CREDENTIALS, struct.pack("iii", *sender))])

    attempt("forged sender", lambda: send(1, 0, 0))
    attempt("control", lambda: send(os.getpid(), os.getuid(), os.getgid()))


{f.__name__: f for f in (magic_links, init, page_cache, host_inodes, devices, privileges, mounts, handles, writable, descriptors)}[sys.argv[1]](*sys.argv[2:])
report()
