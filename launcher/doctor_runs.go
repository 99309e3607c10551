package launcher

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"nsbox/launcher/policy"
	"nsbox/launcher/reason"
)

// TestRun is one attempt made to see what an enforcement point does: a forbidden
// effect with its outcome, or the control beside it.
type TestRun struct {
	Name    string  `json:"name"`
	Point   string  `json:"point"`   // the enforcement point it speaks for
	Command string  `json:"command"` // what ran in the box
	Want    string  `json:"want"`
	Shown   string  `json:"shown"`
	Passed  bool    `json:"passed"`
	Attempt string  `json:"attempt"`
	Plan    string  `json:"plan_digest"`
	TookMS  float64 `json:"took_ms"`
}

func findRun(runs []TestRun, name string) TestRun {
	for _, r := range runs {
		if r.Name == name {
			return r
		}
	}
	return TestRun{}
}

// runCase is a run to make. judge looks at the result and, for exports, at the
// target itself: site is the directory that holds delivered/ and the input.
type runCase struct {
	name, point, want string
	argv              []string
	limits            []string
	deliver           bool
	judge             func(res Result, site string) bool
}

const sampleCSV = "city,total\nlow,1\nhigh,2\n"

// runCases need no more than the base system's own programs. What they try is
// judged by the launcher's record and the delivery directory, not by what the
// program says of itself.
func runCases() []runCase {
	ended := func(outcome string) func(Result, string) bool {
		return func(r Result, _ string) bool {
			return r.Workload.Outcome == outcome && r.Cleanup.Outcome == CleanupVerified
		}
	}
	exited := func(zero bool) func(Result, string) bool {
		return func(r Result, _ string) bool {
			return r.Workload.Outcome == Exited && r.Workload.ExitCode != nil && (*r.Workload.ExitCode == 0) == zero && r.Cleanup.Outcome == CleanupVerified
		}
	}
	return []runCase{
		{"export-accepted", "EP6", "accepted, delivered, the same bytes", []string{"cp", "/in/summary.csv", "/out/summary.csv"}, nil, true,
			func(r Result, site string) bool {
				got, err := os.ReadFile(site + "/delivered/summary.csv")
				return err == nil && string(got) == sampleCSV && r.Artifact.Outcome == ArtifactAccepted && r.Delivery.Outcome == Delivered && r.Cleanup.Outcome == CleanupVerified
			}},
		{"export-link", "EP6", "rejected as a link, nothing delivered", []string{"ln", "-s", "/etc/passwd", "/out/summary.csv"}, nil, true,
			func(r Result, site string) bool {
				left, err := os.ReadDir(site + "/delivered")
				return err == nil && len(left) == 0 && r.Artifact.Outcome == ArtifactRejected && slices.Contains(r.Artifact.Reasons, "symlink") && r.Cleanup.Outcome == CleanupVerified
			}},
		{"wall-limit", "EP3", "ended by the wall limit of 1 s", []string{"sleep", "20"}, []string{"wall=1s"}, false, ended(TimeoutWall)},
		{"cpu-limit", "EP3", "ended by the CPU limit of 1 s", []string{"sha256sum", "/dev/zero"}, []string{"cpu=1s", "wall=10s"}, false, ended(LimitExceededCPU)},
		{"output-limit", "EP3", "ended by the output cap of 65536 bytes", []string{"dd", "if=/dev/zero", "bs=64K", "count=4"}, nil, false,
			func(r Result, _ string) bool {
				return r.Workload.Outcome == LimitExceededOutput && r.Untrusted.Stdout.BytesKept == 65536 && r.Cleanup.Outcome == CleanupVerified
			}},
		{"out-control", "EP8", "4 MiB into /out of 8 MiB: exit 0", []string{"dd", "if=/dev/zero", "of=/out/x", "bs=1M", "count=4"}, nil, false, exited(true)},
		{"out-bound", "EP8", "9 MiB into /out of 8 MiB: exit not 0", []string{"dd", "if=/dev/zero", "of=/out/x", "bs=1M", "count=9"}, nil, false, exited(false)},
	}
}

// doctorPolicyText is the built-in preset with the one word changed that lets a
// named program run.
func doctorPolicyText() ([]byte, error) {
	raw, ok := policy.PresetBytes("sales-summary")
	from := []byte(`"exec_allowlist": "python_interpreter_only"`)
	if !ok || bytes.Count(raw, from) != 1 {
		return nil, reason.New(reason.Internal, "the built-in preset", "does not have the word that doctor changes", "report this as a fault of nsbox")
	}
	return bytes.Replace(raw, from, []byte(`"exec_allowlist": "named_program_only"`), 1), nil
}

// MakeRuns makes every evidence run, one after the other, with the given
// runner. Their attempts stay in the state directory, marked as doctor's.
func MakeRuns(ctx context.Context, req DoctorRequest, run Runner) ([]TestRun, error) {
	st, err := openState(req.StateDir)
	if err != nil {
		return nil, err
	}
	text, err := doctorPolicyText()
	if err != nil {
		return nil, err
	}
	site, err := os.MkdirTemp(st.dir, "doctor-")
	if err != nil {
		return nil, stateError(st.dir, err)
	}
	defer os.RemoveAll(site) // only what stands below: nsbox's own files and delivered copies
	for name, data := range map[string][]byte{"policy.json": text, "summary.csv": []byte(sampleCSV)} {
		if err := os.WriteFile(site+"/"+name, data, 0o600); err != nil {
			return nil, stateError(site, err)
		}
	}
	var out []TestRun
	for _, c := range runCases() {
		err := os.RemoveAll(site + "/delivered")
		if err == nil {
			err = os.Mkdir(site+"/delivered", 0o700)
		}
		if err != nil {
			return out, stateError(site, err)
		}
		out = append(out, c.make(ctx, req, site, run))
		if ctx.Err() != nil {
			break
		}
	}
	return out, nil
}

func (c runCase) make(ctx context.Context, req DoctorRequest, site string, run Runner) TestRun {
	r := Request{
		PolicyArg: site + "/policy.json", Argv: c.argv, Limits: c.limits, AllowDegraded: policy.Dimensions(), StateDir: req.StateDir, Cgroup: req.Cgroup, For: "doctor",
		Inputs: []Input{{Path: site + "/summary.csv"}},
	}
	if c.deliver {
		r.Deliver = site + "/delivered"
	}
	begin := time.Now()
	res := run(ctx, r, Streams{Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard})
	t := TestRun{Name: c.name, Point: c.point, Command: strings.Join(c.argv, " "), Want: c.want, Passed: c.judge(res, site), Attempt: res.Attempt, Plan: res.Digests.Plan, TookMS: ms(time.Since(begin))}
	t.Shown = fmt.Sprintf("workload %s, artifact %s, cleanup %s, delivery %s", res.Workload.Outcome, res.Artifact.Outcome, res.Cleanup.Outcome, res.Delivery.Outcome)
	if len(res.Artifact.Reasons) > 0 {
		t.Shown += " (" + strings.Join(res.Artifact.Reasons, ", ") + ")"
	}
	if o := res.Resources; o.WallOvershoot > 0 || o.CPUOvershoot > 0 {
		t.Shown += fmt.Sprintf(", overshoot wall %.1f ms, cpu %.1f ms", o.WallOvershoot, float64(o.CPUOvershoot)/1000)
	}
	if res.Reason != nil {
		t.Shown += ", reason " + string(res.Reason.ID)
	}
	return t
}
