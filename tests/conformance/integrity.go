package conformance

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"

	"nsbox/tests/harness"
)

// snapshot is the state of the host that HIC-1 compares, by name.
type snapshot map[string]string

// integrity is one half of HIC-1. What a busy host changes by itself (foreign
// processes, mounts, groups) is left out: only what can come from this case
// counts, told by the random marker of its site and by the uids of its boxes.
func (c *Case) integrity() snapshot {
	c.plant()
	s := snapshot{
		"canaries":   harness.Fingerprint(c, c.canaries()...),
		"root files": rootFiles(c),
		"mounts":     ours("/proc/self/mountinfo", c.Dir),
		"cgroups":    strings.Join(c.Cgroups(), " "),
		"namespaces": strings.Join(namespaces(c), " "),
		"temporary":  strings.Join(temporary(c), " "),
	}
	return s
}

// compare is the other half; every difference is a FAIL.
func (c *Case) compare(before snapshot) {
	c.WantGone(c, 5*time.Second)
	c.WantNoTrace(c)
	c.sameInputs()
	after := c.integrity()
	names := make([]string, 0, len(before))
	for name := range before {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if before[name] != after[name] {
			c.Errorf("HIC-1: %s changed: %s", name, differences(before[name], after[name]))
		}
	}
	c.Note("HIC-1", fmt.Sprintf("compared: processes, traces, %d inputs, ", len(c.inputs))+strings.Join(names, ", "))
}

// inputs are the files of the host that a run is given below /in.
func inputs(j harness.Job) (paths []string) {
	for _, in := range j.In {
		path, _, _ := strings.Cut(in, ":")
		paths = append(paths, path)
	}
	if j.Script != "" {
		paths = append(paths, j.Script)
	}
	return paths
}

// sameInputs wants every file that a run was given as it was before that run.
func (c *Case) sameInputs() {
	for path, before := range c.inputs {
		if harness.Fingerprint(c, path) != before {
			c.Errorf("HIC-1: the input %s changed", path)
		}
	}
}

const (
	// Canary is in every planted secret; it must leave no box.
	Canary     = "MOCK-TOKEN-NOT-REAL-4c1e"
	homeCanary = "HOME-CANARY-NOT-REAL-77a2"
)

// canaries are the files a box must neither read nor change.
func (c *Case) canaries() []string {
	return []string{c.Dir + "/mock-secret/token.txt", c.Dir + "/home/canary", c.Dir + "/neighbour.txt"}
}

func (c *Case) plant() {
	if _, err := os.Stat(c.Dir + "/neighbour.txt"); err == nil {
		return
	}
	c.File("mock-secret/token.txt", Canary)
	c.File("home/canary", homeCanary)
	c.File("neighbour.txt", Canary+"-neighbour")
}

// rootFiles lists what a box takes from the host's root: the interpreter by
// content, its standard library by names, sizes and times. Compiled modules are
// left out: the host's own programs write those.
func rootFiles(t harness.T) string {
	interpreter, err := filepath.EvalSymlinks("/usr/bin/python3")
	if err != nil {
		t.Fatalf("the fixtures need python3: %v", err)
	}
	var list strings.Builder
	fmt.Fprintln(&list, interpreter, harness.Fingerprint(t, interpreter))
	seen := 0
	filepath.WalkDir("/usr/lib/"+filepath.Base(interpreter), func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if err == nil && d.Name() == "__pycache__" {
				return fs.SkipDir
			}
			return nil
		}
		if info, err := d.Info(); err == nil {
			fmt.Fprintln(&list, p, info.Mode(), info.Size(), info.ModTime().UnixNano())
			seen++
		}
		return nil
	})
	if seen == 0 {
		t.Fatalf("%s has no standard library", interpreter)
	}
	return list.String()
}

// differences are the lines that only one of two lists has, at most three.
func differences(before, after string) string {
	var diff []string
	a, b := strings.Split(before, "\n"), strings.Split(after, "\n")
	for _, of := range []struct {
		sign         string
		these, those []string
	}{{"-", a, b}, {"+", b, a}} {
		have := map[string]bool{}
		for _, line := range of.those {
			have[line] = true
		}
		for _, line := range of.these {
			if !have[line] && len(diff) < 3 {
				diff = append(diff, of.sign+line)
			}
		}
	}
	return strings.Join(diff, "; ")
}

// ours are a file's lines that hold a text.
func ours(path, text string) string {
	data, _ := os.ReadFile(path)
	var lines []string
	for line := range bytes.Lines(data) {
		if bytes.Contains(line, []byte(text)) {
			lines = append(lines, string(line))
		}
	}
	return strings.Join(lines, "")
}

// namespaces are the network namespaces of processes that carry the marker.
func namespaces(c *Case) []string {
	var found []string
	for _, p := range c.Processes() {
		if link, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", p.PID)); err == nil {
			found = append(found, link)
		}
	}
	return found
}

// temporary lists what carries the case's marker or the id of one of its
// attempts in the shared temporary folders, other than its own directory.
func temporary(c *Case) []string {
	marks := []string{c.Marker}
	for _, dir := range c.Attempts() {
		marks = append(marks, filepath.Base(dir))
	}
	var found []string
	for _, dir := range []string{os.TempDir(), "/dev/shm", "/var/tmp", "/run"} {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			if path != c.Dir && slices.ContainsFunc(marks, func(m string) bool { return strings.Contains(e.Name(), m) }) {
				found = append(found, path)
			}
		}
	}
	return found
}
