package launcher

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"nsbox/launcher/reason"
)

// accepted lays an artifact into the directory of an attempt.
func accepted(t testing.TB, attempt, text string) (copied, digest string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), attempt)
	must(t, os.Mkdir(dir, 0o700))
	copied = filepath.Join(dir, "artifact")
	must(t, os.WriteFile(copied, []byte(text), 0o400))
	return copied, fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(text)))
}

// listing is what stands in a directory, hidden files too, with their contents.
func listing(t testing.TB, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	out := map[string]string{}
	for _, e := range entries {
		if e.Type()&os.ModeSymlink != 0 {
			target, _ := os.Readlink(filepath.Join(dir, e.Name()))
			out[e.Name()] = "-> " + target
			continue
		}
		text, _ := os.ReadFile(filepath.Join(dir, e.Name()))
		out[e.Name()] = string(text)
	}
	return out
}

func TestDeliverPublishesTheWholeFile(t *testing.T) {
	for _, name := range []string{"summary.csv", ".hidden", "naïve €.csv", strings.Repeat("n", 255)} {
		copied, digest := accepted(t, "01ATTEMPT", "a,b\n1,2\n")
		dir := t.TempDir()
		path, err := deliver(copied, dir, name, digest)
		if err != nil || path != filepath.Join(dir, name) {
			t.Errorf("%q: %s, %v", name, path, err)
			continue
		}
		if got := listing(t, dir); len(got) != 1 || got[name] != "a,b\n1,2\n" {
			t.Errorf("%q: the directory has %v", name, got)
		}
		if text, err := os.ReadFile(copied); err != nil || string(text) != "a,b\n1,2\n" {
			t.Errorf("%q: the accepted copy is %q, %v", name, text, err)
		}
	}
}

// Whatever stands under the name stays as it is, and no temporary file is left.
func TestDeliverNeverOverwrites(t *testing.T) {
	for name, lay := range map[string]func(t *testing.T, at string){
		"a file":         func(t *testing.T, at string) { must(t, os.WriteFile(at, []byte("old"), 0o644)) },
		"an empty file":  func(t *testing.T, at string) { must(t, os.WriteFile(at, nil, 0o644)) },
		"a directory":    func(t *testing.T, at string) { must(t, os.Mkdir(at, 0o755)) },
		"a link":         func(t *testing.T, at string) { must(t, os.Symlink("/etc/hostname", at)) },
		"a dangling one": func(t *testing.T, at string) { must(t, os.Symlink(filepath.Join(t.TempDir(), "nothing"), at)) },
		"a pipe":         func(t *testing.T, at string) { must(t, unix.Mkfifo(at, 0o644)) },
	} {
		dir := t.TempDir()
		at := filepath.Join(dir, "summary.csv")
		lay(t, at)
		before, err := os.Lstat(at)
		must(t, err)
		copied, digest := accepted(t, "01ATTEMPT", "new")
		_, err = deliver(copied, dir, "summary.csv", digest)
		if idOf(err) != reason.DeliverExists {
			t.Errorf("%s: %v", name, err)
		}
		after, err := os.Lstat(at)
		if err != nil || !os.SameFile(before, after) || after.Size() != before.Size() || after.Mode() != before.Mode() {
			t.Errorf("%s: it is now %v, %v", name, after, err)
		}
		if entries, _ := os.ReadDir(dir); len(entries) != 1 {
			t.Errorf("%s: the directory has %v", name, entries)
		}
		if idOf(deliverable(dir, []string{"summary.csv"})) != reason.DeliverExists {
			t.Errorf("%s: not refused before the run", name)
		}
	}
}

func TestDeliverLeavesNothingAfterAFailure(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(copied, digest, dir *string)
		want  reason.ID
	}{
		"control":             {func(_, _, _ *string) {}, ""},
		"changed since":       {func(c, _, _ *string) { os.Chmod(*c, 0o600); os.WriteFile(*c, []byte("evil"), 0o600) }, reason.DeliverFailed},
		"grown since":         {func(c, _, _ *string) { os.Chmod(*c, 0o600); os.WriteFile(*c, []byte("text and more"), 0o600) }, reason.DeliverFailed},
		"no digest":           {func(_, d, _ *string) { *d = "" }, reason.DeliverFailed},
		"digest without kind": {func(_, d, _ *string) { *d = strings.TrimPrefix(*d, "sha256:") }, reason.DeliverFailed},
		"copy is gone":        {func(c, _, _ *string) { os.Remove(*c) }, reason.DeliverFailed},
		"copy is a link":      {func(c, _, _ *string) { os.Rename(*c, *c+".real"); os.Symlink(*c+".real", *c) }, reason.DeliverFailed},
		"directory is gone":   {func(_, _, d *string) { *d += "/nothing" }, reason.DeliverFailed},
		"directory is a file": {func(_, _, d *string) { *d += "/file"; os.WriteFile(*d, nil, 0o644) }, reason.DeliverFailed},
		"a temp of that name": {func(c, _, d *string) { os.WriteFile(*d+"/.nsbox-01ATTEMPT", []byte("x"), 0o600) }, reason.DeliverFailed},
		"a link of that name": {func(c, _, d *string) { os.Symlink(*c, *d+"/.nsbox-01ATTEMPT") }, reason.DeliverFailed},
	} {
		copied, digest := accepted(t, "01ATTEMPT", "text")
		root := t.TempDir()
		dir := root
		c.spoil(&copied, &digest, &dir)
		before := listing(t, root)
		path, err := deliver(copied, dir, "summary.csv", digest)
		if idOf(err) != c.want || (path == "") != (c.want != "") {
			t.Errorf("%s: %q, %v; want %q", name, path, err, c.want)
		}
		after := listing(t, root)
		if c.want == "" {
			delete(after, "summary.csv")
		}
		if fmt.Sprint(before) != fmt.Sprint(after) {
			t.Errorf("%s: the directory had %v and has %v", name, before, after)
		}
	}
}

func TestDeliverable(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(dir+"/file", nil, 0o644))
	must(t, os.Mkdir(dir+"/taken", 0o755))
	must(t, os.WriteFile(dir+"/taken/b.csv", nil, 0o644))
	must(t, os.Mkdir(dir+"/free", 0o755))
	must(t, os.Symlink(dir+"/free", dir+"/link"))
	names := []string{"a.csv", "b.csv"}
	for arg, want := range map[string]reason.ID{
		"":               "", // nobody asked
		dir + "/free":    "",
		dir + "/link":    "", // the operator's own choice of a place
		dir + "/file":    reason.DeliverDir,
		dir + "/nothing": reason.DeliverDir,
		dir + "/taken":   reason.DeliverExists,
	} {
		if err := deliverable(arg, names); idOf(err) != want || (err == nil) != (want == "") {
			t.Errorf("%s: %v, want %q", arg, err, want)
		}
	}
	if got := listing(t, dir+"/free"); len(got) != 0 {
		t.Errorf("asking left %v", got)
	}
}

// deliverAsNobody tries a directory it may enter and not write to. The working
// directory is taken first: the way to it may be closed to the user it becomes.
func deliverAsNobody(args []string) int {
	if err := os.Chdir(args[0]); err != nil {
		return 1
	}
	if os.Geteuid() == 0 {
		if syscall.Setgroups(nil) != nil || syscall.Setgid(65534) != nil || syscall.Setuid(65534) != nil {
			return 1
		}
	}
	_, err := deliver("attempt/artifact", "closed", "summary.csv", args[1])
	fmt.Println(idOf(deliverable("closed", []string{"summary.csv"})), idOf(err))
	_, err = deliver("attempt/artifact", "open", "summary.csv", args[1])
	fmt.Println(deliverable("open", nil), err)
	return 0
}

func TestAReadOnlyDirectoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Mkdir(dir+"/closed", 0o555))
	must(t, os.Mkdir(dir+"/open", 0o700))
	must(t, os.Chmod(dir+"/open", 0o777))
	must(t, os.Mkdir(dir+"/attempt", 0o755))
	must(t, os.WriteFile(dir+"/attempt/artifact", []byte("text"), 0o444))
	out, err := inRole(t, "no-deliver", dir, fmt.Sprintf("sha256:%x", sha256.Sum256([]byte("text")))).CombinedOutput()
	must(t, err)
	if want := fmt.Sprintf("%s %s\n<nil> <nil>\n", reason.DeliverDir, reason.DeliverFailed); string(out) != want {
		t.Errorf("got %q, want %q", out, want)
	}
	if got := listing(t, dir+"/closed"); len(got) != 0 {
		t.Errorf("the closed directory has %v", got)
	}
	if got := listing(t, dir+"/open"); len(got) != 1 || got["summary.csv"] != "text" {
		t.Errorf("the open directory has %v", got)
	}
}

// deliverOnce waits for a line on stdin and delivers; for the race and the umask.
func deliverOnce(args []string) int {
	var mask int
	fmt.Sscanf(args[4], "%o", &mask)
	unix.Umask(mask)
	fmt.Println("ready")
	bufio.NewReader(os.Stdin).ReadString('\n')
	if _, err := deliver(args[0], args[1], args[2], args[3]); err != nil {
		fmt.Println(idOf(err))
		return 1
	}
	return 0
}

func TestDeliveredFileObeysTheUmask(t *testing.T) {
	for mask, want := range map[string]os.FileMode{"022": 0o644, "077": 0o600, "002": 0o644, "000": 0o644, "027": 0o640} {
		copied, digest := accepted(t, "01ATTEMPT", "text")
		dir := t.TempDir()
		c := inRole(t, "own-deliver", copied, dir, "summary.csv", digest, mask)
		c.Stdin = strings.NewReader("\n")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("umask %s: %v: %s", mask, err, out)
		}
		if fi, err := os.Lstat(filepath.Join(dir, "summary.csv")); err != nil || fi.Mode() != want {
			t.Errorf("umask %s: mode %v, %v; want %v", mask, fi.Mode(), err, want)
		}
	}
}

// Several at once: exactly one wins, the file is whole and one of theirs, and
// nobody leaves anything behind.
func TestDeliverRace(t *testing.T) {
	const runners, rounds = 2, 20
	for round := range rounds {
		dir := t.TempDir()
		texts := map[string]bool{}
		won := make(chan bool, runners)
		var starts []io.WriteCloser
		for i := range runners {
			text := strings.Repeat(fmt.Sprintf("%d.%d\n", round, i), 20000)
			texts[text] = true
			copied, digest := accepted(t, fmt.Sprintf("01ATTEMPT%d", i), text)
			c := inRole(t, "own-deliver", copied, dir, "summary.csv", digest, "022")
			in, err := c.StdinPipe()
			must(t, err)
			out, err := c.StdoutPipe()
			must(t, err)
			must(t, c.Start())
			lines := bufio.NewReader(out)
			if line, err := lines.ReadString('\n'); line != "ready\n" {
				t.Fatalf("%q, %v", line, err)
			}
			starts = append(starts, in)
			go func() {
				line, _ := lines.ReadString('\n')
				err := c.Wait()
				won <- err == nil
				if err != nil && line != string(reason.DeliverExists)+"\n" {
					t.Errorf("the loser says %q", line)
				}
			}()
		}
		for _, in := range starts {
			in.Write([]byte("\n"))
			in.Close()
		}
		winners := 0
		for range runners {
			if <-won {
				winners++
			}
		}
		got := listing(t, dir)
		if winners != 1 || len(got) != 1 || !texts[got["summary.csv"]] {
			t.Fatalf("round %d: %d winners, the directory has %d entries", round, winners, len(got))
		}
	}
}
