package rootfs

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nsbox/launcher"
	"nsbox/launcher/reason"
	"nsbox/tests/harness"
)

const (
	glibcLoader = "/lib64/ld-linux-x86-64.so.2"
	muslLoader  = "/lib/ld-musl-x86_64.so.1"
)

// glibc puts the host's C library where a layout has it.
func glibc(t *testing.T, root, libs string) {
	t.Helper()
	copyFile(t, glibcLoader, root+libs+"/ld-linux-x86-64.so.2")
	copyFile(t, "/lib/x86_64-linux-gnu/libc.so.6", root+libs+"/libc.so.6")
}

// TestLayouts: programs start from miniatures of the layouts that distributions
// use, as a closure and from the whole root.
func TestLayouts(t *testing.T) {
	link := func(root, at, to string) { must(t, os.Symlink(to, root+at)) }
	for name, c := range map[string]struct {
		make    func(root string)
		program string
	}{
		"static": {func(root string) { compile(t, root+"/bin/hello", "", "gcc", "-static") }, "/bin/hello"},
		"merged usr, as Debian 12 and Ubuntu 22.04 have it": {func(root string) {
			compile(t, root+"/usr/bin/hello", "", "gcc")
			glibc(t, root, "/usr/lib/x86_64-linux-gnu")
			link(root, "/bin", "usr/bin")
			link(root, "/lib", "usr/lib")
			must(t, os.MkdirAll(root+"/usr/lib64", 0o755))
			link(root, "/lib64", "usr/lib64")
			link(root, "/usr/lib64/ld-linux-x86-64.so.2", "../lib/x86_64-linux-gnu/ld-linux-x86-64.so.2")
		}, "hello"},
		"merged usr with absolute links and the loader in lib64, as Debian 13 and Ubuntu 24.04": {func(root string) {
			compile(t, root+"/usr/bin/hello", "", "gcc")
			glibc(t, root, "/usr/lib/x86_64-linux-gnu")
			must(t, os.MkdirAll(root+"/usr/lib64", 0o755))
			for _, d := range []string{"bin", "lib", "lib64", "sbin"} {
				must(t, os.MkdirAll(root+"/usr/"+d, 0o755))
				link(root, "/"+d, "/usr/"+d)
			}
			link(root, "/usr/lib64/ld-linux-x86-64.so.2", "/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2")
		}, "/bin/hello"},
		"separate lib": {func(root string) {
			compile(t, root+"/usr/bin/hello", "", "gcc")
			glibc(t, root, "/lib/x86_64-linux-gnu")
			must(t, os.MkdirAll(root+"/lib64", 0o755))
			link(root, "/lib64/ld-linux-x86-64.so.2", "../lib/x86_64-linux-gnu/ld-linux-x86-64.so.2")
		}, "/usr/bin/hello"},
		"musl, as Alpine has it": {func(root string) {
			compile(t, root+"/bin/hello", "", "musl-gcc")
			copyFile(t, muslLoader, root+"/lib/ld-musl-x86_64.so.1")
			link(root, "/lib/libc.musl-x86_64.so.1", "ld-musl-x86_64.so.1")
		}, "/bin/hello"},
		"script": {func(root string) {
			compile(t, root+"/opt/interp", "", "gcc", "-static")
			must(t, os.MkdirAll(root+"/usr/bin", 0o755))
			must(t, os.WriteFile(root+"/usr/bin/hello", []byte("#!/opt/interp first\n"), 0o755))
			must(t, os.Chmod(root+"/usr/bin/hello", 0o755))
		}, "hello"},
	} {
		root := shared(t)
		c.make(root)
		harness.ForEach(t, func(t *testing.T, s *harness.Site) {
			for _, words := range []string{"named_program_only", "any_program_in_root"} {
				run := s.Run(harness.Job{Policy: []harness.Change{rootfs(directory(t, s, root)), programs(words)}, Argv: []string{c.program, "you"}}).WantOK()
				want := "hello you\n"
				if name == "script" {
					want = "hello first /usr/bin/hello you\n"
				}
				if string(run.Stdout) != want {
					t.Errorf("%s, %s: %q", name, words, run.Stdout)
				}
			}
		})
	}
}

// TestWhatIsMissingIsNamed: 126 or 127, the thing by its name, and no attempt.
func TestWhatIsMissingIsNamed(t *testing.T) {
	s := harness.NewSite(t, harness.Callers(t)[0])
	for name, c := range map[string]struct {
		make    func(root string)
		program string
		id      reason.ID
		names   string
	}{
		"program":        {func(root string) { compile(t, root+"/bin/other", "", "gcc", "-static") }, "hello", reason.ProgramNotFound, "hello"},
		"glibc's loader": {func(root string) { compile(t, root+"/bin/hello", "", "gcc") }, "hello", reason.LoaderMissing, glibcLoader},
		"musl's loader":  {func(root string) { compile(t, root+"/bin/hello", "", "musl-gcc") }, "hello", reason.LoaderMissing, muslLoader},
		"loader behind link": {func(root string) {
			compile(t, root+"/usr/bin/hello", "", "gcc")
			glibc(t, root, "/usr/lib/x86_64-linux-gnu")
		}, "hello", reason.LoaderMissing, glibcLoader},
		"library": {func(root string) {
			compile(t, root+"/bin/hello", "", "gcc")
			copyFile(t, glibcLoader, root+glibcLoader)
		}, "hello", reason.LibraryMissing, "libc.so.6"},
		"interpreter": {func(root string) {
			must(t, os.MkdirAll(root+"/bin", 0o755))
			must(t, os.WriteFile(root+"/bin/hello", []byte("#!/nope\n"), 0o755))
			must(t, os.Chmod(root+"/bin/hello", 0o755))
		}, "hello", reason.InterpreterMissing, "/nope"},
	} {
		root := shared(t)
		c.make(root)
		for _, words := range []string{"named_program_only", "any_program_in_root"} {
			run := s.Run(harness.Job{Policy: []harness.Change{rootfs(directory(t, s, root)), programs(words)}, Argv: []string{c.program}})
			run.WantReason(c.id)
			if !strings.Contains(string(run.Stderr), c.names) {
				t.Errorf("%s, %s: %q is not named in %s", name, words, c.names, run.Stderr)
			}
		}
	}
}

// TestPinnedDirectory: the run follows the digest, however the tree changes.
func TestPinnedDirectory(t *testing.T) {
	s := harness.NewSite(t, harness.Callers(t)[0])
	root := shared(t)
	compile(t, root+"/bin/hello", "", "gcc", "-static")
	must(t, os.WriteFile(root+"/data", []byte("before"), 0o644))
	must(t, os.Chmod(root+"/data", 0o644))
	pinned := directory(t, s, root)
	job := harness.Job{Policy: []harness.Change{rootfs(pinned), programs("named_program_only")}, Argv: []string{"hello"}}
	s.Run(job).WantOK()
	s.Run(job).WantOK() // from what was kept of the first
	must(t, os.WriteFile(root+"/data", []byte("befOre"), 0o644))
	run := s.Run(job)
	run.WantReason(reason.RootfsDigest)
	if run.Result.Workload.Outcome == launcher.Exited {
		t.Error("the program ran")
	}
	must(t, os.WriteFile(root+"/data", []byte("before"), 0o644))
	s.Run(job).WantOK()
}

// TestImageStore: unpack, run, tamper, verify, refuse, remove.
func TestImageStore(t *testing.T) {
	root, out := shared(t), shared(t)
	compile(t, root+"/bin/hello", "", "gcc", "-static")
	must(t, os.WriteFile(root+"/secret", []byte("s"), 0o600))
	digest, err := harness.Image(root, out+"/image")
	must(t, err)
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		oci := object{"oci": object{"layout": out + "/image", "digest": digest}}
		job := harness.Job{Policy: []harness.Change{rootfs(oci), programs("named_program_only")}, Argv: []string{"hello"}}
		careful := job
		careful.Policy = []harness.Change{rootfs(object{"oci": oci["oci"], "verify_before_start": true}), programs("named_program_only")}
		if plan := s.Raw("plan", "--state-dir", s.State, "--policy", s.Policy(job.Policy...), "--", "hello"); !bytes.Contains(plan.Stdout, []byte("image_not_unpacked")) {
			t.Errorf("plan of an image that is not unpacked: status %d\n%s", plan.Status, plan.Stdout)
		}
		if string(s.Run(job).WantOK().Stdout) != "hello\n" {
			t.Error("the program did not run")
		}
		s.Run(careful).WantOK()
		trees, err := filepath.Glob(s.State + "/store/entries/*/root")
		if err != nil || len(trees) != 1 {
			t.Fatalf("entries: %v, %v", trees, err)
		}
		harness.WantForeign(t, trees[0], s.Caller)
		file := trees[0] + "/secret"
		data, err := os.ReadFile(file)
		must(t, err)
		data[0] ^= 1
		must(t, os.WriteFile(file, data, 0o444))
		if v := s.Raw("store", "verify", "--state-dir", s.State); v.Status == 0 || !bytes.Contains(v.Stdout, []byte(`"secret"`)) {
			t.Errorf("verify after one byte was changed: status %d\n%s", v.Status, v.Stdout)
		}
		s.Run(careful).WantReason(reason.StoreDamaged)
		if rm := s.Raw("store", "rm", "--state-dir", s.State, digest); rm.Status != 0 {
			t.Errorf("rm: %s", rm.Stderr)
		}
		for _, kind := range []string{"entries", "images", "trash", "new"} {
			if left, _ := filepath.Glob(filepath.Join(s.State, "store", kind, "*")); len(left) > 0 {
				t.Errorf("after rm store/%s holds %v", kind, left)
			}
		}
		s.Run(careful).WantOK() // unpacked again
	})
}

// TestRefusedImageLeavesNothing: what was unpacked before the fault is gone too.
func TestRefusedImageLeavesNothing(t *testing.T) {
	root, out := shared(t), shared(t)
	compile(t, root+"/bin/hello", "", "gcc", "-static")
	must(t, os.MkdirAll(root+"/"+strings.Repeat("d/", 70), 0o755))
	digest, err := harness.Image(root, out+"/image")
	must(t, err)
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		r := s.Raw("store", "add", "--state-dir", s.State, out+"/image", digest)
		if r.Status == 0 || !bytes.Contains(r.Stderr, []byte("too_deep")) || !bytes.Contains(r.Stderr, []byte(reason.ImageRefused)) {
			t.Errorf("status %d\n%s", r.Status, r.Stderr)
		}
		if left := inStore(t, s, "entries", "images", "new", "trash"); len(left) > 0 {
			t.Errorf("the store holds %v", left)
		}
	})
}
