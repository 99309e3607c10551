package main

import (
	"fmt"
	"strings"
	"time"

	"nsbox/exporter"
	"nsbox/launcher"
)

// summaryLines tells a result in two to six lines, in a fixed order: outcome,
// artifact, cut streams, leftovers, degraded dimensions, time.
func summaryLines(r launcher.Result) []string {
	lines := []string{fmt.Sprintf("workload %s, artifact %s, cleanup %s, delivery %s, exit status %d",
		workloadWords(r.Workload), r.Artifact.Outcome, r.Cleanup.Outcome, r.Delivery.Outcome, r.ExitStatus)}
	switch a := r.Artifact; {
	case r.Delivery.Outcome == launcher.Delivered:
		lines = append(lines, fmt.Sprintf("%s: %s, %s, %s", r.Delivery.Path, count(a.Rows, "row"), count(a.Bytes, "byte"), a.SHA256))
	case len(a.Reasons) > 0:
		lines = append(lines, "artifact refused: "+strings.Join(a.Reasons, ", "))
		for i, f := range r.Untrusted.Findings {
			if i == 3 {
				lines = append(lines, fmt.Sprintf("  and %d more in the result", len(r.Untrusted.Findings)-i+r.Untrusted.Omitted))
				break
			}
			lines = append(lines, fmt.Sprintf("  %s: %s", f.Name, exporter.Explain(f.Code)))
		}
	}
	var cut []string
	for _, s := range []struct {
		name string
		launcher.Stream
	}{{"stdout", r.Untrusted.Stdout}, {"stderr", r.Untrusted.Stderr}} {
		if s.Truncated {
			cut = append(cut, fmt.Sprintf("%s cut at %d of %s", s.name, s.BytesKept, count(s.BytesTotal, "byte")))
		}
	}
	if len(cut) > 0 {
		lines = append(lines, strings.Join(cut, ", "))
	}
	if len(r.Cleanup.Leftover) > 0 {
		lines = append(lines, "left over: "+strings.Join(r.Cleanup.Leftover, ", "))
	}
	if len(r.Degraded) > 0 {
		var names []string
		for _, d := range r.Degraded {
			names = append(names, d.Dimension)
		}
		lines = append(lines, "degraded, as allowed: "+strings.Join(names, ", "))
	}
	return append(lines, timeLine(r))
}

func workloadWords(w launcher.WorkloadResult) string {
	text := w.Outcome
	switch {
	case w.ExitCode != nil:
		text += fmt.Sprintf(" %d", *w.ExitCode)
	case w.Signal != nil:
		text += fmt.Sprintf(" by signal %d", *w.Signal)
	}
	if w.Detail != "" {
		text += " (" + w.Detail + ")"
	}
	return text
}

func timeLine(r launcher.Result) string {
	text := "program ran " + millis(r.Resources.WallMS)
	if total, ok := r.DurationsMS["total"]; ok {
		text += " of " + millis(total)
	}
	text += ", cpu " + millis(float64(r.Resources.CPUUsec)/1000)
	if r.Attempt != "" {
		text += ", attempt " + r.Attempt
	}
	return text
}

func millis(ms float64) string {
	d := time.Duration(ms * float64(time.Millisecond))
	if d < time.Second {
		return d.Round(100 * time.Microsecond).String()
	}
	return d.Round(10 * time.Millisecond).String()
}

func count(n int64, unit string) string {
	if n == 1 {
		return "1 " + unit
	}
	return fmt.Sprintf("%d %ss", n, unit)
}
