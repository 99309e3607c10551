package export

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"nsbox/launcher"
	"nsbox/tests/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// canary is in or behind everything that must not come out.
const canary = "CANARY-7f3a"

// prelude is what every script begins with.
const prelude = "import errno, os, socket, stat, sys\np, C = '/out/summary.csv', 'CANARY-' + '7f3a'\n" +
	"def put(name, data):\n with open('/out/' + name, 'wb') as f: f.write(data if isinstance(data, bytes) else data.encode())\n"

// trial is one run with a delivery folder of its own.
type trial struct {
	t       *testing.T
	site    *harness.Site
	run     *harness.Run
	deliver string
}

// try runs Python code in a box.
func try(t *testing.T, s *harness.Site, code string, j harness.Job) *trial {
	t.Helper()
	j.Code, j.Deliver = prelude+code, s.Folder()
	return &trial{t, s, s.Run(j), j.Deliver}
}

// leave lets a program leave data as summary.csv.
func leave(t *testing.T, s *harness.Site, data []byte, j harness.Job) *trial {
	t.Helper()
	j.In = append(j.In, s.File("content", string(data))+":content")
	return try(t, s, "import shutil\nshutil.copyfile('/in/content', p)\n", j)
}

func (tr *trial) left() []string {
	tr.t.Helper()
	entries, err := os.ReadDir(tr.deliver)
	if err != nil {
		tr.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// copies lists what is still kept of the exporter's staging files.
func (tr *trial) copies() []string {
	found, _ := filepath.Glob(filepath.Join(tr.site.State, "attempts", tr.run.Result.Attempt, "artifact*"))
	return found
}

// wantRejected wants exactly these codes, in any order, and not a byte outside.
func (tr *trial) wantRejected(codes ...string) {
	tr.t.Helper()
	tr.run.Want(launcher.Exited, launcher.ExitUndelivered)
	a := tr.run.Result.Artifact
	got := slices.Clone(a.Reasons)
	slices.Sort(got)
	slices.Sort(codes)
	if a.Outcome != launcher.ArtifactRejected || !slices.Equal(got, codes) {
		tr.t.Errorf("artifact %s %v, want REJECTED %v\nreason: %+v", a.Outcome, got, codes, tr.run.Result.Reason)
	}
	tr.wantNothing()
	if c := tr.run.Result.Cleanup; c.Outcome != launcher.CleanupVerified {
		tr.t.Errorf("cleanup %s, left over: %q", c.Outcome, c.Leftover)
	}
	if kept := tr.copies(); len(kept) > 0 {
		tr.t.Errorf("a rejected copy is kept: %q", kept)
	}
}

// wantNothing wants no delivery and the canary nowhere.
func (tr *trial) wantNothing() {
	tr.t.Helper()
	if names := tr.left(); len(names) > 0 {
		tr.t.Errorf("delivered: %q", names)
	}
	if d := tr.run.Result.Delivery; d.Outcome == launcher.Delivered || tr.run.Result.Artifact.SHA256 != "" {
		tr.t.Errorf("delivery %+v of %+v", d, tr.run.Result.Artifact)
	}
	if places := tr.run.Holding(canary, tr.deliver); places != nil {
		tr.t.Errorf("the canary stands in %q", places)
	}
}

// wantDelivered wants these bytes, and rows if not negative.
func (tr *trial) wantDelivered(data []byte, rows int64) {
	tr.t.Helper()
	tr.run.WantOK()
	a := tr.run.Result.Artifact
	if a.Outcome != launcher.ArtifactAccepted || rows >= 0 && a.Rows != rows || a.Bytes != int64(len(data)) {
		tr.t.Errorf("artifact %+v, want ACCEPTED with %d rows, %d bytes", a, rows, len(data))
	}
	have, err := os.ReadFile(filepath.Join(tr.deliver, "summary.csv"))
	if err != nil || !bytes.Equal(have, data) {
		tr.t.Errorf("delivered are %d bytes, want %d: %v", len(have), len(data), err)
	}
}
