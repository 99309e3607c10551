package main

import (
	"bytes"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// names are the candidates without their explanations.
func names(words ...string) []string {
	var out []string
	for _, line := range completions(words) {
		name, _, _ := strings.Cut(line, "\t")
		out = append(out, name)
	}
	return out
}

func TestCompletions(t *testing.T) {
	for line, want := range map[string]string{
		"exe":                                     "exec",
		"policy sch":                              "schema",
		"exec --po":                               "--policy",
		"exec --policy t":                         "tool :files",
		"exec --policy=s":                         "--policy=sales-summary :files",
		"policy show to":                          "tool :files",
		"exec --limit wal":                        "wall=",
		"exec --limit wall=5s,mem":                "wall=5s,memory=",
		"exec --allow-degraded memory,cpu_t":      "memory,cpu_total",
		"exec --allow-degraded=memory,cpu_t":      "--allow-degraded=memory,cpu_total",
		"shell --ro ":                             ":files",
		"exec --deliver ":                         ":dirs",
		"exec --policy tool -- ":                  ":programs",
		"exec --policy tool -- cat ":              ":files",
		"exec --json --backend sim":               "simulated",
		"completion ":                             "bash zsh fish",
		"exec --no-such-flag=":                    "",
		"attempts show --state-dir /nonexistent ": "",
	} {
		if got := strings.Join(names(strings.Split(line, " ")...), " "); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
	if all := names(""); !slices.Contains(all, "exec") || !slices.Contains(all, "man") || slices.Contains(all, completeName) {
		t.Errorf("commands: %q", all)
	}
}

// TestBashCompletes runs bash with the script, as a key would.
func TestBashCompletes(t *testing.T) {
	dir := t.TempDir()
	self, ask := scriptedSelf()
	script := self + bashCompletion + `
touch here.json; mkdir sub
try() {
    COMP_LINE=$1 COMP_POINT=${#1} COMPREPLY=()
    COMP_TYPE=9; _nsbox 2>/dev/null
    printf '%s:%s\n' "$1" "${COMPREPLY[*]}"
}
compopt() { :; }
try "` + ask + ` exec --pol"
try "` + ask + ` exec --policy=sa"
try "` + ask + ` exec --policy he"
try "` + ask + ` exec --limit wall=5s,mem"
try "` + ask + ` exec --deliver s"
`
	cmd := exec.Command("bash", "--norc", "-c", script)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	want := "exec --pol:--policy\nexec --policy=sa:sales-summary\nexec --policy he:here.json\nexec --limit wall=5s,mem:5s,memory=\nexec --deliver s:sub\n"
	if got := strings.ReplaceAll(string(out), ask+" ", ""); err != nil || got != want {
		t.Errorf("%v: got\n%s\nwant\n%s", err, got, want)
	}
}

// scriptedSelf is a shell function that answers as nsbox would the questions asked
// below, and its name: the test binary is no nsbox.
func scriptedSelf() (function, name string) {
	var b strings.Builder
	b.WriteString("nsbox() {\nshift\ncase \"$*\" in\n")
	for _, line := range []string{"exec --pol", "exec --policy=sa", "exec --policy he", "exec --limit wall=5s,mem", "exec --deliver s"} {
		b.WriteString("'" + line + "') printf '%s\\n' ")
		for _, c := range completions(strings.Split(line, " ")) {
			b.WriteString("'" + strings.ReplaceAll(c, "'", "") + "' ")
		}
		b.WriteString(";;\n")
	}
	b.WriteString("esac\n}\n")
	return b.String(), "nsbox"
}

// Every page is troff that troff has nothing to say about.
func TestManPages(t *testing.T) {
	dir := t.TempDir()
	var out bytes.Buffer
	c := &console{out: &stream{to: &out}, err: &stream{to: &out}}
	if err := showMan(c, manFlags{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	pages, err := exec.Command("sh", "-c", "ls "+dir+" | wc -l").Output()
	if err != nil || strings.TrimSpace(string(pages)) < "16" {
		t.Errorf("%v: %s pages", err, pages)
	}
	said, err := exec.Command("sh", "-c", "for p in "+dir+"/*.1; do groff -ww -man -Tutf8 -z $p; done").CombinedOutput()
	if err != nil || len(said) > 0 {
		t.Errorf("%v:\n%s", err, said)
	}
	if err := showMan(c, manFlags{Command: "exec"}); err != nil || !strings.Contains(out.String(), `\-\-allow\-degraded=`) {
		t.Errorf("%v: %.400s", err, out.String())
	}
	if err := showMan(c, manFlags{Command: "x"}); err == nil {
		t.Error("a page of no command")
	}
}
