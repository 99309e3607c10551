package rootfs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"nsbox/tests/harness"
)

// killWhen starts nsbox and kills it as soon as there holds, which has to come
// before it has ended. What it was about to do has then not been done: the launcher
// is stopped first and looked at again.
func killWhen(t *testing.T, s *harness.Site, what string, there func() bool, args ...string) {
	t.Helper()
	live := s.StartRaw(append(args, "--state-dir", s.State)...)
	for limit := time.Now().Add(2 * time.Minute * time.Duration(harness.Slow())); !there(); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Errorf("%s: it never came to that", what)
			break
		}
	}
	live.Signal(syscall.SIGSTOP)
	if kept := inStore(t, s, "entries", "images", "names"); len(kept) > 0 {
		t.Errorf("%s: nsbox was too far already: %v", what, kept)
	}
	live.Signal(syscall.SIGKILL)
	if run := live.Wait(); run.Killed != syscall.SIGKILL {
		t.Errorf("%s: nsbox ended with status %d before it could be killed\n%s", what, run.Status, run.Stderr)
	}
	s.WantGone(t, 10*time.Second*time.Duration(harness.Slow()))
}

// inStore lists what some of the store's directories hold.
func inStore(t *testing.T, s *harness.Site, kinds ...string) (all []string) {
	t.Helper()
	for _, kind := range kinds {
		found, err := filepath.Glob(filepath.Join(s.State, "store", kind, "*"))
		must(t, err)
		hidden, err := filepath.Glob(filepath.Join(s.State, "store", kind, ".*"))
		must(t, err)
		all = append(all, append(found, hidden...)...)
	}
	return all
}

// wantNothingInstalled: the store is sound and empty; gc removes what lies about.
func wantNothingInstalled(t *testing.T, s *harness.Site, what string) {
	t.Helper()
	if v := s.Raw("store", "verify", "--state-dir", s.State); v.Status != 0 {
		t.Errorf("%s: verify says %d\n%s%s", what, v.Status, v.Stdout, v.Stderr)
	}
	if kept := inStore(t, s, "entries", "images", "names"); len(kept) > 0 {
		t.Errorf("%s: the store holds %v", what, kept)
	}
}

func collect(t *testing.T, s *harness.Site, what string) {
	t.Helper()
	if gc := s.Raw("store", "gc", "--state-dir", s.State); gc.Status != 0 {
		t.Errorf("%s: gc says %d\n%s", what, gc.Status, gc.Stderr)
	}
	if left := inStore(t, s, "new", "trash"); len(left) > 0 {
		t.Errorf("%s: gc left %v", what, left)
	}
}

// below reports whether something matches a pattern below the store.
func below(s *harness.Site, pattern string, n int) func() bool {
	return func() bool {
		found, _ := filepath.Glob(filepath.Join(s.State, "store", pattern))
		return len(found) >= n
	}
}

// TestKilledWhileUnpacking: whenever nsbox is killed, no part of an image is in
// the store, the next one unpacks it anew, and gc removes what the first left.
func TestKilledWhileUnpacking(t *testing.T) {
	root, out := shared(t), shared(t)
	compile(t, root+"/bin/hello", "", "gcc", "-static")
	for i := range 8000 { // seconds of work
		must(t, os.WriteFile(fmt.Sprintf("%s/f%d", root, i), []byte("content"), 0o644))
	}
	digest, err := harness.Image(root, out+"/image")
	must(t, err)
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		for what, there := range map[string]func() bool{
			"before the box":    below(s, "new/*", 1),
			"among the entries": below(s, "new/*/root/f*", 50),
		} {
			killWhen(t, s, what, there, "store", "add", out+"/image", digest)
			wantNothingInstalled(t, s, what)
			if !below(s, "new/*", 1)() {
				t.Errorf("%s: nothing was begun", what)
			}
			collect(t, s, what)
		}
		killWhen(t, s, "once more", below(s, "new/*/root/f*", 50), "store", "add", out+"/image", digest)
		job := harness.Job{Policy: []harness.Change{rootfs(object{"oci": object{"layout": out + "/image", "digest": digest}, "verify_before_start": true}), programs("named_program_only")}, Argv: []string{"hello"}}
		if got := string(s.Run(job).WantOK().Stdout); got != "hello\n" {
			t.Errorf("the run after it: %q", got)
		}
		if v := s.Raw("store", "verify", "--state-dir", s.State); v.Status != 0 {
			t.Errorf("verify: %s%s", v.Stdout, v.Stderr)
		}
		collect(t, s, "after all")
		if kept := inStore(t, s, "entries"); len(kept) != 1 {
			t.Errorf("gc left entries %v, want the image's", kept)
		}
	})
}

// TestKilledWhilePreparing: the same for wheels, before and while pip installs.
func TestKilledWhilePreparing(t *testing.T) {
	callers := harness.Callers(t)
	s := harness.NewSite(t, callers[len(callers)-1])
	dir, many := s.Folder(), map[string]string{}
	for i := range 2000 {
		many[fmt.Sprintf("mocktool/m%d.py", i)] = "pass\n"
	}
	lock := s.File("lock.txt", wheel(t, dir, "mocktool", "1.0", many))
	args := []string{"prep", "--lock", lock, "--wheels", dir, "--name", "tools"}
	for what, there := range map[string]func() bool{
		"with the wheels copied": below(s, "new/*-wheels/*.whl", 1),
		"while pip works":        below(s, "new/*/tmp/*", 1),
	} {
		killWhen(t, s, what, there, args...)
		wantNothingInstalled(t, s, what)
		if list := s.Raw("store", "list", "--state-dir", s.State); strings.Contains(string(list.Stdout), "tools") {
			t.Errorf("%s: %s", what, list.Stdout)
		}
	}
	again := s.Raw(slices.Concat(args, []string{"--state-dir", s.State, "--json"})...)
	if again.Status != 0 {
		t.Fatalf("prep after it: %s", again.Stderr)
	}
	collect(t, s, "after all")
	if v := s.Raw("store", "verify", "--state-dir", s.State); v.Status != 0 || len(inStore(t, s, "entries")) != 1 || len(inStore(t, s, "names")) != 1 {
		t.Errorf("verify: %s%s", v.Stdout, v.Stderr)
	}
}
