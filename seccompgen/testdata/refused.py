# Calls that must be refused, with arguments that do nothing even where they are
# allowed. Prints "NAME errno" (0: it worked) or "NAME signal N" per line. The test
# runs it under the filter and, as a control, without.
import ctypes, mmap, os, signal

libc = ctypes.CDLL(None, use_errno=True)
BAD = ctypes.c_void_p(8)  # no address of this process


def call(name, nr, *args):
    ctypes.set_errno(0)
    r = libc.syscall(ctypes.c_long(nr), *[a if isinstance(a, ctypes._SimpleCData) else ctypes.c_long(a) for a in args])
    print(name, ctypes.get_errno() if r == -1 else 0, flush=True)
    if name in ("memfd_create", "memfd_create_exec", "userfaultfd", "perf_event_open", "socket_inet", "socket_inet6",
                "memfd_create_huge", "socket_netlink", "socket_vsock", "socket_high_bits", "io_uring_setup") and r >= 0:
        os.close(r)
    if name == "shmget_huge" and r >= 0:
        libc.shmctl(r, 0, None)


call("unshare", 272, 0)
call("setns", 308, -1, 0)
call("mount", 165, BAD, BAD, BAD, 0, BAD)
call("umount2", 166, BAD, 0)
call("pivot_root", 155, BAD, BAD)
call("fsopen", 430, BAD, 0)
call("open_tree", 428, -1, BAD, 0)
call("chroot", 161, BAD)
call("ptrace", 101, 1, 0x7fffffff, 0, 0)
call("process_vm_readv", 310, os.getpid(), 0, 0, 0, 0, 0)
call("kcmp", 312, os.getpid(), os.getpid(), 0, 0, 0)
call("pidfd_getfd", 438, -1, 0, 0)
call("keyctl", 250, 99)
call("add_key", 248, BAD, BAD, 0, 0, 0)
call("request_key", 249, BAD, BAD, 0, 0)
call("bpf", 321, 999, BAD, 0)
call("perf_event_open", 298, BAD, 0, 0, 0, 0)
call("userfaultfd", 323, 0x7fffffff)
call("finit_module", 313, -1, BAD, 0)
call("kexec_load", 246, 0, 0, 0, -1)
call("swapon", 167, BAD, 0)
call("settimeofday", 164, BAD, 0)
call("clock_settime", 227, 999, BAD)
call("adjtimex", 159, BAD)
call("sethostname", 170, BAD, -1)
call("syslog", 103, 99, 0, 0)
call("iopl", 172, 99)
call("open_by_handle_at", 304, -1, BAD, 0)
call("name_to_handle_at", 303, -1, BAD, BAD, BAD, 0)
call("fanotify_init", 300, 0x7fffffff, 0)
call("personality_aslr", 135, 0x40000)
call("socket_inet", 41, 2, 1, 0)
call("socket_inet6", 41, 10, 1, 0)
call("socket_netlink", 41, 16, 3, 0)
call("socket_high_bits", 41, (1 << 32) | 2, 1, 0)
call("tiocsti", 16, -1, 0x5412, BAD)
call("tiocsti_high_bits", 16, -1, (1 << 32) | 0x5412, BAD)
call("tioclinux", 16, -1, 0x541c, BAD)
call("memfd_create", 319, ctypes.c_char_p(b"x"), 1)
call("memfd_create_huge", 319, ctypes.c_char_p(b"x"), 0x8 | 0x4)
call("mmap_huge", 9, 0, 2 << 20, 3, 0x40022, -1, 0)
call("shmget_huge", 29, 0, 2 << 20, 0o5600)
call("prctl_set_mm", 157, 35, 99, 0, 0, 1)
call("seccomp_listener", 317, 1, 8, BAD)
call("clone3", 435, BAD, 0)
call("io_uring_setup", 425, 0, BAD)
call("io_setup", 206, 0, BAD)
call("number_9999", 9999)


def child(name, act):
    pid = os.fork()
    if pid == 0:
        act()
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    print(name, "signal %d" % os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0, flush=True)


def clone_userns():
    # The forked child of the clone leaves at once; the caller reports the errno.
    ctypes.set_errno(0)
    pid = libc.syscall(ctypes.c_long(56), ctypes.c_long(0x10000000 | 17), 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    if pid > 0:
        os.waitpid(pid, 0)
    print("clone_userns", ctypes.get_errno() if pid == -1 else 0, flush=True)


def int80():
    code = b"\xb8\x14\x00\x00\x00\xcd\x80\xc3"  # mov eax, getpid of i386; int 0x80; ret
    m = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    m.write(code)
    ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))()


clone_userns()
child("int80", int80)
child("x32", lambda: libc.syscall(ctypes.c_long(0x40000000 + 39)))
child("control_native", lambda: libc.syscall(ctypes.c_long(39)))
