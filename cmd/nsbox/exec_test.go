package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"nsbox/launcher"
	"nsbox/launcher/attest"
)

var update = flag.Bool("update", false, "write the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (write it with -update):\n%s", path, d)
	}
}

// session is one call of nsbox with a stand-in for the launcher.
type session struct {
	out, err bytes.Buffer
	status   int
}

func call(run runner, args ...string) *session {
	s := &session{}
	c := &console{in: strings.NewReader("input"), out: &stream{to: &s.out}, err: &stream{to: &s.err}}
	s.status = commandLine(args, c, run)
	return s
}

func neverRuns(t *testing.T) runner {
	return func(context.Context, launcher.Request, launcher.Streams) launcher.Result {
		t.Error("the launcher was called")
		return launcher.Result{}
	}
}

// good is a result with everything in it.
func good() launcher.Result {
	zero := 0
	return launcher.Result{
		Schema: launcher.ResultSchema, Attempt: "01ATTEMPT", Backend: launcher.BackendName, Started: time.Unix(0, 0).UTC(),
		Workload:    launcher.WorkloadResult{Outcome: launcher.Exited, ExitCode: &zero},
		Artifact:    launcher.ArtifactResult{Outcome: launcher.ArtifactAccepted, Reasons: []string{}, Name: "summary.csv", Bytes: 1550, Rows: 46, SHA256: "sha256:ab"},
		Cleanup:     launcher.CleanupResult{Outcome: launcher.CleanupVerified, Leftover: []string{}},
		Delivery:    launcher.DeliveryResult{Outcome: launcher.Delivered, Path: "out/summary.csv"},
		Degraded:    []launcher.Degradation{{Dimension: "memory"}, {Dimension: "out_storage"}},
		DurationsMS: map[string]float64{"total": 201.25},
		Resources:   launcher.Resources{WallMS: 180.5, CPUUsec: 150200},
		Digests:     launcher.Digests{Inputs: []launcher.InputDigest{}}, Attestation: []attest.Row{},
	}
}

func TestExecStreamsAndSummary(t *testing.T) {
	run := func(_ context.Context, req launcher.Request, s launcher.Streams) launcher.Result {
		if req.PolicyArg != "sales-summary" || !cmp.Equal(req.Argv, []string{"prog", "--json"}) {
			t.Errorf("request %+v", req)
		}
		in, _ := io.ReadAll(s.Stdin)
		_, _ = s.Stdout.Write([]byte("raw \x1b\xff " + string(in) + "\n"))
		_, _ = s.Stderr.Write([]byte("complaint\n"))
		return good()
	}
	s := call(run, "exec", "--policy", "sales-summary", "--", "prog", "--json")
	if s.status != 0 || s.out.String() != "raw \x1b\xff input\n" {
		t.Errorf("status %d, stdout %q", s.status, s.out.String())
	}
	if got := s.err.String(); !strings.HasPrefix(got, "complaint\nnsbox: workload EXITED 0") || strings.Count(got, "\n") != 5 {
		t.Errorf("stderr %q", got)
	}

	s = call(run, "exec", "--quiet", "--policy", "sales-summary", "--", "prog", "--json")
	if got := s.err.String(); got != "complaint\n" {
		t.Errorf("--quiet: stderr %q", got)
	}
}

func TestExecJSONIsOneDocumentOnStdout(t *testing.T) {
	run := func(_ context.Context, _ launcher.Request, s launcher.Streams) launcher.Result {
		_, _ = s.Stdout.Write([]byte(`{"fake":1}`))
		return good()
	}
	file := filepath.Join(t.TempDir(), "r.json")
	s := call(run, "exec", "--json", "--result", file, "--policy", "p", "--", "x")
	var got launcher.Result
	d := json.NewDecoder(&s.out)
	if err := d.Decode(&got); err != nil || got.Attempt != "01ATTEMPT" || got.Version != version {
		t.Errorf("%v: %+v", err, got)
	}
	if err := d.Decode(&got); !errors.Is(err, io.EOF) {
		t.Errorf("more than one document: %v", err)
	}
	if s.err.String() != `{"fake":1}` {
		t.Errorf("stderr %q", s.err.String())
	}
	if data, err := os.ReadFile(file); err != nil || !strings.Contains(string(data), "01ATTEMPT") {
		t.Errorf("result file: %v, %s", err, data)
	}
}

func TestRefusalsAreWrittenWhereAsked(t *testing.T) {
	file := filepath.Join(t.TempDir(), "r.json")
	s := call(neverRuns(t), "exec", "--bogus", "--json", "--result", file, "--", "x")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if s.status != 125 || s.out.String() != string(data) {
		t.Errorf("status %d, stdout %q, file %q", s.status, s.out.String(), data)
	}
	var got launcher.Result
	if err := json.Unmarshal(data, &got); err != nil || got.Reason == nil || got.Reason.ID != "usage" || got.ExitStatus != 125 {
		t.Errorf("%v: %s", err, data)
	}
	for _, list := range []string{"reasons", "leftover", "degraded", "inputs", "attestation", "durations_ms"} {
		if bytes.Contains(data, []byte(`"`+list+`": null`)) || !bytes.Contains(data, []byte(`"`+list+`": `)) {
			t.Errorf("%s is null or missing: %s", list, data)
		}
	}
	if !strings.Contains(s.err.String(), "unknown flag --bogus (reason usage)\nnsbox: next: nsbox exec --help\n") {
		t.Errorf("stderr %q", s.err.String())
	}
}

func TestResultFileIsCheckedBeforeTheRun(t *testing.T) {
	dir := t.TempDir()
	for name, path := range map[string]string{
		"a directory": dir, "no parent": filepath.Join(dir, "no", "r.json"), "a device": "/dev/null",
	} {
		s := call(neverRuns(t), "exec", "--policy", "p", "--result", path, "--", "x")
		if s.status != 125 || !strings.Contains(s.err.String(), "(reason result_file)") {
			t.Errorf("%s: %d %q", name, s.status, s.err.String())
		}
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		t.Errorf("the directory was replaced: %v", err)
	}
	link := filepath.Join(dir, "link")
	_ = os.Symlink("/etc/passwd", link)
	if s := call(neverRuns(t), "exec", "--policy", "p", "--result", link, "--", "x"); s.status != 125 {
		t.Errorf("a link: %d", s.status)
	}
}

func TestResultFileThatFailsLateIsNoSuccess(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "sub", "r.json")
	_ = os.Mkdir(filepath.Dir(file), 0o755)
	s := call(func(context.Context, launcher.Request, launcher.Streams) launcher.Result {
		_ = os.Remove(filepath.Dir(file))
		return good()
	}, "exec", "--json", "--policy", "p", "--result", file, "--", "x")
	var got launcher.Result
	if err := json.Unmarshal(s.out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if s.status != 125 || got.ExitStatus != 125 || got.Reason == nil || got.Reason.ID != "result_file" || got.Workload.Outcome != launcher.Exited {
		t.Errorf("status %d, %+v", s.status, got)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// failAfter is a reader that went away.
type failAfter struct{ left int }

func (f *failAfter) Write(p []byte) (int, error) {
	if f.left--; f.left < 0 {
		return 0, syscall.EPIPE
	}
	return len(p), nil
}

func TestClosedOutput(t *testing.T) {
	runs := 0
	run := func(_ context.Context, _ launcher.Request, s launcher.Streams) launcher.Result {
		for range 3 {
			_, _ = s.Stdout.Write([]byte("line\n")) // that nobody reads is the launcher's to judge
		}
		runs++
		return good()
	}
	var stderr bytes.Buffer
	c := &console{out: &stream{to: &failAfter{1}}, err: &stream{to: &stderr}}
	if status := commandLine([]string{"exec", "--policy", "p", "--", "x"}, c, run); status != 0 || runs != 1 {
		t.Errorf("the program's own output: status %d, %d runs", status, runs)
	}
	c = &console{out: &stream{to: &failAfter{0}}, err: &stream{to: &stderr}}
	if status := commandLine([]string{"exec", "--json", "--policy", "p", "--", "x"}, c, run); status != 125 || !strings.Contains(stderr.String(), "output_closed") {
		t.Errorf("the result: status %d, %s", status, stderr.String())
	}
	c = &console{out: &stream{to: &failAfter{0}}, err: &stream{to: &stderr}}
	for _, args := range []string{"version", "policy lint sales-summary", "plan --policy sales-summary --backend simulated -- python3", "attempts --state-dir " + t.TempDir()} {
		stderr.Reset()
		c = &console{out: &stream{to: &failAfter{0}}, err: &stream{to: &stderr}}
		if status := commandLine(strings.Fields(args), c, run); status != 125 || !strings.Contains(stderr.String(), "output_closed") {
			t.Errorf("%s: status %d, %s", args, status, stderr.String())
		}
	}
	// A full disk is said, a reader that has gone away is not news.
	for _, full := range []bool{true, false} {
		stderr.Reset()
		c = &console{out: &stream{to: &failAfter{0}}, err: &stream{to: &stderr}}
		if full {
			c.out.to = writerFunc(func([]byte) (int, error) { return 0, syscall.ENOSPC })
		}
		status := commandLine([]string{"exec", "--policy", "p", "--", "x"}, c, run)
		if status != 0 || strings.Contains(stderr.String(), "nsbox attempts logs 01ATTEMPT") != full {
			t.Errorf("full %v: status %d, %s", full, status, stderr.String())
		}
	}
}

// watched tells when a text has been written to it.
type watched struct {
	bytes.Buffer
	text string
	seen chan struct{}
}

func (w *watched) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(w.text)) {
		select {
		case w.seen <- struct{}{}:
		default:
		}
	}
	return w.Buffer.Write(p)
}

func TestPanicIsOneLine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "r.json")
	s := call(func(context.Context, launcher.Request, launcher.Streams) launcher.Result { panic("impossible\nstate") },
		"exec", "--policy", "p", "--result", file, "--", "x")
	if data, err := os.ReadFile(file); err != nil || !bytes.Contains(data, []byte("QUARANTINED")) || !bytes.Contains(data, []byte("INTERNAL_ERROR")) {
		t.Errorf("a crash claims too much: %v %s", err, data)
	}
	if s.status != 125 || strings.Contains(s.err.String(), "goroutine") || !strings.Contains(s.err.String(), `impossible\x0astate (reason internal_error)`) ||
		strings.Count(s.err.String(), "\n") != 2 {
		t.Errorf("status %d, stderr %q", s.status, s.err.String())
	}
}

func TestPolicyFaultsAreAllListed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "p.json")
	raw := call(neverRuns(t), "policy", "show", "sales-summary").out.String()
	bad := strings.NewReplacer(`"no_new_privs": true`, `"no_new_privs": false`, `"ingress": "deny"`, `"ingress": "allow"`).Replace(raw)
	if bad == raw || os.WriteFile(file, []byte(bad), 0o600) != nil {
		t.Fatal("the preset has changed")
	}
	refused := func(_ context.Context, _ launcher.Request, _ launcher.Streams) launcher.Result {
		r := refusal(launcher.Reason{ID: "policy_unenforceable", What: file, Why: "2 faults", Next: "first"})
		r.Workload.Outcome = launcher.RefusedPolicy
		return r
	}
	lint := call(neverRuns(t), "policy", "lint", file)
	run := call(refused, "exec", "--policy", file, "--", "x")
	for name, s := range map[string]*session{"lint": lint, "exec": run} {
		got := s.err.String()
		if s.status != 125 || !strings.Contains(got, "no_new_privs") || !strings.Contains(got, "network.ingress") || strings.Count(got, file+":") < 3 {
			t.Errorf("%s: status %d, %s", name, s.status, got)
		}
	}
	for name, s := range map[string]*session{"lint": lint, "exec": run} {
		if got := s.err.String(); strings.Count(got, "no_new_privs:") != 1 || strings.Contains(got, `\x0a`) || !strings.Contains(got, file+": 2 faults (reason policy_unenforceable)") {
			t.Errorf("%s says a fault twice: %s", name, got)
		}
	}
	limits := call(refused, "exec", "--policy", "sales-summary", "--limit", "wall=5h,nosuch=3", "--", "x").err.String()
	if !strings.Contains(limits, "wall=5h") || !strings.Contains(limits, "nosuch") {
		t.Errorf("limits: %s", limits)
	}
	one := call(refused, "exec", "--policy", "sales-summary", "--limit", "wal=5s", "--", "x").err.String()
	if !strings.HasPrefix(one, `nsbox: --limit wal=5s: "wal" is no limit (reason limit_unknown)`+"\nnsbox: next: ") || strings.Count(one, "\n") != 2 {
		t.Errorf("one fault is not one error: %s", one)
	}

	s := call(neverRuns(t), "policy", "lint", "--json", file)
	var report lintReport
	if err := json.Unmarshal(s.out.Bytes(), &report); err != nil || len(report.Faults) != 2 || s.status != 125 || report.Error == nil {
		t.Errorf("%v: %s", err, s.out.String())
	}
	if s := call(neverRuns(t), "policy", "lint", "sales-summary"); s.status != 0 {
		t.Errorf("the preset is refused: %s", s.err.String())
	}
}

func TestSeccompWritesTheFilter(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f.bpf")
	s := call(neverRuns(t), "policy", "seccomp", "--bpf", file)
	data, err := os.ReadFile(file)
	if s.status != 0 || err != nil || len(data) == 0 || len(data)%8 != 0 || !strings.Contains(s.out.String(), "sha256:") {
		t.Errorf("status %d, %d bytes, %v: %s%s", s.status, len(data), err, s.out.String(), s.err.String())
	}
	if s := call(neverRuns(t), "policy", "seccomp", "--bpf", t.TempDir()); s.status != 125 || !strings.Contains(s.err.String(), "output_file") {
		t.Errorf("a directory: %d %s", s.status, s.err.String())
	}
	if s := call(neverRuns(t), "policy", "seccomp"); s.status != 0 || !strings.Contains(s.out.String(), "io_uring") {
		t.Errorf("explained: %d %.200s", s.status, s.out.String())
	}
}
