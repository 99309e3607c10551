package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"nsbox/launcher"
	"nsbox/launcher/policy"
)

// smallMemory is below what a Python interpreter needs to come up, with room to
// spare: one that only prints peaks at about 10 MiB, and maps more than it uses.
const smallMemory = 32 << 20

// tell prints what a person wants to know after a run, on standard error. What
// an asked-for delivery came to nothing for is an error, so --quiet keeps it.
func (c *console) tell(r launcher.Result, o outputs) {
	if r.Attempt == "" || neverStarted(r) {
		return
	}
	r.Degraded = o.untold(r.Degraded)
	lines := summaryLines(r)
	if o.quiet {
		lines = nil
		if o.deliver && r.Delivery.Outcome != launcher.Delivered {
			lines = refusedArtifact(r)
		}
	}
	lines = append(lines, o.advice(r)...)
	if !o.quiet && r.Untrusted.Stdout.LiveLost && !errors.Is(c.out.failed(), syscall.EPIPE) { // a reader that went away, like head, wanted no more
		lines = append(lines, "standard output took no more; all that was kept: nsbox attempts logs "+r.Attempt)
	}
	if len(lines) > 0 {
		c.freshLine()
	}
	for _, line := range lines {
		c.note("%s", line)
	}
}

// neverStarted tells a run of which nsbox's own reason is the whole story.
func neverStarted(r launcher.Result) bool {
	ended := []string{launcher.SetupFailure, launcher.RefusedBusy, launcher.RefusedPolicy, launcher.ExecFailed}
	return r.Reason != nil && r.Cleanup.Outcome == launcher.CleanupVerified && slices.Contains(ended, r.Workload.Outcome)
}

// advice is the next step where the outcome words name none.
func (o outputs) advice(r launcher.Result) []string {
	var lines []string
	p, _, err := policy.Load(o.policy)
	if err != nil {
		return nil
	}
	names := strings.Join(p.ArtifactExport.AllowedNames, ", ")
	switch {
	case o.deliver && !p.Exports():
		lines = append(lines, "next: under this policy nothing leaves the box; leave --deliver out, or use a policy with an /out such as sales-summary")
	case o.deliver && r.Artifact.Outcome == launcher.ArtifactEmpty:
		lines = append(lines, "the program wrote nothing to /out", "next: it has to write /out/NAME; the policy's artifact_export.allowed_names: "+names)
	case slices.Contains(r.Artifact.Reasons, "name_not_allowed") && (o.deliver || !o.quiet):
		lines = append(lines, "next: only these names may leave (the policy's artifact_export.allowed_names): "+names)
	}
	failed := r.Workload.ExitCode != nil && *r.Workload.ExitCode != 0 || r.Workload.Outcome == launcher.Signaled
	if tight, err := p.Tighten(o.limits); err == nil && failed && !o.quiet && tight.Limits().Memory.Bytes < smallMemory {
		lines = append(lines, fmt.Sprintf("the memory limit of %d bytes may be too small for the program to come up", tight.Limits().Memory.Bytes))
	}
	if failed && !o.quiet {
		_, live := p.Root().(policy.HostRoot)
		lines = append(lines, hostFiles(o.argv, o.shown, live)...)
	}
	return lines
}

// tellOrphans says which attempts of dead launchers this run has set aside: it
// took time for them, and they wait for the operator.
func (c *console) tellOrphans(stateDir string, ids []string) {
	where := ""
	if stateDir != "" {
		where = " --state-dir " + stateDir
	}
	for _, id := range ids {
		if info, _, err := launcher.Attempt(stateDir, id); err == nil && info.State == launcher.AttemptQuarantined {
			c.freshLine()
			c.note("attempt %s of a launcher that died is set aside; next: nsbox reconcile %s%s", id, id, where)
		}
	}
}
