package harness

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// sitePrefix begins the name of every site's directory; what follows is random.
const sitePrefix = "nsbox-e2e-"

// Site is one state directory and what a test puts beside it.
type Site struct {
	Caller Caller
	Dir    string // the caller's own, mode 0755, removed at the end
	State  string // passed as --state-dir; nsbox makes it
	Marker string // random; part of Dir and of the names of staged scripts

	t    T
	runs int
	free int // number for the next name
}

// NewSite makes a site. At the end of the test it wants every process of it gone.
func NewSite(t T, c Caller) *Site {
	t.Helper()
	dir, err := os.MkdirTemp("", sitePrefix)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	c.own(t, dir)
	s := &Site{Caller: c, Dir: dir, State: filepath.Join(dir, "state"), Marker: strings.TrimPrefix(filepath.Base(dir), sitePrefix), t: t}
	t.Cleanup(func() {
		s.WantGone(t, goneWithin)
		// What a killed launcher left for recovery must not stay on the host.
		for _, group := range s.Cgroups() {
			if err := os.Remove(group); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
			}
		}
	})
	return s
}

// File writes a file of the caller's, mode 0644, and returns its path.
func (s *Site) File(name, content string) string {
	s.t.Helper()
	path := filepath.Join(s.Dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		s.t.Fatal(err)
	}
	for dir := filepath.Dir(path); dir != s.Dir; dir = filepath.Dir(dir) {
		s.Caller.own(s.t, dir)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		s.t.Fatal(err)
	}
	s.Caller.own(s.t, path)
	return path
}

// Copy brings a file of the repository to where the caller can read it.
func (s *Site) Copy(path string) string {
	s.t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.File("copies/"+filepath.Base(path), string(data))
}

// Folder makes a new empty directory of the caller's.
func (s *Site) Folder() string {
	s.t.Helper()
	s.free++
	path := filepath.Join(s.Dir, "folder-"+strconv.Itoa(s.free))
	if err := os.Mkdir(path, 0o755); err != nil {
		s.t.Fatal(err)
	}
	s.Caller.own(s.t, path)
	return path
}

// Attempts lists the attempts' directories, oldest first.
func (s *Site) Attempts() []string {
	s.t.Helper()
	paths, err := filepath.Glob(filepath.Join(s.State, "attempts", "*"))
	if err != nil {
		s.t.Fatal(err)
	}
	return paths
}

// scriptName is what a staged script is called below /in: the marker in it makes
// every process that runs it recognisable in the host's /proc.
func (s *Site) scriptName() string {
	return "job-" + s.Marker + ".py"
}
