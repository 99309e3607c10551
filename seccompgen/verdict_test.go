package seccompgen

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"nsbox/seccompgen/filter"
)

const (
	eperm  = filter.ActErrno | 1
	enosys = filter.ActErrno | 38
)

func mustCompile(t *testing.T, p Profile) filter.Program {
	t.Helper()
	prog, err := Compile(p)
	if err != nil {
		t.Fatal(err)
	}
	return prog
}

// call makes the data of one native call; unset arguments are 0.
func call(t testing.TB, name string, args ...uint64) filter.Data {
	t.Helper()
	nr, ok := numbers()[name]
	if !ok {
		t.Fatalf("no number for %s", name)
	}
	d := filter.Data{NR: int32(nr), Arch: filter.ArchAMD64}
	copy(d.Args[:], args)
	return d
}

// reference is the meaning of a profile, written independently of the compiler.
func reference(p Profile, d filter.Data) uint32 {
	verdict := map[Verdict]uint32{Allow: filter.ActAllow, Deny: eperm, Missing: enosys, Pretend: filter.ActErrno, "": enosys}
	if d.NR < 0 || int(d.NR) >= len(names) {
		return enosys
	}
	for _, r := range p.Rules {
		if !slices.Contains(r.Syscalls, names[d.NR]) {
			continue
		}
		if r.When == nil {
			return verdict[r.Verdict]
		}
		masked := uint32(d.Args[r.When.Arg]) & r.When.Mask
		set := r.When.NonNull == 0 || d.Args[r.When.NonNull] != 0
		for _, m := range r.When.More {
			applies := slices.ContainsFunc(m.Of, func(v Value) bool { return v.N == masked })
			if applies && !slices.ContainsFunc(m.In, func(v Value) bool { return v.N == uint32(d.Args[m.Arg])&m.Mask }) {
				set = false
			}
		}
		if set && slices.ContainsFunc(r.When.In, func(v Value) bool { return v.N == masked }) {
			return verdict[r.Verdict]
		}
		if r.Else != "" {
			return verdict[r.Else]
		}
	}
	return enosys
}

// words are argument values worth trying on p: every value of its conditions, with
// one bit changed, and with bits the kernel does not read.
func words(p Profile) []uint64 {
	out := []uint64{0, 1, 0xffffffff, ^uint64(0)}
	for _, r := range p.Rules {
		if r.When == nil {
			continue
		}
		for _, v := range r.When.In {
			n := uint64(v.N)
			out = append(out, n, n|uint64(^r.When.Mask), n|1<<32, n|0xffffffff<<32)
			for bit := range 32 {
				out = append(out, n^1<<bit)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Every number up to well past the newest call, with every interesting value in
// every argument at once, gives what the rules say.
func TestProgramsMeanTheirRules(t *testing.T) {
	for name, p := range profiles() {
		prog := mustCompile(t, p)
		args := words(p)
		for nr := int32(0); nr < 1024; nr++ {
			tries := args
			if int(nr) >= len(names) || !conditional(p, names[nr]) {
				tries = args[:4]
			}
			for _, w := range tries {
				d := filter.Data{NR: nr, Arch: filter.ArchAMD64, Args: [6]uint64{w, w, w, w, w, w}}
				for null := range 6 { // 0: none is NULL
					d := d
					if null != 0 {
						d.Args[null] = 0
					}
					if got, want := prog.Run(d), reference(p, d); got != want {
						t.Errorf("%s: number %d with %#x, NULL at %d: %#x, want %#x", name, nr, w, null, got, want)
					}
				}
			}
		}
	}
}

func conditional(p Profile, call string) bool {
	return slices.ContainsFunc(p.Rules, func(r Rule) bool { return r.When != nil && slices.Contains(r.Syscalls, call) })
}

func TestProgramsMeanTheirRulesOnRandomCalls(t *testing.T) {
	for name, p := range profiles() {
		prog := mustCompile(t, p)
		rapid.Check(t, func(t *rapid.T) {
			d := filter.Data{Arch: filter.ArchAMD64, NR: rapid.Int32Range(0, 600).Draw(t, "nr"), IP: rapid.Uint64().Draw(t, "ip")}
			for i := range d.Args {
				d.Args[i] = rapid.Uint64().Draw(t, fmt.Sprint("arg", i))
			}
			if got, want := prog.Run(d), reference(p, d); got != want {
				t.Fatalf("%s: %+v: %#x, want %#x", name, d, got, want)
			}
		})
	}
}

func TestForeignCallsKill(t *testing.T) {
	for name, p := range profiles() {
		prog := mustCompile(t, p)
		if got := prog.Run(call(t, "read")); got != filter.ActAllow {
			t.Errorf("%s: control: read: %#x", name, got)
		}
		for nr := int32(0); nr < 600; nr++ {
			for _, arch := range []uint32{filter.ArchI386, 0xc00000b7 /* aarch64 */, 0, 0xffffffff} {
				if got := prog.Run(filter.Data{NR: nr, Arch: arch}); got != filter.ActKillProcess {
					t.Errorf("%s: number %d of architecture %#x: %#x", name, nr, arch, got)
				}
			}
			if got := prog.Run(filter.Data{NR: nr | filter.X32Bit, Arch: filter.ArchAMD64}); got != filter.ActKillProcess {
				t.Errorf("%s: x32 number %d: %#x", name, nr, got)
			}
		}
		for _, nr := range []int32{-1, -2, -0x80000000, 0x7fffffff, 0x3fffffff, 4096} {
			got := prog.Run(filter.Data{NR: nr, Arch: filter.ArchAMD64})
			if got != filter.ActKillProcess && got != enosys {
				t.Errorf("%s: number %d: %#x", name, nr, got)
			}
		}
	}
}

// What broke programs in other sandboxes when it was answered with EPERM.
func TestNeverEPERM(t *testing.T) {
	prog := mustCompile(t, Workload(Options{}))
	for _, name := range strings.Fields(`close_range openat2 faccessat2 statx fchmodat2 rseq futex_waitv futex_wake
		futex_wait futex_requeue mseal map_shadow_stack set_robust_list membarrier getrandom pidfd_open pidfd_send_signal
		clone3 io_uring_setup io_uring_enter io_uring_register epoll_pwait2 copy_file_range landlock_create_ruleset
		memfd_secret cachestat statmount listmount lsm_get_self_attr setxattrat getxattrat file_getattr execve execveat
		read write vfork fork wait4 exit_group`) {
		if got := prog.Run(call(t, name)); got == eperm {
			t.Errorf("%s: EPERM", name)
		}
	}
	if got := prog.Run(call(t, "memfd_create", 0, 0x8|0x1)); got != filter.ActAllow {
		t.Errorf("memfd_create(MFD_NOEXEC_SEAL|MFD_CLOEXEC): %#x", got)
	}
	for nr := int32(len(names)); nr < 2000; nr++ {
		if got := prog.Run(filter.Data{NR: nr, Arch: filter.ArchAMD64}); got != enosys {
			t.Errorf("number %d, newer than the table: %#x", nr, got)
		}
	}
	if got := prog.Run(call(t, "mount")); got != eperm {
		t.Errorf("control: mount: %#x", got)
	}
}

func TestWorkloadByHand(t *testing.T) {
	prog := mustCompile(t, Workload(Options{}))
	const allow = filter.ActAllow
	for _, tc := range []struct {
		name string
		args []uint64
		want uint32
	}{
		{"clone", []uint64{0x01200011}, allow},   // fork of the C library
		{"clone", []uint64{0x4111}, allow},       // vfork of the C library
		{"clone", []uint64{0x3d0f00}, allow},     // pthread_create
		{"clone", []uint64{0x10000011}, eperm},   // CLONE_NEWUSER
		{"clone", []uint64{0x00020011}, eperm},   // CLONE_NEWNS
		{"clone", []uint64{0x7e020011}, eperm},   // all of them
		{"clone", []uint64{0x1_00000011}, allow}, // bits the kernel drops
		{"socket", []uint64{1, 1}, allow},
		{"socket", []uint64{1<<32 | 1, 1}, allow}, // the kernel reads 32 bits: AF_UNIX
		{"socket", []uint64{1<<32 | 2, 1}, eperm}, // AF_INET
		{"socket", []uint64{0}, eperm},
		{"socket", []uint64{10}, eperm}, // AF_INET6
		{"socket", []uint64{16}, eperm}, // AF_NETLINK
		{"socket", []uint64{17}, eperm}, // AF_PACKET
		{"socket", []uint64{38}, eperm}, // AF_ALG
		{"socket", []uint64{40}, eperm}, // AF_VSOCK
		{"socketpair", []uint64{1}, allow},
		{"socketpair", []uint64{2}, eperm},
		{"ioctl", []uint64{0, 0x5401}, allow},              // TCGETS
		{"ioctl", []uint64{0, 0x5413}, allow},              // TIOCGWINSZ
		{"ioctl", []uint64{0, 0x541b}, allow},              // FIONREAD
		{"ioctl", []uint64{0, 0xffffffff_80045430}, allow}, // sign-extended by some C libraries
		{"ioctl", []uint64{0, 0x5412}, eperm},              // TIOCSTI
		{"ioctl", []uint64{0, 0x1_00005412}, eperm},        // the old way around it
		{"ioctl", []uint64{0, 0xffffffff_00005412}, eperm}, //
		{"ioctl", []uint64{0, 0x541c}, eperm},              // TIOCLINUX
		{"ioctl", []uint64{0, 0x80000000_0000541c}, eperm}, //
		{"ioctl", []uint64{0, 0x5423}, eperm},              // TIOCSETD
		{"memfd_create", []uint64{0, 0}, eperm},            //
		{"memfd_create", []uint64{0, 1}, eperm},            // Python's default
		{"memfd_create", []uint64{0, 8}, allow},            // MFD_NOEXEC_SEAL
		{"memfd_create", []uint64{0, 0x10}, eperm},         // MFD_EXEC
		{"memfd_create", []uint64{0, 0xc}, eperm},          // MFD_NOEXEC_SEAL|MFD_HUGETLB
		{"mmap", []uint64{0, 0, 3, 0x22}, allow},           // MAP_PRIVATE|MAP_ANONYMOUS
		{"mmap", []uint64{0, 0, 3, 0x21}, allow},           // MAP_SHARED|MAP_ANONYMOUS
		{"mmap", []uint64{0, 0, 3, 0x40022}, eperm},        // MAP_HUGETLB
		{"mmap", []uint64{0, 0, 3, 0x54040001}, eperm},     // of 2 MiB, shared
		{"shmget", []uint64{0, 0, 0o1600}, allow},          // IPC_CREAT
		{"shmget", []uint64{0, 0, 0o5600}, eperm},          // SHM_HUGETLB
		{"personality", []uint64{0xffffffff}, allow},       // query
		{"personality", []uint64{0}, allow},                //
		{"personality", []uint64{0x40000}, eperm},          // ADDR_NO_RANDOMIZE
		{"personality", []uint64{0x400000}, eperm},         // READ_IMPLIES_EXEC
		{"personality", []uint64{0x100000}, eperm},         // MMAP_PAGE_ZERO
		{"prctl", []uint64{15}, allow},                     // PR_SET_NAME
		{"prctl", []uint64{38}, allow},                     // PR_SET_NO_NEW_PRIVS
		{"prctl", []uint64{0x53564d41}, allow},             // PR_SET_VMA
		{"prctl", []uint64{35}, eperm},                     // PR_SET_MM
		{"prctl", []uint64{1<<32 | 35}, eperm},             //
		{"prctl", []uint64{67}, eperm},                     // PR_SET_MEMORY_MERGE
		{"prctl", []uint64{9999}, enosys},                  // unknown
		{"seccomp", []uint64{1, 0}, allow},                 // a filter of its own
		{"seccomp", []uint64{1, 1}, allow},                 // TSYNC
		{"seccomp", []uint64{1, 8}, eperm},                 // NEW_LISTENER
		{"mknod", []uint64{0, 0o010600}, allow},            // FIFO
		{"mknodat", []uint64{0, 0, 0o010600}, allow},       //
		{"sched_setaffinity", nil, allow},                  //
		{"shmget", nil, allow},                             //
		{"clone3", nil, enosys},                            //
		{"io_uring_setup", nil, enosys},                    //
		{"open_tree_attr", nil, enosys},                    // newer than the table of libseccomp
		{"modify_ldt", nil, enosys},                        //
		{"execveat", []uint64{3, 0, 0, 0, 0x1000}, allow},  //
		{"prlimit64", nil, allow},                          //
		{"setuid", nil, allow},                             // the kernel says EPERM
		{"kill", nil, allow},                               //
		{"pidfd_getfd", nil, eperm},                        //
		{"name_to_handle_at", nil, eperm},                  //
		{"open_by_handle_at", nil, eperm},                  //
	} {
		if got := prog.Run(call(t, tc.name, tc.args...)); got != tc.want {
			t.Errorf("%s%#x: %#x, want %#x", tc.name, tc.args, got, tc.want)
		}
	}
}

func TestOptionsCloseTheirCalls(t *testing.T) {
	for _, tc := range []struct {
		o    Options
		name string
		args []uint64
	}{
		{Options{DenyAffinity: true}, "sched_setaffinity", nil},
		{Options{DenySharedMemory: true}, "memfd_create", []uint64{0, 8}},
		{Options{DenySharedMemory: true}, "shmget", nil},
		{Options{DenySharedMemory: true}, "mmap", []uint64{0, 0, 3, 0x21}},
		{Options{DenySharedMemory: true}, "shmat", nil},
		{Options{DenySharedMemory: true}, "shmctl", nil},
		{Options{DenySharedMemory: true}, "shmdt", nil},
	} {
		if got := mustCompile(t, Workload(tc.o)).Run(call(t, tc.name, tc.args...)); got != eperm {
			t.Errorf("%+v: %s: %#x, want EPERM", tc.o, tc.name, got)
		}
		if got := mustCompile(t, Workload(Options{})).Run(call(t, tc.name, tc.args...)); got != filter.ActAllow {
			t.Errorf("control without the option: %s: %#x", tc.name, got)
		}
	}
	strict := mustCompile(t, Workload(Options{DenySharedMemory: true}))
	for _, name := range []string{"landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"} {
		if got := strict.Run(call(t, name)); got != enosys {
			t.Errorf("shared memory denied: %s: %#x, want ENOSYS", name, got)
		}
		if got := mustCompile(t, Workload(Options{})).Run(call(t, name)); got != filter.ActAllow {
			t.Errorf("control without the option: %s: %#x", name, got)
		}
	}
	for _, flags := range []uint64{0x40000, 0x40001, 0x40020, 0x40021, 0x40022, 0x40103} {
		if got := strict.Run(call(t, "mmap", 0, 0, 3, flags)); got != eperm {
			t.Errorf("shared memory denied: mmap of huge pages %#x: %#x, want EPERM", flags, got)
		}
	}
	for _, flags := range []uint64{0x22, 0x1, 0x2, 0x3} {
		if got := strict.Run(call(t, "mmap", 0, 0, 3, flags)); got != filter.ActAllow {
			t.Errorf("shared memory denied: mmap %#x: %#x, want allowed", flags, got)
		}
	}
}

func TestStagesByHand(t *testing.T) {
	const allow = filter.ActAllow
	initProg, exporter := mustCompile(t, Init()), mustCompile(t, Exporter())
	for _, tc := range []struct {
		name           string
		args           []uint64
		init, exporter uint32
	}{
		{"execveat", nil, allow, allow},
		{"clone", []uint64{0x3d0f00}, allow, allow},   // pthread_create
		{"clone", []uint64{0x50f00}, allow, allow},    // the Go runtime's own
		{"clone", []uint64{0x11}, eperm, eperm},       // fork
		{"clone", []uint64{0x10010000}, eperm, eperm}, // CLONE_NEWUSER
		{"fork", nil, eperm, eperm},
		{"vfork", nil, eperm, eperm},
		{"clone3", nil, enosys, enosys},
		{"socket", []uint64{1}, eperm, eperm},
		{"connect", nil, eperm, eperm},
		{"openat", []uint64{0, 0, 0x80000}, allow, allow}, // O_RDONLY|O_CLOEXEC
		{"openat", []uint64{0, 0, 0x10000}, allow, allow}, // O_DIRECTORY
		{"openat", []uint64{0, 0, 0x1}, eperm, eperm},
		{"openat", []uint64{0, 0, 0x2}, eperm, eperm},
		{"openat", []uint64{0, 0, 0x40}, eperm, eperm},     // O_CREAT
		{"openat", []uint64{0, 0, 0x410000}, eperm, eperm}, // O_TMPFILE
		{"openat2", nil, enosys, allow},
		{"wait4", nil, allow, enosys},
		{"kill", nil, allow, enosys},
		{"recvmsg", nil, allow, allow},
		{"fsync", nil, enosys, allow},
		{"ftruncate", nil, enosys, allow},
		{"unlinkat", nil, enosys, enosys},
		{"mount", nil, eperm, eperm},
		{"ptrace", nil, eperm, eperm},
	} {
		d := call(t, tc.name, tc.args...)
		if got := initProg.Run(d); got != tc.init {
			t.Errorf("init: %s%#x: %#x, want %#x", tc.name, tc.args, got, tc.init)
		}
		if got := exporter.Run(d); got != tc.exporter {
			t.Errorf("exporter: %s%#x: %#x, want %#x", tc.name, tc.args, got, tc.exporter)
		}
	}
}
