package launcher

import (
	"context"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"nsbox/cgroupv2"
	"nsbox/launcher/attest"
	"nsbox/launcher/probe"
	"nsbox/launcher/reason"
)

// Finding is one question about this host and how it was answered: by trying
// the thing, or by a setting that can only prove a no.
type Finding struct {
	Area   string       `json:"area"`
	Name   string       `json:"name"`
	Answer probe.Answer `json:"answer"`
	Shown  string       `json:"shown"`  // what the kernel or a file said
	How    string       `json:"how"`    // what was tried
	Serves string       `json:"serves"` // "every box", a dimension that can be degraded, or what else it is for
	ID     reason.ID    `json:"id,omitempty"`
	Next   string       `json:"next,omitempty"` // the exact next step, for an answer other than yes
}

// everyBox marks a finding without which no box can be made.
const everyBox = "every box"

// Examination is the document of `nsbox doctor --json`.
type Examination struct {
	Schema   string       `json:"schema"`
	Findings []Finding    `json:"findings"`
	Box      []attest.Row `json:"box"` // what a waiting throw-away box showed; it was never released
	Blockers []Blocker    `json:"blockers"`

	facts      Facts
	cgroupRoot string
}

// ExaminationSchema names that document.
const ExaminationSchema = "nsbox.doctor/1"

// Ready reports whether everything that every box needs is there. A question
// without an answer counts as no.
func (x *Examination) Ready() bool {
	for _, f := range x.Findings {
		if f.Serves == everyBox && f.Answer != probe.Yes {
			return false
		}
	}
	return true
}

// find returns the finding of that name, or one that is unknown.
func (x *Examination) find(name string) Finding {
	for _, f := range x.Findings {
		if f.Name == name {
			return f
		}
	}
	return Finding{Name: name, Shown: "was not asked"}
}

func (x *Examination) add(f ...Finding) { x.Findings = append(x.Findings, f...) }

// DoctorRequest is what Examine needs to know of the command line.
type DoctorRequest struct {
	StateDir string
	Cgroup   string
}

// doctorWithin bounds a whole examination without runs.
const doctorWithin = 60 * time.Second

// Examine tries what boxes are made of, each thing in a throw-away child of its
// own, then makes one whole box, reads it, and kills it before any program
// could start in it. Nothing of it stays but the state directory.
func Examine(ctx context.Context, req DoctorRequest) *Examination {
	ctx, cancel := context.WithTimeout(ctx, doctorWithin)
	defer cancel()
	x := &Examination{Schema: ExaminationSchema, Findings: []Finding{}, Box: []attest.Row{}}
	host, err := probe.Survey()
	if err != nil {
		x.add(failedFinding("kernel", "facts", everyBox, "read /proc", err))
		x.Blockers = blockers(x, nil)
		return x
	}
	x.facts = Facts{Host: host, CapLast: capLast(), CPU: firstCPU()}
	x.add(hostFindings(host)...)
	x.facts.Identity, err = probe.ChooseIdentity(host)
	x.add(identityFindings(host, x.facts.Identity, err)...)
	x.add(childFindings(ctx, host, x.facts.Identity)...)
	x.storage(req)
	x.cgroup(req)
	x.box(ctx, req)
	x.Findings = byArea(x.Findings)
	x.Blockers = blockers(x, nil)
	return x
}

// byArea keeps the areas in the order in which they were first met.
func byArea(list []Finding) []Finding {
	first := map[string]int{}
	for _, f := range list {
		if _, ok := first[f.Area]; !ok {
			first[f.Area] = len(first)
		}
	}
	slices.SortStableFunc(list, func(a, b Finding) int { return first[a.Area] - first[b.Area] })
	return list
}

// yesFinding and failedFinding are the two ends of a trial in this process.
func yesFinding(area, name, serves, how, shown string) Finding {
	return Finding{Area: area, Name: name, Answer: probe.Yes, Shown: shown, How: how, Serves: serves}
}

func failedFinding(area, name, serves, how string, err error) Finding {
	e := toReason(err)
	f := Finding{Area: area, Name: name, Answer: probe.No, Shown: e.Error(), How: how, Serves: serves, ID: e.ID, Next: e.Next}
	if e.ID == reason.HostFactsUnreadable || e.ID == reason.Internal {
		f.Answer = probe.Unknown
	}
	return f
}

// storage tries the state directory and its lock, and looks for an /out that
// outlives the launcher.
func (x *Examination) storage(req DoctorRequest) {
	const how = "opened or made, owner and mode compared"
	st, err := openState(req.StateDir)
	if err != nil {
		x.add(failedFinding("storage", "state-directory", everyBox, how, err))
		x.add(Finding{Area: "storage", Name: "lock", Shown: "not asked without a state directory", How: "nothing", Serves: everyBox, Next: "repair the state directory first"})
	} else {
		x.add(yesFinding("storage", "state-directory", everyBox, how, st.dir))
		x.add(lockFinding(st))
	}
	x.add(outFinding(x.facts))
}

// lockFinding tries what keeps two attempts apart: a second open file must not
// get the lock that the first one has. Some network file systems grant both.
func lockFinding(st *state) Finding {
	const how = "a file was locked through two descriptors"
	path := st.dir + "/doctor-lock"
	first, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return failedFinding("storage", "lock", everyBox, how, stateError(path, err))
	}
	defer os.Remove(path)
	defer first.Close()
	second, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return failedFinding("storage", "lock", everyBox, how, stateError(path, err))
	}
	defer second.Close()
	err = unix.Flock(int(first.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case err == unix.EWOULDBLOCK:
		return Finding{Area: "storage", Name: "lock", Shown: "another doctor holds it", How: how, Serves: everyBox, Next: "wait until it has ended and ask again"}
	case err != nil:
		return failedFinding("storage", "lock", everyBox, how, stateError(path, err))
	}
	if err := unix.Flock(int(second.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != unix.EWOULDBLOCK {
		return Finding{Area: "storage", Name: "lock", Answer: probe.No, Shown: "two descriptors hold one exclusive lock", How: how, Serves: everyBox, ID: reason.StateDir,
			Next: "name a state directory on a local file system with --state-dir"}
	}
	return yesFinding("storage", "lock", everyBox, how, "the second descriptor was refused")
}

// cgroup tries to make a group, and asks the kernel for each controller.
func (x *Examination) cgroup(req DoctorRequest) {
	h := x.facts.Host
	const how = "a leaf group was made and removed"
	root, err := cgroupv2.Find(req.Cgroup)
	if err != nil {
		x.facts.CgroupErr = err
		x.add(failedFinding("cgroup", "delegation", "cpu_total", "a leaf group was to be made", err))
	} else {
		x.facts.Cgroup, x.cgroupRoot = true, root.Path()
		x.add(yesFinding("cgroup", "delegation", "cpu_total", how, root.Path()))
	}
	serves := map[string]string{"memory": "memory", "cpu": "cpu_rate", "pids": "a task limit beside RLIMIT_NPROC"}
	for _, c := range []string{"memory", "cpu", "pids"} {
		f := Finding{Area: "cgroup", Name: "controller-" + c, Serves: serves[c], How: "cgroup.controllers and /proc/self/cgroup were read"}
		have := root != nil && slices.Contains(root.Controllers(), c)
		if e := h.ControllerRefusal(c); have {
			f.Answer, f.Shown = probe.Yes, "listed in "+root.Path()
		} else if e != nil {
			f.Answer, f.Shown, f.ID, f.Next = probe.No, e.Error(), e.ID, e.Next
		} else {
			f.Answer, f.Shown, f.Next = probe.No, "not handed down to where groups can be made", "start nsbox in a delegated group: systemd-run --user --scope -p Delegate=yes -- nsbox …"
		}
		x.add(f)
	}
	if root != nil {
		root.Close()
	}
	x.add(userBus(h))
}

// userBus looks for the way to a delegated scope. It is missing after su and
// sudo -u, under cron and in most containers.
func userBus(h *probe.Host) Finding {
	f := Finding{Area: "cgroup", Name: "user-manager", Serves: "a delegated group without the operator's help", How: "the socket of the user's service manager was looked for"}
	if h.UID == 0 {
		f.Answer, f.Shown = probe.Yes, "not needed: root uses the system's"
		return f
	}
	dir := os.Getenv("XDG_RUNTIME_DIR")
	if dir == "" {
		f.Answer, f.Shown = probe.No, "XDG_RUNTIME_DIR is not set, as after su, sudo -u, or under cron"
		f.Next = "log in as this user by ssh or on a console, or: sudo loginctl enable-linger " + h.User + "; export XDG_RUNTIME_DIR=/run/user/" + itoa(h.UID)
		return f
	}
	st, err := os.Stat(dir + "/bus")
	switch {
	case err == nil && st.Mode()&os.ModeSocket != 0:
		f.Answer, f.Shown = probe.Yes, dir+"/bus"
	default:
		f.Answer, f.Shown, f.Next = probe.No, dir+"/bus is no socket", "start the user's manager: sudo loginctl enable-linger "+h.User
	}
	return f
}
