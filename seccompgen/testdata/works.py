# What ordinary programs do. Run under the workload's filter: every line must work.
# Each check prints "ok NAME" or "BAD NAME reason"; the test counts both.
import ctypes, errno, fcntl, inspect, mmap, os, select, selectors, signal, socket, sys, tempfile, time

libc = ctypes.CDLL(None, use_errno=True)


def threads():
    import threading
    seen = []
    ts = [threading.Thread(target=seen.append, args=(i,)) for i in range(8)]
    [t.start() for t in ts]
    [t.join() for t in ts]
    assert sorted(seen) == list(range(8))


def pool():
    from concurrent.futures import ThreadPoolExecutor
    with ThreadPoolExecutor(4) as p:
        assert sum(p.map(lambda n: n * n, range(10))) == 285


def run_program():
    import subprocess
    assert subprocess.run(["/bin/echo", "hi"], check=True, stdout=subprocess.PIPE).stdout == b"hi\n"
    assert subprocess.run("exit 3", shell=True).returncode == 3
    p = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, cwd="/")
    assert p.communicate(b"x")[0] == b"x"
    missing = None
    try:
        subprocess.run(["/no/such/program"])
    except FileNotFoundError as e:
        missing = e
    assert missing


def fork():
    pid = os.fork()
    if pid == 0:
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


def spawn():
    pid = os.posix_spawn("/bin/true", ["true"], {})
    assert os.waitid(os.P_PID, pid, os.WEXITED).si_status == 0


def pidfd():
    pid = os.fork()
    if pid == 0:
        time.sleep(60)
    fd = os.pidfd_open(pid)
    signal.pidfd_send_signal(fd, signal.SIGKILL)
    assert select.select([fd], [], [], 10)[0] == [fd]
    os.waitpid(pid, 0)


def processes():
    import multiprocessing as mp
    ctx = mp.get_context("fork")
    with ctx.Pool(2) as p:
        assert p.map(abs, [-1, -2]) == [1, 2]
    q = mp.get_context("spawn").Queue()
    q.put(1)
    assert q.get(timeout=10) == 1
    with ctx.Lock():
        pass


def sqlite():
    import sqlite3
    with tempfile.TemporaryDirectory() as d:
        c = sqlite3.connect(d + "/x.db")
        c.execute("pragma journal_mode=wal")
        c.execute("create table t(a)")
        c.executemany("insert into t values(?)", [(i,) for i in range(100)])
        c.commit()
        assert c.execute("select sum(a) from t").fetchone() == (4950,)
        c.close()


def files():
    with tempfile.TemporaryDirectory() as d:
        p = os.path.join(d, "f")
        with open(p, "w") as f:
            f.write("x" * 5000)
            f.flush()
            os.fsync(f.fileno())
            os.fdatasync(f.fileno())
            fcntl.flock(f, fcntl.LOCK_EX)
            fcntl.lockf(f, fcntl.LOCK_EX)
            os.ftruncate(f.fileno(), 100)
            os.posix_fallocate(f.fileno(), 0, 200)
            os.fchmod(f.fileno(), 0o600)
        os.chmod(p, 0o644)
        os.link(p, p + "2")
        os.symlink(p, p + "3")
        assert os.readlink(p + "3") == p
        os.rename(p + "2", p + "4")
        os.utime(p, (1, 2))
        assert os.stat(p).st_mtime == 2
        assert os.access(p, os.R_OK) and os.access(p, os.R_OK, effective_ids=True)
        os.mkfifo(p + "5")
        os.mkdir(p + "6")
        assert len(list(os.scandir(d))) == 5
        os.chown(p, os.getuid(), os.getgid())
        os.statvfs(d)
        try:
            os.setxattr(p, "user.x", b"1")
        except OSError as e:
            assert e.errno == errno.ENOTSUP
        with open(p, "rb") as a, open(p + "7", "wb") as b:
            assert os.sendfile(b.fileno(), a.fileno(), 0, 50) == 50
            assert os.copy_file_range(a.fileno(), b.fileno(), 10) == 10
            os.pread(a.fileno(), 3, 1)
        import shutil
        shutil.copy2(p, p + "8")
        shutil.rmtree(p + "6")
        os.chdir(d)
        os.getcwd()
        os.chdir("/")


def memory():
    m = mmap.mmap(-1, 1 << 20)
    m.write(b"x")
    m.madvise(mmap.MADV_DONTNEED)
    m.close()
    with tempfile.TemporaryFile() as f:
        f.truncate(4096)
        m = mmap.mmap(f.fileno(), 4096)
        m[0] = 1
        m.flush()
        m.resize(8192)
    cb = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(lambda x: x + 1)
    assert cb(1) == 2


def memory_file():
    fd = os.memfd_create("x", os.MFD_CLOEXEC | 8)
    os.write(fd, b"x")
    os.close(fd)


def waiting():
    r, w = os.pipe()
    ep = select.epoll()
    ep.register(r, select.EPOLLIN)
    os.write(w, b"x")
    assert ep.poll(5) and select.select([r], [], [], 5)[0]
    p = select.poll()
    p.register(r)
    assert p.poll(100)
    assert isinstance(selectors.DefaultSelector(), selectors.EpollSelector)
    e = os.eventfd(1)
    assert os.eventfd_read(e) == 1


def timers():
    assert libc.timerfd_create(1, 0) >= 0
    got = []
    signal.signal(signal.SIGALRM, lambda *a: got.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    signal.sigtimedwait([signal.SIGUSR2], 0.05)
    time.sleep(0.02)
    assert got


def inotify():
    fd = libc.inotify_init1(0)
    assert fd >= 0 and libc.inotify_add_watch(fd, b"/tmp", 0x100) >= 0


def signals():
    got = []
    signal.signal(signal.SIGUSR1, lambda *a: got.append(1))
    os.kill(os.getpid(), signal.SIGUSR1)
    signal.raise_signal(signal.SIGUSR1)
    assert got == [1, 1]
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
    os.kill(os.getpid(), signal.SIGUSR2)
    assert signal.sigwait([signal.SIGUSR2]) == signal.SIGUSR2


def unix_sockets():
    a, b = socket.socketpair()
    a.sendall(b"x")
    assert b.recv(1) == b"x"
    r, w = os.pipe()
    socket.send_fds(a, [b"y"], [r])
    assert socket.recv_fds(b, 1, 1)[1]
    with tempfile.TemporaryDirectory() as d:
        s = socket.socket(socket.AF_UNIX)
        s.bind(d + "/s")
        s.listen()
        c = socket.socket(socket.AF_UNIX)
        c.connect(d + "/s")
        s.accept()[0].close()


def aio_loop():
    import asyncio

    async def main():
        p = await asyncio.create_subprocess_exec("/bin/echo", "x", stdout=-1)
        assert (await p.communicate())[0] == b"x\n"
        await asyncio.to_thread(time.sleep, 0.001)
    asyncio.run(main())


def limits():
    import resource
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
    resource.prlimit(0, resource.RLIMIT_CORE, (0, 0))  # in the box answered and ignored
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.getrlimit(resource.RLIMIT_CORE)
    resource.getrusage(resource.RUSAGE_CHILDREN)


def scheduling():
    cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    os.nice(1)
    os.sched_yield()
    os.sched_getscheduler(0)
    os.getpriority(os.PRIO_PROCESS, 0)


def system_v():
    i = libc.shmget(0, 4096, 0o600 | 0o1000)
    assert i >= 0 and libc.shmctl(i, 0, None) == 0
    i = libc.semget(0, 1, 0o600 | 0o1000)
    assert i >= 0 and libc.semctl(i, 0, 0) == 0


def own_confinement():
    assert libc.prctl(15, b"named", 0, 0, 0) == 0
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    abi = libc.syscall(444, None, 0, 1)
    assert abi > 0 or ctypes.get_errno() in (errno.ENOSYS, errno.EOPNOTSUPP)


def terminals():
    m, s = os.openpty()
    assert os.isatty(s)
    import termios
    termios.tcgetattr(s)
    os.get_terminal_size(s)


def everything_imports():
    import csv, decimal, hashlib, json, logging, random, ssl, uuid, zlib  # noqa
    assert len(os.urandom(8)) == 8 and random.SystemRandom().random() < 1
    uuid.uuid4()


bad = 0
for name, check in [(n, f) for n, f in list(globals().items()) if inspect.isfunction(f)]:
    try:
        check()
        print("ok", name, flush=True)
    except BaseException as e:
        bad = 1
        print("BAD", name, repr(e), flush=True)
sys.exit(bad)
