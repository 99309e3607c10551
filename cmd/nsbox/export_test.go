package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"nsbox/exporter"
	"nsbox/launcher"
)

func TestExportHelpGolden(t *testing.T) {
	for _, command := range []string{"export", "export check"} {
		s := call(neverRuns(t), append(strings.Fields(command), "--help")...)
		if s.status != 0 || s.err.Len() > 0 {
			t.Errorf("%s: status %d, stderr %q", command, s.status, s.err.String())
		}
		golden(t, "help-nsbox-"+strings.ReplaceAll(command, " ", "-")+".txt", s.out.String())
	}
}

func TestExportCheck(t *testing.T) {
	dir := t.TempDir()
	write := func(name, data string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file := write("summary.csv", "a,b\n1,\"x\ny\"\n")
	for _, c := range []struct {
		name   string
		before func()
		args   []string
		status int
		codes  []string // nil: accepted, if status is 0
	}{
		{"a directory", nil, []string{dir}, 0, nil},
		{"a file", nil, []string{file}, 0, nil},
		{"an empty directory", nil, []string{t.TempDir()}, launcher.ExitUndelivered, nil},
		{"a second file", func() { write("x\x1b[2J.csv", "a\n") }, []string{dir}, launcher.ExitUndelivered, []string{"name_not_allowed", "too_many_files"}},
		{"another name", nil, []string{filepath.Join(dir, "x\x1b[2J.csv")}, launcher.ExitUndelivered, []string{"name_not_allowed"}},
		{"another name, as the right one", nil, []string{filepath.Join(dir, "x\x1b[2J.csv"), "--as", "summary.csv"}, 0, nil},
		{"a pipe", func() {
			if err := unix.Mkfifo(filepath.Join(dir, "p"), 0o644); err != nil {
				t.Fatal(err)
			}
		}, []string{filepath.Join(dir, "p"), "--as", "summary.csv"}, launcher.ExitUndelivered, []string{"fifo"}},
		{"ragged", func() { write("r", "a,b\n1\n") }, []string{filepath.Join(dir, "r"), "--as", "summary.csv"}, launcher.ExitUndelivered, []string{"csv_fields"}},
		{"nothing there", nil, []string{filepath.Join(dir, "nothing")}, launcher.ExitRefused, nil},
		{"a path as name", nil, []string{file, "--as", "a/b"}, launcher.ExitRefused, nil},
		{"no such policy", nil, []string{file, "--policy", "nope"}, launcher.ExitRefused, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.before != nil {
				c.before()
			}
			args := append([]string{"export", "check"}, c.args...)
			plain := call(neverRuns(t), args...)
			s := call(neverRuns(t), append(args, "--json")...)
			if s.status != c.status || plain.status != c.status {
				t.Errorf("status %d with --json, %d without, want %d\n%s%s", s.status, plain.status, c.status, s.out.String(), s.err.String())
			}
			if text := plain.out.String() + plain.err.String(); strings.ContainsRune(text, '\x1b') || text == "" {
				t.Errorf("printed %q", text)
			}
			var doc exportReport
			if err := json.Unmarshal(s.out.Bytes(), &doc); err != nil {
				t.Fatal(err)
			}
			var codes []string
			for _, r := range doc.Reasons {
				if r.Means == "" {
					t.Errorf("%s is not explained", r.Code)
				}
				codes = append(codes, r.Code)
			}
			if strings.Join(codes, " ") != strings.Join(c.codes, " ") {
				t.Errorf("codes %v, want %v", codes, c.codes)
			}
			if (doc.Error != nil) != (c.status == launcher.ExitRefused) || (doc.Verdict == exporter.Accepted) != (c.status == 0) {
				t.Errorf("%+v", doc)
			}
		})
	}
	if have, err := os.ReadFile(file); err != nil || string(have) != "a,b\n1,\"x\ny\"\n" {
		t.Errorf("the file was changed: %q, %v", have, err)
	}
}
