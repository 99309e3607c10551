package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nsbox/launcher"
	"nsbox/launcher/reason"
)

func TestParseExec(t *testing.T) {
	for _, tc := range []struct {
		args string
		want launcher.Request
	}{
		{"--policy p -- true", launcher.Request{PolicyArg: "p", Argv: []string{"true"}}},
		{"--policy=p -- prog -x --policy q --", launcher.Request{PolicyArg: "p", Argv: []string{"prog", "-x", "--policy", "q", "--"}}},
		{"--policy p -- -- x", launcher.Request{PolicyArg: "p", Argv: []string{"--", "x"}}},
		{"--policy p --in a,b --in c:d -- x", launcher.Request{PolicyArg: "p", Argv: []string{"x"},
			Inputs: []launcher.Input{{Path: "a,b"}, {Path: "c", Name: "d"}}}},
		{"--policy p --limit wall=5s,memory=1M --limit tasks=3 -- x", launcher.Request{PolicyArg: "p", Argv: []string{"x"},
			Limits: []string{"wall=5s,memory=1M", "tasks=3"}}},
		{"--policy p --allow-degraded a,b --allow-degraded c -- x", launcher.Request{PolicyArg: "p", Argv: []string{"x"},
			AllowDegraded: []string{"a", "b", "c"}}},
		{"--policy p --deliver d --result r --stdin --state-dir s --cgroup g --json -- x", launcher.Request{PolicyArg: "p", Argv: []string{"x"},
			Deliver: "d", ResultFile: "r", Stdin: true, StateDir: "s", Cgroup: "g"}},
	} {
		inv, err := parse(strings.Fields("exec "+tc.args), helpTextsOf(), io.Discard)
		if err != nil {
			t.Errorf("%s: %v", tc.args, err)
			continue
		}
		got, err := inv.request()
		if err != nil || inv.command != "exec" {
			t.Errorf("%s: %s, %v", tc.args, inv.command, err)
		}
		if d := cmp.Diff(tc.want, got); d != "" {
			t.Errorf("%s:\n%s", tc.args, d)
		}
	}
}

func TestParseOtherCommands(t *testing.T) {
	for args, want := range map[string]string{
		"policy show p": "policy show", "policy lint p --json": "policy lint", "policy seccomp --bpf f": "policy seccomp",
		"version": "version", "version --json": "version",
	} {
		inv, err := parse(strings.Fields(args), helpTextsOf(), io.Discard)
		if err != nil || inv.command != want {
			t.Errorf("%s: %+v, %v", args, inv, err)
		}
	}
}

func TestUsageErrors(t *testing.T) {
	for args, want := range map[string]string{
		"":                                   "no command given",
		"nosuch":                             "unexpected argument nosuch",
		"exec":                               "no `--` before the program",
		"exec --policy p":                    "no `--` before the program",
		"exec --policy p --":                 "no program after `--`",
		"exec -t --json -- x":                "neither --stdin nor --json",
		"shell --stdin":                      "neither --stdin nor --json",
		"shell -- ":                          "no program after",
		"exec --policy p true":               "stand after `--`",
		"exec --policy p true -- x":          "stand after `--`",
		"exec --policy -- x":                 "--policy",
		"exec --policy p --policy q -- x":    "--policy is given twice",
		"exec --policy p --json --json -- x": "--json is given twice",
		"exec --policy= -- x":                "--policy is empty",
		"exec --policy p --in= -- x":         "--in has an empty part",
		"exec --policy p --allow-degraded a,, -- x": "--allow-degraded has an empty part",
		"exec --policy p --allow-degraded= -- x":    "--allow-degraded is empty",
		"exec --policy p --bogus -- x":              "unknown flag --bogus",
		"exec --policy p --in :name -- x":           "neither an existing path",
		"exec --policy p --in path: -- x":           "neither an existing path",
		"exec --policy p --in path:a/b -- x":        "neither an existing path",
		"policy":                                    "expected one of",
		"policy show":                               "expected",
		"policy lint a b":                           "unexpected argument b",
		"version now":                               "unexpected argument now",
	} {
		inv, err := parse(strings.Fields(args), helpTextsOf(), io.Discard)
		if err == nil {
			_, err = inv.request()
		}
		e := reason.Of(err)
		if e == nil || e.ID != reason.Usage || e.Next == "" || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}

// TestNextNamesTheRightHelp: the help that the next step names is the one that
// says how to do it.
func TestNextNamesTheRightHelp(t *testing.T) {
	for args, want := range map[string]string{
		"": "nsbox --help", "nosuch": "nsbox --help", "exec": "nsbox exec --help", "policy": "nsbox policy --help", "policy nosuch": "nsbox policy --help",
		"policy confirm X": "nsbox policy confirm --help", "attempts show": "nsbox attempts show --help", "gc X": "nsbox gc --help",
	} {
		_, err := parse(strings.Fields(args), helpTextsOf(), io.Discard)
		if e := reason.Of(err); e == nil || e.Next != want {
			t.Errorf("%q: %+v, want %q", args, e, want)
		}
	}
}

func TestOtherSpellingsOfAQuestion(t *testing.T) {
	for args, same := range map[string]string{"help": "--help", "help exec": "exec --help", "help policy lint": "policy lint --help", "--version": "version"} {
		got, want := call(neverRuns(t), strings.Fields(args)...), call(neverRuns(t), strings.Fields(same)...)
		if got.status != 0 || got.out.Len() == 0 || got.out.String() != want.out.String() {
			t.Errorf("%s: status %d, %q", args, got.status, got.err.String())
		}
	}
	if s := call(neverRuns(t), "help", "nosuch"); s.status != 125 {
		t.Errorf("help nosuch: status %d", s.status)
	}
}

func TestInputArgTakesAnExistingPathWhole(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"plain", "with:colon"} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("nowhere", "dangling:link"); err != nil {
		t.Fatal(err)
	}
	abs, _ := filepath.Abs("with:colon")
	for arg, want := range map[string]launcher.Input{
		"plain":            {Path: "plain"},
		"plain:other":      {Path: "plain", Name: "other"},
		"with:colon":       {Path: "with:colon"},
		"./with:colon":     {Path: "./with:colon"},
		abs:                {Path: abs},
		"with:colon:other": {Path: "with:colon", Name: "other"},
		"dangling:link":    {Path: "dangling:link"},
		"missing":          {Path: "missing"},
		"missing:name":     {Path: "missing", Name: "name"},
	} {
		if got, err := inputArg(arg); err != nil || got != want {
			t.Errorf("%s: %+v, %v", arg, got, err)
		}
	}
}

func TestPeek(t *testing.T) {
	for args, want := range map[string]struct {
		file string
		json bool
	}{
		"exec --bogus --result r.json":     {"r.json", false},
		"exec --result=r.json --json":      {"r.json", true},
		"exec --result":                    {"", false},
		"exec --result --json":             {"", true},
		"exec -- x --result r.json --json": {"", false},
		"exec --result a --result b":       {"a", false},
		"exec":                             {"", false},
	} {
		if file, json := peek(strings.Fields(args)); file != want.file || json != want.json {
			t.Errorf("%q: %q %v", args, file, json)
		}
	}
}
