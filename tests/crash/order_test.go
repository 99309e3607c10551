package crash

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"nsbox/launcher"
	"nsbox/launcher/journal"
)

// specified are the six events at the end of an attempt, in the specification's
// order, and the record that each is.
var specified = []struct {
	name  string
	event journal.Event
}{
	{"STOP_EXECUTION_PROVED", journal.StopProved},
	{"SEAL_SOURCE_WITH_STORAGE_RETAINED", journal.Sealed},
	{"VALIDATE_AND_EXPORT_INDEPENDENT_BYTES", journal.CopyVerified},
	{"DESTROY_RUNTIME_AND_SOURCE", journal.Destroyed},
	{"VERIFY_CLEANUP", journal.CleanupVerified},
	{"DELIVER", journal.Delivered},
}

// TestEventsOfTheEnd reads the real journal of every way an attempt can end: the
// events that belong to it stand there once each, in the specified order, and no
// other; the terminal event stands before all of them.
func TestEventsOfTheEnd(t *testing.T) {
	const (
		stop, seal, export, destroy, verify, deliver = 0, 1, 2, 3, 4, 5
		write                                        = `open("/out/summary.csv","w").write("city\nx\n")` + "\n"
	)
	asEach(t, func(t *testing.T, b *bench) {
		for name, c := range map[string]struct {
			code, workload, artifact string
			flags                    []string
			command                  string
			cancel                   bool
			want                     []int
		}{
			"accepted":        {code: write, workload: launcher.Exited, artifact: launcher.ArtifactAccepted, want: []int{stop, seal, export, destroy, verify, deliver}},
			"rejected":        {code: "open('/out/summary.csv','w').write('a\\n\\0')", workload: launcher.Exited, artifact: launcher.ArtifactRejected, want: []int{stop, seal, export, destroy, verify}},
			"empty":           {code: "pass", workload: launcher.Exited, artifact: launcher.ArtifactEmpty, want: []int{stop, seal, destroy, verify}},
			"exit 3":          {code: write + "raise SystemExit(3)", workload: launcher.Exited, artifact: launcher.ArtifactNotExported, want: []int{stop, destroy, verify}},
			"signal":          {code: write + "import os\nos.abort()", workload: launcher.Signaled, artifact: launcher.ArtifactNotExported, want: []int{stop, destroy, verify}},
			"wall":            {code: write + "import time\ntime.sleep(60)", flags: []string{"--limit", "wall=500ms"}, workload: launcher.TimeoutWall, artifact: launcher.ArtifactNotExported, want: []int{stop, destroy, verify}},
			"output":          {code: write + "print('x' * 9999, flush=True)", flags: []string{"--limit", "stdout=4096"}, workload: launcher.LimitExceededOutput, artifact: launcher.ArtifactNotExported, want: []int{stop, destroy, verify}},
			"cancelled":       {code: write + "print('up', flush=True)\nimport time\ntime.sleep(60)", cancel: true, workload: launcher.Cancelled, artifact: launcher.ArtifactNotExported, want: []int{stop, destroy, verify}},
			"setup failure":   {code: write, flags: []string{"--plan", "sha256:0000000000000000000000000000000000000000000000000000000000000000"}, workload: launcher.SetupFailure, artifact: launcher.ArtifactNotExamined, want: []int{stop, destroy, verify}},
			"input too large": {code: write, flags: []string{"--limit", "input=1"}, workload: launcher.SetupFailure, artifact: launcher.ArtifactNotExamined, want: []int{stop, destroy, verify}},
		} {
			t.Run(name, func(t *testing.T) {
				b.cells++
				out, result := filepath.Join(b.dir, "order-"+time.Now().Format("150405.000000")), filepath.Join(b.dir, "order.json")
				b.mkdir(out)
				os.Remove(result)
				cmd := b.command(slices.Insert(b.exec(out, c.code), 1, append([]string{"--result", result}, c.flags...)...)...)
				stdout, err := cmd.StdoutPipe()
				if err != nil || cmd.Start() != nil {
					t.Fatal(err)
				}
				if c.cancel {
					if _, err := stdout.Read(make([]byte, 2)); err != nil {
						t.Fatal(err)
					}
					_ = cmd.Process.Signal(syscall.SIGTERM)
				}
				for buf := make([]byte, 4096); err == nil; {
					_, err = stdout.Read(buf)
				}
				_ = cmd.Wait()
				var res launcher.Result
				data, err := os.ReadFile(result)
				if err != nil || json.Unmarshal(data, &res) != nil {
					t.Fatalf("no result: %v", err)
				}
				if res.Workload.Outcome != c.workload || res.Artifact.Outcome != c.artifact || res.Cleanup.Outcome != launcher.CleanupVerified {
					t.Errorf("%+v, %+v, %+v: %+v", res.Workload, res.Artifact, res.Cleanup, res.Reason)
				}
				recs, _, err := journal.Read(filepath.Join(b.state, "attempts", res.Attempt, "journal"))
				if err != nil {
					t.Fatal(err)
				}
				var got, want []string
				terminal := 0
				for _, r := range recs {
					if r.Event == journal.Terminal {
						if terminal++; len(got) > 0 {
							t.Errorf("the terminal event stands after %v", got)
						}
					}
					for _, s := range specified {
						if s.event == r.Event {
							got = append(got, s.name)
						}
					}
				}
				for _, n := range c.want {
					want = append(want, specified[n].name)
				}
				if !slices.Equal(got, want) || terminal != 1 {
					t.Errorf("%d terminal events and\n%v, want\n%v", terminal, got, want)
				}
			})
		}
		// The policy names the same six, in the same order.
		var named []string
		for _, s := range specified {
			named = append(named, s.name)
		}
		if p := b.lifecycleEvents(); !slices.Equal(p, named) {
			t.Errorf("the preset has the events %v", p)
		}
	})
}

func (b *bench) lifecycleEvents() []string {
	b.t.Helper()
	data, err := os.ReadFile(b.site.Policy())
	var doc struct {
		Lifecycle struct{ Events []string }
	}
	if err != nil || json.Unmarshal(data, &doc) != nil {
		b.t.Fatal(err)
	}
	return doc.Lifecycle.Events
}
