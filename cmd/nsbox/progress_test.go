package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nsbox/launcher"
	"nsbox/launcher/policy"
)

// What the policy alone allows is told once, before the start; what this command
// line names is told at the end; with --quiet neither.
func TestWeakerIsToldOnce(t *testing.T) {
	list := []launcher.Degradation{{Dimension: policy.DimMemory}, {Dimension: policy.DimIdentity}}
	run := func(_ context.Context, req launcher.Request, _ launcher.Streams) launcher.Result {
		if req.Weaker != nil {
			req.Weaker(list)
		}
		zero := 0
		return launcher.Result{Attempt: "A", Degraded: list, Workload: launcher.WorkloadResult{Outcome: launcher.Exited, ExitCode: &zero}}
	}
	const start = "nsbox: held more weakly on this host, as the policy tool allows: memory (nsbox plan says how)\n"
	for line, want := range map[string][]string{
		"exec --allow-degraded identity -- true":        {start, "degraded, as allowed: identity\n"},
		"exec --json --allow-degraded identity -- true": {start},
		"exec -q --allow-degraded identity -- true":     nil,
	} {
		var out, err bytes.Buffer
		c := &console{in: strings.NewReader(""), out: &stream{to: &out}, err: &stream{to: &err}}
		commandLine(strings.Fields(line), c, run)
		for _, w := range want {
			if strings.Count(err.String(), w) != 1 {
				t.Errorf("%s: %q, want %q", line, err.String(), w)
			}
		}
		if strings.Count(err.String(), "memory") != min(len(want), 1) || strings.Contains(out.String(), "nsbox:") {
			t.Errorf("%s: %q and %q", line, out.String(), err.String())
		}
	}
}

// A copy's progress is one line of a terminal and ended before anything else.
func TestStagingProgress(t *testing.T) {
	var err bytes.Buffer
	c := &console{out: &stream{to: &err, terminal: true}, err: &stream{to: &err, terminal: true}}
	c.shareTerminal()
	var req launcher.Request
	p := &progress{c: c}
	p.ask(&req, false)
	req.Staging(5 << 20)
	req.Staging(7 << 20)
	req.Weaker(nil)
	if got := err.String(); got != "\rnsbox: copying the inputs, 5 MiB so far\rnsbox: copying the inputs, 7 MiB so far\n" {
		t.Errorf("%q", got)
	}
	c.err.terminal, req = false, launcher.Request{}
	if p.ask(&req, false); req.Staging != nil {
		t.Error("a pipe gets progress")
	}
}

func TestHostFilesAreNamed(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "nsbox-hint-") // a place that the box has for itself
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	t.Chdir(dir)
	for _, name := range []string{"x.py", "test"} {
		if err := os.WriteFile(name, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	whole := filepath.Join(dir, "x.py")
	for _, c := range []struct {
		argv  string
		shown []launcher.Bind
		want  string
	}{
		{"python3 x.py", nil, "x.py is of this host, not of the box"},
		{"python3 ./x.py", nil, "--in ./x.py and name it /in/x.py"},
		{"cat -n " + whole, nil, "--ro " + whole + ":/src/x.py and name it /src/x.py"},
		{"cat " + whole, []launcher.Bind{{Source: dir}}, ""},
		{"cat /place/x.py", []launcher.Bind{{Source: dir, Target: "/place"}}, ""},
		{"make test", nil, ""}, // a word, though a file has it for a name
		{"python3 no-such.py", nil, ""},
		{"cat /etc/passwd", nil, ""},
		{"ls .", nil, ""},
	} {
		if got := strings.Join(hostFiles(strings.Fields(c.argv), c.shown, true), "\n"); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.argv, got, c.want)
		}
	}
	if got := strings.Join(hostFiles([]string{"cat", whole}, nil, false), "\n"); !strings.Contains(got, "--in ") || strings.Contains(got, "--ro") {
		t.Errorf("under a policy with a fixed root: %q", got)
	}
}
