package escape

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"nsbox/tests/harness"
)

// shared are files that the host and every box have in common: the same inodes.
func shared(t *testing.T) (library, interpreter string) {
	t.Helper()
	interpreter, err := filepath.EvalSymlinks("/usr/bin/python3")
	if err != nil {
		t.Fatal(err)
	}
	library, err = filepath.EvalSymlinks(filepath.Join("/usr/lib", filepath.Base(interpreter), "os.py"))
	if err != nil {
		t.Fatal(err)
	}
	return library, interpreter
}

// canary is readable for everybody on the host, and its path holds the marker.
const canary = "ESCAPE-CANARY-5d02\n"

func TestFiles(t *testing.T) {
	library, interpreter := shared(t)
	keep := unchanged(library, interpreter, "/dev/null")
	absent := []string{"ENOENT", "EACCES", "EPERM"}
	refused := []string{"EPERM", "EACCES", "EROFS"}
	forEachTry(t, []try{
		{name: "init's links and memory", script: "files.py", args: []string{"init"},
			report: with(all("root cwd exe fd ns/mnt environ maps mem auxv stack task/1/root by_a_link by_a_thread", absent...), all("control", "ok /"))},
		{name: "page cache of a shared file", script: "files.py", args: []string{"page_cache"}, watch: keep,
			// A private copy of a page may be changed where /proc is writable: it is our own.
			report: with(all("own_memory_shared writable_mapping reopen_the_interpreter map_files", append(refused, "EIO", "EFAULT", "ENOENT")...),
				all("own_memory_private", append(refused, "ok")...), all("splice", "ok"), all("unchanged", "True"))},
		{name: "shared inodes", script: "files.py", args: []string{"host_inodes"}, watch: sameLinks(library, interpreter),
			report: with(all("library_times library_mode library_owner library_attribute library_rename library_lease library_inode_flags library_truncate "+
				"interpreter_times interpreter_mode interpreter_owner interpreter_attribute interpreter_rename interpreter_lease interpreter_inode_flags "+
				"device_times device_mode device_owner device_attribute device_rename device_lease device_inode_flags", append(refused, "EBUSY", "ENOTTY")...),
				all("library_second_name interpreter_second_name device_second_name", append(refused, "EXDEV")...), all("library_hole", "EBADF"),
				all("control_times control_mode control_second_name", "ok"))},
		{name: "device nodes", script: "files.py", args: []string{"devices"},
			report: with(all("/scratch_memory /scratch_disk /scratch_whiteout /out_memory /out_disk /out_whiteout /dev_memory /dev_disk /dev_whiteout", refused...),
				all("control", "ok"), all("nodes", ""))},
		{name: "set-id bits and own programs", script: "files.py", args: []string{"privileges"},
			report: with(all("file_capability trusted_attribute", "EPERM"), all("exec exec_by_descriptor executable_mapping executable_later", "EACCES", "EPERM"),
				all("by_the_loader", "ok 127"), all("memory_file", "EPERM"), all("set-id_bits", "ok", "EPERM"), all("control", "ok 0"))},
		{name: "mounts", script: "files.py", args: []string{"mounts"}, watch: unchanged("/proc/self/mountinfo"),
			report: with(all("mount remount bind umount pivot_root chroot fsopen fsmount open_tree move_mount mount_setattr fspick", "EPERM"),
				all("open_tree_attr listmount statmount", "ENOSYS", "EPERM"), all("unchanged", "True"), all("control", "ok"))},
		{name: "file handles", script: "files.py", args: []string{"handles"},
			report: with(all("make open_1 open_2 open_129", "EPERM"), all("control", "ok"))},
		{name: "everything that can be written", script: "files.py", args: []string{"writable"},
			report: with(all("files", ""), all("directories", "/out /scratch"))},
		{name: "descriptors", script: "files.py", args: []string{"descriptors"},
			report: with(all("held", "0 1 2"), map[string][]string{"0 leads to": {"/dev/null", "/null"}, "1 leads to": {"pipe"}, "2 leads to": {"pipe"}},
				all("owned", "True"), all("forged_sender", "EPERM"), all("control", "ok"))},
	})
}

// sameLinks also holds the number of names, which a fingerprint leaves out.
func sameLinks(paths ...string) func(*testing.T, *harness.Site) func(*testing.T, *harness.Run) {
	return func(t *testing.T, s *harness.Site) func(*testing.T, *harness.Run) {
		look := func() (ctimes []syscall.Timespec, links []uint64) {
			for _, p := range paths {
				var st syscall.Stat_t
				if err := syscall.Stat(p, &st); err != nil {
					t.Fatal(err)
				}
				ctimes, links = append(ctimes, st.Ctim), append(links, uint64(st.Nlink))
			}
			return ctimes, links
		}
		times, links := look()
		rest := unchanged(paths...)(t, s)
		return func(t *testing.T, r *harness.Run) {
			rest(t, r)
			nowTimes, nowLinks := look()
			for i, p := range paths {
				if nowTimes[i] != times[i] || nowLinks[i] != links[i] {
					t.Errorf("%s: changed at %v with %d names, was %v with %d", p, nowTimes[i], nowLinks[i], times[i], links[i])
				}
			}
		}
	}
}

// TestMagicLinks climbs from every root the program can name to a file that
// everybody may read on the host.
func TestMagicLinks(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		target := s.File("target", canary)
		run := s.Run(job("files.py", "magic_links", target)).WantOK()
		ways := "own_root thread_root own_cwd opened_root"
		is := strings.ReplaceAll(ways, " ", "_is ") + "_is"
		wantReport(t, reportOf(t, run), with(all(ways, "ENOENT"), all(is, "True"), all("control", "ok")))
		host := s.OnHost(harness.Job{Argv: []string{"/bin/cat", "/proc/self/root/../../.." + target}})
		if string(host.Stdout) != canary {
			t.Errorf("control: on the host the same path reads %q: %s", host.Stdout, host.Stderr)
		}
	})
}
