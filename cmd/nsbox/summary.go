package main

import (
	"fmt"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"nsbox/exporter"
	"nsbox/launcher"
)

// summaryLines tells a result in two to six lines, in a fixed order: outcome,
// artifact, cut streams, leftovers, degraded dimensions, time.
func summaryLines(r launcher.Result) []string {
	artifact := r.Artifact.Outcome
	if artifact == launcher.ArtifactNotExported {
		artifact += " (the program did not exit 0)"
		if w := r.Workload; w.Outcome == launcher.Exited && w.ExitCode != nil && *w.ExitCode == 0 {
			artifact = launcher.ArtifactNotExported
		}
	}
	lines := []string{fmt.Sprintf("workload %s, artifact %s, cleanup %s, delivery %s, exit status %d",
		workloadWords(r.Workload), artifact, r.Cleanup.Outcome, r.Delivery.Outcome, r.ExitStatus)}
	if r.Delivery.Outcome == launcher.Delivered {
		lines = append(lines, delivered(r)...)
	} else {
		lines = append(lines, refusedArtifact(r)...)
	}
	var cut []string
	for _, s := range []struct {
		name string
		launcher.Stream
	}{{"stdout", r.Untrusted.Stdout}, {"stderr", r.Untrusted.Stderr}} {
		if s.Truncated && !s.LiveWhole {
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

// delivered is one line for each published file.
func delivered(r launcher.Result) []string {
	if len(r.Delivery.Paths) == 0 {
		return []string{fmt.Sprintf("%s: %s, %s, %s", r.Delivery.Path, rows(r.Artifact.Rows), count(r.Artifact.Bytes, "byte"), r.Artifact.SHA256)}
	}
	var lines []string
	for i, f := range r.Artifact.Files {
		text := r.Delivery.Paths[i] + ": " + f.Type
		if f.Rows > 0 {
			text += ", " + rows(f.Rows)
		}
		lines = append(lines, fmt.Sprintf("%s, %s, %s", text, count(f.Bytes, "byte"), f.SHA256))
	}
	return lines
}

// refusedArtifact says why the exporter let nothing leave, empty if it did not say so.
func refusedArtifact(r launcher.Result) []string {
	if len(r.Artifact.Reasons) == 0 {
		return nil
	}
	lines := []string{"artifact refused: " + strings.Join(r.Artifact.Reasons, ", ")}
	for i, f := range r.Untrusted.Findings {
		if i == 3 {
			return append(lines, fmt.Sprintf("  and %d more in the result", len(r.Untrusted.Findings)-i+r.Untrusted.Omitted))
		}
		lines = append(lines, fmt.Sprintf("  %s: %s", f.Name, exporter.Explain(f.Code)))
	}
	return lines
}

func workloadWords(w launcher.WorkloadResult) string {
	text := w.Outcome
	switch {
	case w.ExitCode != nil:
		text += fmt.Sprintf(" %d", *w.ExitCode)
	case w.Signal != nil:
		text += " by signal " + signalWords(*w.Signal)
	}
	if w.Detail != "" {
		text += " (" + w.Detail + ")"
	}
	return text
}

// signalWords is a signal's number, and its name if it has one.
func signalWords(n int) string {
	if name := unix.SignalName(syscall.Signal(n)); name != "" {
		return fmt.Sprintf("%d (%s)", n, name)
	}
	return fmt.Sprint(n)
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

// rows says how many rows, and that the number is not one of data rows only.
func rows(n int64) string { return count(n, "row") + " (a header counts)" }

func count(n int64, unit string) string {
	if n == 1 {
		return "1 " + unit
	}
	return fmt.Sprintf("%d %ss", n, unit)
}
