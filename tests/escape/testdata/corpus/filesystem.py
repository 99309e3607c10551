import os

TARGET = "/TARGET"


def reads_by_dots():
    """attempts: read a file of the host by climbing out of every directory
    holds: ENOENT ENOTDIR EACCES"""
    return open("/scratch/" + "../" * 40 + TARGET).read()


def reads_by_its_own_root():
    """attempts: the same by /proc/self/root and /proc/self/cwd
    holds: ENOENT EACCES"""
    return open("/proc/self/root/../../../.." + TARGET).read()


def follows_a_loop():
    """attempts: make the kernel walk a loop of links towards the host
    holds: ELOOP"""
    os.symlink("/scratch/b", "/scratch/a")
    os.symlink("/scratch/a", "/scratch/b")
    return open("/scratch/a").read()


def replaces_the_interpreter():
    """attempts: rename a file over the interpreter
    holds: EROFS EXDEV EACCES EPERM EBUSY"""
    open("/scratch/p", "w").close()
    os.rename("/scratch/p", os.path.realpath("/proc/self/exe"))


def writes_through_an_input():
    """attempts: open an input for writing by its descriptor's own name
    holds: EROFS EACCES EPERM"""
    fd = os.open(__file__, os.O_RDONLY)
    return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY)


def makes_a_device():
    """attempts: make the node of a disk
    holds: EPERM EACCES"""
    os.mknod("/scratch/disk", 0o60666, os.makedev(254, 0))


def makes_a_program_root():
    """attempts: give a file of its own the set-id bit and another owner
    holds: EPERM"""
    open("/scratch/s", "w").close()
    os.chown("/scratch/s", 0, 0)


def control():
    """control: write and read scratch"""
    open("/scratch/c", "w").write("x")
    return open("/scratch/c").read()
