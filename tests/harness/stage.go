package harness

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// ReplaceStage puts another program in the place of the stage image in the
// site's own state directory: the caller's private directory, as trustworthy as
// the caller. nsbox itself has no way to be told of another stage.
func (s *Site) ReplaceStage(program []byte) {
	s.t.Helper()
	pattern := filepath.Join(s.State, "cache", "stage-*")
	images, _ := filepath.Glob(pattern)
	if len(images) == 0 {
		s.Run(Job{Code: "pass\n"}).WantOK()
		images, _ = filepath.Glob(pattern)
	}
	if len(images) != 1 {
		s.t.Fatalf("%d stage images in the cache: %q; was nsbox built by make build?", len(images), images)
	}
	info, err := os.Stat(images[0])
	if err != nil {
		s.t.Fatal(err)
	}
	if int64(len(program)) > info.Size() {
		s.t.Fatalf("the program has %d bytes, the image %d: nsbox would notice", len(program), info.Size())
	}
	data := append(bytes.Clone(program), make([]byte, info.Size()-int64(len(program)))...)
	next := images[0] + ".next"
	for _, err := range []error{os.WriteFile(next, data, 0o555), os.Chmod(next, 0o555), os.Lchown(next, s.Caller.UID, s.Caller.GID), os.Rename(next, images[0])} {
		if err != nil {
			s.t.Fatal(err)
		}
	}
}

// StandIn runs such a program as the caller on the host, over a folder and files
// of its own, with the descriptors an exporter gets: 3 the folder, 4 the staging
// file, 5 the artifact, which holds its order. It returns what it logged.
func (s *Site) StandIn(program []byte, order string) map[string]string {
	s.t.Helper()
	folder := s.Folder()
	source, staging, path := s.File(filepath.Base(folder)+"/summary.csv", order), s.File("staging", ""), s.File("stand-in", string(program))
	if err := os.Chmod(path, 0o755); err != nil {
		s.t.Fatal(err)
	}
	cmd := exec.Command(path)
	cmd.Args = []string{"nsbox-export"}
	s.Caller.Become(cmd)
	for _, of := range []struct {
		path  string
		flags int
	}{{folder, os.O_RDONLY}, {staging, os.O_WRONLY}, {source, os.O_RDONLY}} {
		f, err := os.OpenFile(of.path, of.flags, 0)
		if err != nil {
			s.t.Fatal(err)
		}
		defer f.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	var log bytes.Buffer
	cmd.Stderr, cmd.Stdout = &log, io.Discard
	if err := cmd.Run(); err == nil {
		s.t.Error("the stand-in ends with 9 after its attempts, not with 0")
	}
	return Attempted(log.Bytes())
}

// Attempted reads a stand-in's log: what=how, a line each.
func Attempted(log []byte) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(string(log)) {
		if what, how, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			out[what] = how
		}
	}
	return out
}
