package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"nsbox/launcher/reason"
)

// requiredClasses are the denied system-call classes that may not be left out: the
// preset's, but for the one on sockets, which socketClass decides.
func requiredClasses() []string {
	return []string{"mount", "unshare", "ptrace", "keyctl", "bpf", "perf_event_open", "userfaultfd", "setns", "AF_VSOCK"}
}

// extraClasses are those that may be named besides: the filter denies them in any case.
func extraClasses() []string {
	return []string{"io_uring", "module", "reboot", "swap", "clock", "chroot", "kexec", "acct", "quota"}
}

func (d *decoder) process(p *Policy) {
	const key = "process_policy."
	pp := &p.ProcessPolicy
	const classes = key + "seccomp.denied_classes"
	sockets := p.socketClass()
	d.known(classes, pp.Seccomp.DeniedClasses, slices.Concat(requiredClasses(), []string{sockets}, extraClasses()), "the filter has no such class for this policy")
	required := requiredClasses()
	if !slices.Contains(p.Degrade, DimSeccompNetwork) {
		required = append(required, sockets)
	}
	d.complete(classes, pp.Seccomp.DeniedClasses, required, "the filter always denies it")
	if !slices.Equal(pp.DescriptorsInherited, []int{0, 1, 2}) {
		d.tell(reason.PolicyUnenforceable, key+"descriptors_inherited", "the workload starts with exactly stdin, stdout and stderr", "write [0, 1, 2]")
	}
	for i, name := range pp.EnvAllowlist {
		where := at(key+"env_allowlist", i)
		if _, ok := envValue(name, 1); slices.Contains(pp.EnvAllowlist[:i], name) {
			d.tell(reason.PolicyInvalid, where, strconv.Quote(name)+" stands twice", "keep one of them")
		} else if !ok {
			d.tell(reason.PolicyUnenforceable, where, strconv.Quote(name)+" cannot be obeyed: nsbox copies nothing from the caller and has no value of its own for it", "known: "+envNames)
		}
	}
}

// Bounds of allowed_names and out_file_count_accept: the exporter's set-up opens
// each name beforehand and hands in a staging file for each file that may leave.
const (
	maxNames       = 16
	maxNameLength  = 255
	maxFiles       = 7
	maxDescriptors = 19 // names and staging files
)

func (d *decoder) artifact(p *Policy) {
	const key = "artifact_export."
	a := &p.ArtifactExport
	d.exactly(key+"allowed_types", a.AllowedTypes, []string{"regular_file"}, "only a regular file may leave")
	d.exactly(key+"reject", a.Reject, []string{"symlink", "hardlink_nlink_gt_1", "special_file", "directory", "archive_magic", "nul_byte", "non_utf8"}, "the exporter makes these checks, all of them, every time")
	const names = key + "allowed_names"
	if n := len(a.AllowedNames); n > maxNames || n < 1 && slices.Contains(p.Filesystem.WritablePaths, "/out") {
		d.tell(reason.PolicyInvalid, names, "has "+strconv.Itoa(n)+" names", "write 1 to "+strconv.Itoa(maxNames)+" names, or none and no /out in filesystem.writable_paths")
	}
	d.descriptors(p)
	d.artifactTypes(p)
	for i, name := range a.AllowedNames {
		if bad := badName(name); bad != "" {
			d.tell(reason.PolicyInvalid, at(names, i), strconv.QuoteToASCII(name)+" "+bad, "write a plain file name")
		} else if slices.Contains(a.AllowedNames[:i], name) {
			d.tell(reason.PolicyInvalid, at(names, i), strconv.QuoteToASCII(name)+" stands twice", "keep one of them")
		}
	}
}

// descriptors holds together what the exporter's box is handed.
func (d *decoder) descriptors(p *Policy) {
	const names, count = "artifact_export.allowed_names", "resources.out_file_count_accept.value"
	n, files := len(p.ArtifactExport.AllowedNames), int(p.Resources.OutFileCountAccept.Value)
	if d.sound(names, count) && n+min(n, files) > maxDescriptors {
		d.tell(reason.PolicyInvalid, names, fmt.Sprintf("%d names of which %d files may leave need %d descriptors", n, files, n+min(n, files)), fmt.Sprintf("allow fewer names or files: both together at most %d", maxDescriptors))
	}
}

// ArtifactTypes are the types a name can have, the strictest first.
func ArtifactTypes() []string { return []string{"csv", "text", "json", "binary"} }

// artifactTypes holds the optional keys on content.
func (d *decoder) artifactTypes(p *Policy) {
	const key = "artifact_export."
	a := &p.ArtifactExport
	if f := a.CSVFormula; f != "" && f != "allow" && f != "reject" {
		d.tell(reason.PolicyInvalid, key+"csv_formula", strconv.QuoteToASCII(f)+" is no rule for formulas", `write "allow" or "reject", or leave the key out`)
	}
	if m := a.ByteOrderMark; m != "" && m != "allow" && m != "reject" {
		d.tell(reason.PolicyInvalid, key+"byte_order_mark", strconv.QuoteToASCII(m)+" is no rule for a byte order mark", `write "allow" or "reject", or leave the key out`)
	}
	most := p.Limits().Out.FileBytes
	var seen []string
	for i, t := range a.Types {
		where := at(key+"types", i)
		switch {
		case !slices.Contains(a.AllowedNames, t.Name):
			d.tell(reason.PolicyInvalid, where+".name", strconv.QuoteToASCII(t.Name)+" is not one of allowed_names", didYouMean(t.Name, a.AllowedNames))
		case slices.Contains(seen, t.Name):
			d.tell(reason.PolicyInvalid, where+".name", strconv.QuoteToASCII(t.Name)+" stands twice", "keep one of them")
		case !slices.Contains(ArtifactTypes(), t.Type):
			d.tell(reason.PolicyInvalid, where+".type", strconv.QuoteToASCII(t.Type)+" is no type of an artifact", "known: "+strings.Join(ArtifactTypes(), ", "))
		case t.Bytes != nil && (*t.Bytes < 1 || int64(*t.Bytes) > most) && d.sound("resources.out_file_size_accept.value"):
			d.tell(reason.PolicyInvalid, where+".bytes", strconv.Itoa(*t.Bytes)+" is not within out_file_size_accept", "write 1 to "+strconv.FormatInt(most, 10)+" bytes, or leave the key out")
		}
		seen = append(seen, t.Name)
	}
}

// badName says why a name cannot stand in /out, or returns "".
func badName(name string) string {
	switch {
	case name == "." || name == "..":
		return "is a directory's own name"
	case strings.ContainsRune(name, '/'):
		return "has a slash"
	case len(name) > maxNameLength:
		return "is longer than a file name can be"
	}
	return ""
}

// points holds the list of enforcement points, which is fixed but for statuses.
func (d *decoder) points(p *Policy) {
	const key = "enforcement_points"
	components := []string{
		"host_kernel_namespaces_mounts", "job_cgroup_memory_pids_cpu", "launcher_monitor_cpu_wall_output",
		"seccomp_and_no_new_privs", "no_netns_interfaces", "exporter_container", "launcher_finalizer_and_journal",
		"bounded_out_mount", "io_throttle",
	}
	ids := make([]string, len(components))
	for i := range ids {
		ids[i] = "EP" + strconv.Itoa(i+1)
	}
	have := make([]string, len(p.EnforcementPoints))
	for i, e := range p.EnforcementPoints {
		where := at(key, i)
		have[i] = e.ID
		switch n := slices.Index(ids, e.ID); {
		case n < 0:
			d.tell(reason.PolicyUnenforceable, where+".id", strconv.Quote(e.ID)+" is no enforcement point of nsbox", didYouMean(e.ID, ids))
		case slices.Contains(have[:i], e.ID):
			d.tell(reason.PolicyInvalid, where+".id", strconv.Quote(e.ID)+" stands twice", "keep one of them")
		case e.Component != components[n]:
			d.tell(reason.PolicyUnenforceable, where+".component", strconv.Quote(e.Component)+" is not what "+e.ID+" is", "write "+strconv.Quote(components[n]))
		}
		switch s := e.ImplementationStatus; {
		case s == "CONFIRMED" && p.Evidence != nil:
		case s == "CONFIRMED":
			d.confirmed(where + ".implementation_status")
		case s != "NOT_IMPLEMENTED" && !s.unclaimed():
			d.tell(reason.PolicyUnenforceable, where+".implementation_status", s.shown()+" is no status", "write UNVERIFIED or NOT_IMPLEMENTED")
		}
	}
	if d.sound(key) {
		d.complete(key, have, ids, "every enforcement point is in use")
	}
}
