package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Note is a remark about an accepted policy: Warn marks what probably is not
// meant, the others explain what a value does here.
type Note struct {
	Path string
	Text string
	Warn bool
}

// Lint explains an accepted policy: warnings first, then what was taken
// strictly, what holds otherwise than a reader may think, and the blockers.
func Lint(p *Policy) []Note {
	var warn, say []Note
	warning := func(path, text string) { warn = append(warn, Note{path, text, true}) }
	note := func(path, text string) { say = append(say, Note{path, text, false}) }

	lintMemory(p, warning, note)
	lintTimes(p, warning)
	for _, entry := range presetDenied() {
		if has := func(e string) bool { return slices.Contains(p.Filesystem.DeniedMounts, e) }; !has(entry) && !slices.ContainsFunc(standIns(entry), has) {
			warning("filesystem.denied_mounts", strconv.Quote(entry)+" is left out: nothing forbids a mount from or at it any more")
		}
	}

	for _, r := range p.wordRules() {
		switch w := *r.word; {
		case r.path == "isolation_backend.name":
			if w != "nsbox-namespaces" {
				note(r.path, w.shown()+" is answered by nsbox's own namespace box, the specification's option C: no container runtime is used or looked for")
			}
		case r.strictly(w):
			note(r.path, w.shown()+" claims nothing and is taken strictly: "+r.holds)
		}
	}
	for i, e := range p.EnforcementPoints {
		note(at("enforcement_points", i)+".implementation_status", e.ID+" ("+e.Component+") is "+e.ImplementationStatus.shown()+" in the document; what a run shows stands in its attestation")
	}
	if l := p.ExecutionIdentity.HostLauncher; l.UID == nil {
		note("execution_identity.host_launcher.uid", "null: any host user may launch. The document asks for a dedicated unprivileged one; as root or as a member of a group like sudo or docker the dimension "+DimLauncherIdentity+" is degraded and has to be allowed by name")
	} else {
		note("execution_identity.host_launcher.uid", fmt.Sprintf("only host uid %d may launch", *l.UID))
	}
	note("filesystem.export_scope", p.storageNote())
	note("resources.io_write_rate", "nothing enforces it: tmpfs is outside the io controller. Writes are bounded by sizes and deadlines only")
	note("process_policy.exec_allowlist", p.execNote())
	p.rootfsLint(note)
	for i, t := range p.ArtifactExport.Types {
		if t.Type == "binary" {
			warning(at("artifact_export.types", i), t.Name+" is binary: nul_byte and non_utf8 of artifact_export.reject cannot hold for it, nor can line, row and structure checks; archives, compressed data and programs are refused by their first bytes")
		}
	}
	if len(p.Degrade) > 0 {
		warning("degrade", "every run under this policy may be weaker in: "+strings.Join(p.Degrade, ", "))
	}
	for i, b := range p.Blockers {
		note(at("blockers", i), b)
	}
	return append(warn, say...)
}

func (p *Policy) execNote() string {
	if p.PythonOnly() {
		return "the root holds a Python interpreter, its libraries and its standard library, and no other executable; that limits files to execute, not what the interpreter runs"
	}
	if p.AnyProgram() {
		return "the root holds every program that rootfs brings, and all of them may be executed"
	}
	return "the root holds the program of the command line and its libraries, and no other executable"
}

// lintMemory compares what may lie in tmpfs with the memory it is charged to.
func lintMemory(p *Policy, warning, note func(path, text string)) {
	const path = "resources.memory_workload.value"
	l := p.Limits()
	files := l.Scratch.Bytes + l.Out.Bytes
	sum := fmt.Sprintf("full /scratch (%s) and /out (%s) are charged to the job's %s", showSize(l.Scratch.Bytes), showSize(l.Out.Bytes), showSize(l.Memory.Bytes))
	if files >= l.Memory.Bytes {
		warning(path, sum+" and leave nothing for the program: it is killed for memory before the disk is full")
	} else {
		note(path, sum+" and leave "+showSize(l.Memory.Bytes-files)+" for the program itself")
	}
	if l.Out.FileBytes > l.Out.Bytes {
		warning("resources.out_file_size_accept.value", showSize(l.Out.FileBytes)+" can never be reached: /out holds "+showSize(l.Out.Bytes))
	}
	if names := len(p.ArtifactExport.AllowedNames); l.Out.Files > names {
		warning("resources.out_file_count_accept.value", fmt.Sprintf("%d files can never leave: allowed_names has %d", l.Out.Files, names))
	}
	if l.FileSize < l.Out.FileBytes {
		warning("resources.workload_file_size.value", "a file ends at "+showSize(l.FileSize)+", before the "+showSize(l.Out.FileBytes)+" the exporter would take")
	}
	if l.Input >= 1<<40 {
		warning("resources.input_bytes.value", showSize(l.Input)+" of input are copied to disk before the run")
	}
}

func lintTimes(p *Policy, warning func(path, text string)) {
	l := p.Limits()
	if l.Exporter.Wall > l.Attempt.ExporterLifecycle {
		warning("resources.exporter_wall.value", fmt.Sprintf("%v is more than budget_exporter_lifecycle, %v, which ends the exporter first", l.Exporter.Wall, l.Attempt.ExporterLifecycle))
	}
	if l.CPU.PerProcess < l.CPU.Total && l.CPU.PerProcess < l.Wall && l.Tasks == 1 {
		warning("resources.cpu_per_process_rlimit.value", "with one task the process limit ends the job before cpu_total does")
	}
	if most := l.Wall.Seconds() * float64(l.CPU.RatePercent) / 100; l.CPU.Total.Seconds() > most {
		warning("resources.cpu_total.value", fmt.Sprintf("%v cannot be used up: %v at %d%% of a core give %.3gs", l.CPU.Total, l.Wall, l.CPU.RatePercent, most))
	}
}
