package policy

import (
	"slices"

	"nsbox/launcher/reason"
)

// What an operator's own box may have that a batch job's has not.

// scratchExec is the scratch_scope of a box in which programs may be built and run.
const scratchExec = "per_job_tmpfs_nosuid_nodev_destroyed_at_cleanup_never_exported"

// liveScope is the scope of stdout_bytes or stderr_bytes where the value bounds
// what is kept; the live stream itself goes on.
const liveScope = "kept_of_a_live_stream_without_cap"

// Term names the variable whose value is the type of the box's terminal. In a
// box without a terminal it is "dumb".
const Term = "TERM"

// Exports reports whether a file may leave. A policy without /out has no exporter.
func (p *Policy) Exports() bool { return slices.Contains(p.Filesystem.WritablePaths, "/out") }

// Writable reports whether a place is writable in the box.
func (p *Policy) Writable(place string) bool {
	return slices.Contains(p.Filesystem.WritablePaths, place)
}

// ScratchExec reports whether files in /scratch, /tmp and /dev/shm may be executed.
func (p *Policy) ScratchExec() bool { return p.Filesystem.ScratchScope == scratchExec }

// LiveStreams reports for stdout and stderr whether they go on beyond what is kept.
func (p *Policy) LiveStreams() (stdout, stderr bool) {
	return p.Resources.StdoutBytes.Scope == liveScope, p.Resources.StderrBytes.Scope == liveScope
}

func (row *resourceRow) isStream() bool {
	return row.key == "stdout_bytes" || row.key == "stderr_bytes"
}

// writable holds the writable places of a box.
func (d *decoder) writable(key string, p *Policy) {
	have := p.Filesystem.WritablePaths
	d.known(key, have, []string{"/scratch", "/out", "/tmp", "/dev/shm"}, "/scratch is the working directory, /tmp and /dev/shm may be directories of it, and /out is the only way out; nothing else is writable")
	d.complete(key, have, []string{"/scratch"}, "every box has it")
	if !p.Exports() && len(p.ArtifactExport.AllowedNames) > 0 && d.sound(key) {
		d.tell(reason.PolicyUnenforceable, key, `"/out" missing: a name of artifact_export.allowed_names may leave, and only /out can hold it`, `add "/out", or write [] for allowed_names`)
	}
}
