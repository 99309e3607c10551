package launcher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"nsbox/cgroupv2"
	"nsbox/launcher/attest"
	"nsbox/launcher/policy"
	"nsbox/launcher/probe"
	"nsbox/launcher/reason"
	"nsbox/launcher/rootfs"
	"nsbox/launcher/stage"
	"nsbox/nsexec"
	"nsbox/seccompgen"
)

// doctorProgram would run in the throw-away box if that were ever released.
const doctorProgram = "/bin/true"

// box makes one whole box as exec would, reads it as exec would, kills it and
// proves its end. It answers for what cannot be tried alone: the id maps, the
// filter, Landlock, and the sequence as a whole.
func (x *Examination) box(ctx context.Context, req DoctorRequest) {
	const how = "a whole box was made up to \"go\" and read from outside"
	rows, stop, err := x.waitingBox(ctx, req)
	if err != nil {
		f := failedFinding("box", "waiting-box", everyBox, how, err)
		if ctx.Err() != nil {
			f.Answer = probe.Unknown
		}
		x.add(f)
		for _, name := range []string{"seccomp", "landlock-effect", "stop-proof"} {
			x.add(Finding{Area: "box", Name: name, Shown: "not asked: there was no box", How: how, Serves: everyBox, Next: "see the row waiting-box"})
		}
		return
	}
	x.Box = rows
	whole := yesFinding("box", "waiting-box", everyBox, how, fmt.Sprintf("%d rows, each as planned", len(rows)))
	if err := attest.Check(rows); err != nil {
		whole.Answer, whole.ID, whole.Shown, whole.Next = probe.No, reason.AttestMismatch, err.Error(), "report this with nsbox doctor --json"
	}
	x.add(whole,
		x.rowFinding("seccomp", everyBox, "unshare(0) in the confined child", "seccomp-effect"),
		x.rowFinding("landlock-effect", "landlock", "opening a file that modes and mounts allow and Landlock does not", "landlock"),
		stop)
}

// rowFinding answers by a row of the waiting box. A row that is not there is no answer.
func (x *Examination) rowFinding(name, serves, how, restriction string) Finding {
	f := Finding{Area: "box", Name: name, Serves: serves, How: how, Shown: "the box showed no such row", Next: "see the row waiting-box"}
	for _, r := range x.Box {
		if r.Restriction != restriction {
			continue
		}
		f.Shown, f.Answer = r.Shown, probe.No
		if r.Status == attest.Enforced {
			f.Answer, f.Next = probe.Yes, ""
		}
	}
	return f
}

// doctorPolicy is the built-in preset, opened for a named program.
func doctorPolicy() (*policy.Policy, policy.Source, error) {
	raw, err := doctorPolicyText()
	if err != nil {
		return nil, policy.Source{}, err
	}
	p, err := policy.Decode("the policy of doctor", raw)
	return p, policy.Source{Arg: "doctor"}, err
}

func (x *Examination) waitingBox(ctx context.Context, req DoctorRequest) (rows []attest.Row, stop Finding, err error) {
	st, err := openState(req.StateDir)
	if err != nil {
		return nil, stop, err
	}
	if x.facts.Closure, _, err = rootfs.Cached(st.cache(), doctorProgram, nil); err != nil {
		return nil, stop, err
	}
	p, src, err := doctorPolicy()
	if err != nil {
		return nil, stop, err
	}
	if _, err := probe.ChooseIdentity(x.facts.Host); err != nil {
		return nil, stop, err
	}
	ids, err := x.doctorSlot()
	if err != nil {
		return nil, stop, err
	}
	// Clean only once the box's end is proven.
	defer func() { ids.release(stop.Answer == probe.Yes) }()
	x.facts.Slot = ids.n
	pl, err := MakePlan(Request{Argv: []string{doctorProgram}, AllowDegraded: policy.Dimensions()}, p, src, x.facts)
	if err != nil {
		return nil, stop, err
	}
	spec := pl.Box
	spec.SharedVM = sharedVM
	if spec.Filter, _, err = seccompgen.Cached(st.cache(), pl.workload); err == nil {
		spec.InitFilter, _, err = seccompgen.Cached(st.cache(), seccompgen.Init())
	}
	if err != nil {
		return nil, stop, reason.Wrap(reason.FilterCompile, "the system call filter", "could not be compiled", "report this as a fault of nsbox", err)
	}
	self, err := stage.Open(st.cache())
	if err != nil {
		return nil, stop, reason.Wrap(reason.LauncherExeUnreadable, "nsbox's stage program", "cannot be opened", "check the free space and the mode of "+st.cache(), err)
	}
	defer unix.Close(self)

	files := nsexec.Files{Self: self, Cgroup: -1, Work: -1}
	group, release, err := x.doctorGroup(req)
	if err != nil {
		return nil, stop, err
	}
	defer release()
	var limits []attest.Row
	if group != nil {
		files.Cgroup, files.Work = group.BoxFD(), group.WorkFD()
		applied, err := group.Apply(pl.Cgroup)
		if err != nil {
			return nil, stop, err
		}
		limits = cgroupRows("", group.Path(), applied)
	}
	box, err := nsexec.Spawn(&spec, files, ctx.Done())
	if err != nil {
		return nil, stop, boxFailure(err)
	}
	rows, err = inspect(box, &spec, group)
	rows = append(append(rows, limits...), pl.attestation()...)
	stop = killed(ctx, box, group)
	if err != nil {
		return nil, stop, reason.Wrap(reason.AttestUnreadable, "what the kernel shows of the box", "could not be read", "report this with nsbox doctor --json", err)
	}
	return rows, stop, nil
}

// doctorSlot takes ids that no attempt has.
func (x *Examination) doctorSlot() (*slot, error) {
	all, err := openSlots(x.facts.Host.BootID)
	if err != nil {
		return nil, err
	}
	id, err := newAttemptID(time.Now())
	if err != nil {
		return nil, err
	}
	return all.take(x.facts.Identity, id)
}

// doctorGroup makes the box's group where one can be made; release removes it.
func (x *Examination) doctorGroup(req DoctorRequest) (*cgroupv2.Group, func(), error) {
	if !x.facts.Cgroup {
		return nil, func() {}, nil
	}
	root, err := cgroupv2.Find(req.Cgroup)
	if err != nil {
		return nil, nil, probe.CgroupReason(err)
	}
	id, err := newAttemptID(time.Now())
	if err != nil {
		root.Close()
		return nil, nil, err
	}
	g, err := root.Create(id)
	if err != nil {
		root.Close()
		return nil, nil, probe.CgroupReason(err)
	}
	return g, func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
		defer cancel()
		g.Kill()
		g.WaitEmpty(ctx)
		g.Remove(ctx)
		g.Close()
		root.Close()
	}, nil
}

const stopWithin = 5 * time.Second

// killed ends the box by its group, if there is one, and asks for the proof.
func killed(ctx context.Context, box *nsexec.Box, group *cgroupv2.Group) Finding {
	f := Finding{Area: "box", Name: "stop-proof", Serves: everyBox, How: "the box was killed by its pid 1, which was reaped"}
	pid := box.InitPID
	begin := time.Now()
	if group == nil {
		if err := box.Abort(); err != nil {
			f.Answer, f.Shown = probe.No, err.Error()
			return f
		}
		f.Answer, f.Shown = probe.Yes, fmt.Sprintf("pid 1 was reaped %s after the kill", time.Since(begin).Round(100*time.Microsecond))
		return f
	}
	f.How = "cgroup.kill on the box's group, then its own word that it is empty"
	ctx, cancel := context.WithTimeout(ctx, stopWithin)
	defer cancel()
	err := group.Kill()
	if err == nil {
		err = group.WaitEmpty(ctx)
	}
	took := time.Since(begin)
	err = errors.Join(err, box.Abort())
	if err != nil {
		e := toReason(err)
		f.Answer, f.Shown, f.ID, f.Next = probe.No, err.Error(), e.ID, e.Next
		return f
	}
	f.Answer, f.Shown = probe.Yes, fmt.Sprintf("the group was empty %s after cgroup.kill; pid 1 (%d) was reaped", took.Round(100*time.Microsecond), pid)
	return f
}
