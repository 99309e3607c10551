package seccompgen

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"nsbox/seccompgen/filter"
)

// One line per denied class; a class without a line fails. The wanted errno is
// EPERM unless the class is in missing.
func TestDeniedClassesOneByOne(t *testing.T) {
	all := func(list string) map[string][]uint64 {
		m := map[string][]uint64{}
		for _, name := range strings.Fields(list) {
			m[name] = nil
		}
		return m
	}
	one := func(name string, args ...uint64) map[string][]uint64 { return map[string][]uint64{name: args} }
	classes := map[string][]map[string][]uint64{
		"mount": {all(`mount umount2 pivot_root fsopen fsconfig fsmount fspick move_mount open_tree mount_setattr`)},
		"unshare": {all(`unshare`), one("clone", 0x00020000), one("clone", 0x02000000), one("clone", 0x04000000),
			one("clone", 0x08000000), one("clone", 0x10000000), one("clone", 0x20000000), one("clone", 0x40000000)},
		"ptrace":             {all(`ptrace process_vm_readv process_vm_writev process_madvise process_mrelease pidfd_getfd kcmp move_pages migrate_pages`)},
		"keyctl":             {all(`keyctl add_key request_key`)},
		"bpf":                {all(`bpf`)},
		"perf_event_open":    {all(`perf_event_open`)},
		"userfaultfd":        {all(`userfaultfd`)},
		"setns":              {all(`setns`)},
		"socket_non_AF_UNIX": {one("socket", 2), one("socket", 10), one("socket", 16), one("socket", 17), one("socketpair", 2)},
		"AF_VSOCK":           {one("socket", 40), one("socketpair", 40)},
		"chroot":             {all(`chroot`)},
		"module":             {all(`init_module finit_module delete_module create_module query_module get_kernel_syms`)},
		"kexec":              {all(`kexec_load kexec_file_load`)},
		"reboot":             {all(`reboot`)},
		"swap":               {all(`swapon swapoff`)},
		"acct":               {all(`acct`)},
		"quota":              {all(`quotactl quotactl_fd`)},
		"clock":              {all(`settimeofday clock_settime clock_adjtime adjtimex`)},
		"hostname":           {all(`sethostname setdomainname`)},
		"port_io":            {all(`iopl ioperm`)},
		"file_handle":        {all(`name_to_handle_at open_by_handle_at`)},
		"fanotify":           {all(`fanotify_init fanotify_mark`)},
		"syslog":             {all(`syslog`)},
		"terminal":           {all(`vhangup`)},
		"obsolete":           {all(`lookup_dcookie nfsservctl uselib`)},
		"terminal_injection": {one("ioctl", 0, 0x5412), one("ioctl", 0, 0x541c), one("ioctl", 0, 0x5423)},
		"prctl": {one("prctl", 31), one("prctl", 32), one("prctl", 35), one("prctl", 53), one("prctl", 57),
			one("prctl", 59), one("prctl", 62), one("prctl", 67)},
		"personality":      {one("personality", 0x40000)},
		"executable_memfd": {one("memfd_create", 0, 0), one("memfd_create", 0, 0x10), one("memfd_create", 0, 0x8|0x4)},
		"seccomp_listener": {one("seccomp", 1, 8)},
		"io_uring":         {all(`io_uring_setup io_uring_enter io_uring_register`)},
		"clone3":           {all(`clone3`)},
		"aio":              {all(`io_setup io_destroy io_getevents io_pgetevents io_submit io_cancel`)},
		"ldt":              {all(`modify_ldt`)},
		"hidden_memory":    {all(`memfd_secret`)},
		"huge_pages":       {one("mmap", 0, 4096, 3, 0x40022), one("shmget", 0, 4096, 0o4000)},
		"page_merging":     {one("madvise", 0, 0, 12)},
		"host_sync":        {all(`sync syncfs`)},
		"core_limit":       {one("setrlimit", 4), one("prlimit64", 0, 4, 1)},
	}
	missing := []string{"io_uring", "clone3", "aio", "ldt", "hidden_memory"}
	prog := mustCompile(t, Workload(Options{}))
	denied := DeniedClasses()
	for class, groups := range classes {
		want := eperm
		if slices.Contains(missing, class) {
			want = enosys
		}
		if class == "core_limit" || class == "host_sync" {
			want = filter.ActErrno // errno 0: success without effect
		}
		covered := map[string]bool{}
		for _, group := range groups {
			for name, args := range group {
				covered[name] = true
				if got := prog.Run(call(t, name, args...)); got != want {
					t.Errorf("class %s: %s%#x: %#x, want %#x", class, name, args, got, want)
				}
			}
		}
		for _, entry := range denied[class] {
			name, _, _ := strings.Cut(entry, ":")
			if !covered[name] {
				t.Errorf("class %s promises %q, which this table does not try", class, entry)
			}
		}
		if len(denied[class]) == 0 {
			t.Errorf("class %s is not among DeniedClasses", class)
		}
	}
	for _, class := range slices.Sorted(maps.Keys(denied)) {
		if classes[class] == nil {
			t.Errorf("class %s has no line in this table", class)
		}
	}
}
