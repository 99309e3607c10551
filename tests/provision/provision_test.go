package provision

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"nsbox/launcher"
	"nsbox/launcher/attest"
	"nsbox/launcher/outslot"
	"nsbox/launcher/reason"
	"nsbox/tests/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// operator looks at what it provisioned, and wants this and that of it.
type operator struct {
	*harness.Operator
	t *testing.T
}

func newOperator(t *testing.T, flags ...string) *operator {
	t.Helper()
	return &operator{harness.NewOperator(t, flags...), t}
}

// want runs nsbox provision and wants it to end well.
func (o *operator) want(args ...string) string {
	o.t.Helper()
	out, err := o.Command(args...)
	if err != nil {
		o.t.Fatalf("nsbox provision %q: %v\n%s", args, err, out)
	}
	return out
}

// refused wants a refusal with this reason.
func (o *operator) refused(id reason.ID, args ...string) {
	o.t.Helper()
	out, err := o.Command(args...)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != launcher.ExitRefused || !strings.Contains(out, "(reason "+string(id)+")") || !strings.Contains(out, "next: ") {
		o.t.Errorf("nsbox provision %q: want %s, got %v\n%s", args, id, err, out)
	}
}

func (o *operator) apply() *operator {
	o.t.Helper()
	o.Apply()
	return o
}

func (o *operator) look(n int) outslot.Seen {
	o.t.Helper()
	s, err := outslot.Look(o.Slot(n))
	if err != nil {
		o.t.Fatal(err)
	}
	return s
}

// host is everything the steps touch: the account files, the mount table's part
// that is ours, and the directory.
func (o *operator) host() string {
	o.t.Helper()
	var b strings.Builder
	for _, f := range []string{"passwd", "group", "shadow", "gshadow", "subuid", "subgid"} {
		text, err := os.ReadFile("/etc/" + f)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			o.t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, o.User) {
				fmt.Fprintf(&b, "%s: %s", f, line)
			}
		}
	}
	mounts, err := outslot.Mounts()
	if err != nil {
		o.t.Fatal(err)
	}
	for _, m := range mounts {
		if strings.HasPrefix(m.Path, o.Dir) {
			fmt.Fprintf(&b, "mount %s\n", m.Path)
		}
	}
	filepath.Walk(o.Dir, func(path string, st os.FileInfo, err error) error {
		if err == nil {
			fmt.Fprintf(&b, "%v %s\n", st.Mode(), path)
		}
		return nil
	})
	return b.String()
}

// degrade is what this machine cannot hold: neither storage nor launcher.
func degrade() []string { return []string{"--allow-degraded", "memory,cpu_rate,cpu_total"} }

func row(t *testing.T, r *harness.Run, name string) attest.Row {
	t.Helper()
	i := slices.IndexFunc(r.Result.Attestation, func(a attest.Row) bool { return a.Restriction == name })
	if i < 0 {
		t.Errorf("the attestation has no row %s", name)
		return attest.Row{}
	}
	return r.Result.Attestation[i]
}

// wantProvisioned wants the run's /out to have been a slot, shown by the kernel.
func wantProvisioned(t *testing.T, r *harness.Run) {
	t.Helper()
	for _, d := range r.Result.Degraded {
		if d.Dimension == "out_storage" || d.Dimension == "launcher_identity" {
			t.Errorf("%s is degraded: %s", d.Dimension, d.Instead)
		}
	}
	for _, name := range []string{"mount /out", "out-device", "out-owner", "out-unused", "out-lifetime", "out-emptied"} {
		if a := row(t, r, name); a.Grade != attest.KernelRead || a.Status != attest.Enforced {
			t.Errorf("%+v", a)
		}
	}
	if a := row(t, r, "mount /out"); !strings.HasPrefix(a.Shown, "tmpfs nsbox-out rw,nosuid,nodev,noexec size=") {
		t.Errorf("%+v", a)
	}
}

// TestFromNothingAndBack is the operator's whole story with the policy document as
// the specification has it.
func TestFromNothingAndBack(t *testing.T) {
	o := newOperator(t)
	before := o.host()
	script := o.want(o.Flags...)
	if o.host() != before || !strings.Contains(script, "useradd ") || !strings.Contains(script, "mount -t tmpfs -o size=8388608,nr_inodes=64,") {
		t.Fatalf("a plain run changed something or does not tell what it would do:\n%s", script)
	}
	o.refused(reason.ProvisionIncomplete, append([]string{"--check"}, o.Flags...)...)
	if out := o.apply().want("--apply"); strings.Contains(out, " made ") || o.host() == before {
		t.Errorf("again: %s", out)
	}
	made := o.host()
	o.want("--check")
	o.refused(reason.ProvisionForeign, "--apply", "--slots", "5")
	if o.host() != made {
		t.Error("a second run or a refusal changed something")
	}

	root, err := harness.Repository()
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.Join(root, "demo", "txhousing-by-city.csv"))
	if err != nil {
		t.Fatal(err)
	}
	s := harness.NewSite(t, o.Caller())
	data, program := s.Copy(filepath.Join(root, "demo", "txhousing.csv")), s.Copy(filepath.Join(root, "demo", "summarise.py"))
	for range 3 { // the slot of the first is the slot of the next
		folder := s.Folder()
		run := s.Run(harness.Job{Argv: []string{"python3", "/in/summarise.py"}, In: []string{data, program}, Deliver: folder, Bare: true, Flags: degrade()}).WantOK()
		wantProvisioned(t, run)
		if got, err := os.ReadFile(filepath.Join(folder, "summary.csv")); err != nil || string(got) != string(want) {
			t.Errorf("delivered %d bytes, %v", len(got), err)
		}
		if left := o.look(0).Left(); left != "" {
			t.Errorf("after the run the slot has %s", left)
		}
	}
	// What the program does to its /out does not last: a mode, an attribute, a tree.
	run := s.Run(harness.Job{Code: "import os\nos.setxattr('/out', 'user.a', b'b') if hasattr(os, 'setxattr') else None\n", Bare: true, Flags: degrade()})
	if run.Result.Workload.Outcome != launcher.Exited || run.Result.Cleanup.Outcome != launcher.CleanupVerified || o.look(0).Left() != "" {
		t.Errorf("%+v, left %q", run.Result.Workload, o.look(0).Left())
	}

	if r := s.Raw("doctor", "--json", "--state-dir", s.State); !strings.Contains(string(r.Stdout), o.Slot(1)+" (tmpfs, rw,nosuid,nodev,noexec") {
		t.Errorf("doctor does not name the slots: %s", r.Stderr)
	}
	o.want("--undo")
	if after := o.host(); after != before {
		t.Errorf("after --undo:\n%swant:\n%s", after, before)
	}
}

// TestOnlyWhatItMade: whatever is there already is refused and stays.
func TestOnlyWhatItMade(t *testing.T) {
	o := newOperator(t)
	mkdir := func() {
		if err := os.Mkdir(o.Dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	mkdir()
	if err := os.WriteFile(o.Dir+"/theirs", []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	o.refused(reason.ProvisionForeign, append([]string{"--apply"}, o.Flags...)...)
	o.refused(reason.ProvisionForeign, "--undo")
	if _, err := os.Stat(o.Dir + "/theirs"); err != nil {
		t.Error(err)
	}
	// A record that somebody else could have written is none.
	if err := errors.Join(os.WriteFile(o.Dir+"/provision.json", []byte("{}"), 0o666), os.Chmod(o.Dir+"/provision.json", 0o666)); err != nil {
		t.Fatal(err)
	}
	o.refused(reason.ProvisionForeign, "--undo")
	if err := os.RemoveAll(o.Dir); err != nil {
		t.Fatal(err)
	}
	// An account that others made: root's is one that every host has. Its name is
	// refused as such, and nobody's before anything of it is touched.
	for name, id := range map[string]reason.ID{"root": reason.ProvisionInvalid, "a b": reason.ProvisionInvalid, "nobody": reason.ProvisionForeign} {
		account, _ := os.ReadFile("/etc/passwd")
		o.refused(id, "--apply", "--user", name)
		if now, _ := os.ReadFile("/etc/passwd"); string(now) != string(account) {
			t.Fatalf("--user %s changed /etc/passwd", name)
		}
		if _, err := os.Lstat(o.Dir); err == nil {
			o.want("--undo") // the directory, which came first
		}
	}
	o.refused(reason.ProvisionInvalid, "--apply", "--user", o.User, "--slots", "65")
	if out, err := exec.Command(harness.Binary(t), "provision", "--dir", o.Dir+"/../x y", "--apply").CombinedOutput(); err == nil {
		t.Errorf("a directory with a blank: %s", out)
	}
	// Only root may; everybody may look.
	s := harness.NewSite(t, harness.Callers(t)[1])
	if r := s.Raw("provision", "--apply", "--dir", o.Dir); r.Status != launcher.ExitRefused || !strings.Contains(string(r.Stderr), string(reason.ProvisionNotRoot)) {
		t.Errorf("as a plain user: %d %s", r.Status, r.Stderr)
	}
	if r := s.Raw("provision", "--dir", o.Dir, "--user", o.User); r.Status != 0 {
		t.Errorf("as a plain user: %d %s", r.Status, r.Stderr)
	}
}

// TestASlotThatIsNotAsAsked: numbers, flags, owner and lifetime are the kernel's,
// and a slot that differs is never used, whatever else is allowed.
func TestASlotThatIsNotAsAsked(t *testing.T) {
	o := newOperator(t, "--slots", "1").apply()
	s := harness.NewSite(t, o.Caller())
	job := func(flags ...string) harness.Job {
		return harness.Job{Code: "print(1)", Bare: true, Flags: append(degrade(), flags...)}
	}
	wantProvisioned(t, s.Run(job()).WantOK())
	refused := func(what string, id reason.ID, flags ...string) {
		t.Helper()
		if r := s.Run(job(flags...)); r.Status != launcher.ExitRefused || r.Result.Reason == nil || r.Result.Reason.ID != id || len(r.Stdout) > 0 {
			t.Errorf("%s: status %d, %+v", what, r.Status, r.Result.Reason)
		}
		// Held storage is another thing, and needs its name.
		flags = append(flags, "--allow-degraded", "out_storage")
		if r := s.Run(job(flags...)); r.Status != 0 || !slices.ContainsFunc(r.Result.Degraded, func(d launcher.Degradation) bool { return d.Dimension == "out_storage" }) {
			t.Errorf("%s, allowed: status %d, %+v", what, r.Status, r.Result.Reason)
		}
	}
	remount := func(flags uintptr, data string) {
		t.Helper()
		if err := unix.Mount("nsbox-out", o.Slot(0), "", unix.MS_REMOUNT|flags, data); err != nil {
			t.Fatal(err)
		}
	}
	const closed = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	refused("a tighter policy", reason.OutSlotDiffers, "--limit", "out=4M")
	remount(closed, "size=16777216")
	refused("larger", reason.OutSlotDiffers)
	remount(closed, "size=8388608,nr_inodes=128")
	refused("more inodes", reason.OutSlotDiffers)
	remount(closed, "size=8388608,nr_inodes=64")
	remount(unix.MS_NOSUID|unix.MS_NODEV, "")
	refused("executable", reason.OutSlotDiffers)
	remount(closed, "")
	wantProvisioned(t, s.Run(job()).WantOK()) // control: all is as before

	record := outslot.RecordPath(o.Slot(0))
	text, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string, mode os.FileMode) {
		t.Helper()
		if err := errors.Join(os.WriteFile(record, []byte(text), 0o644), os.Chmod(record, mode)); err != nil {
			t.Fatal(err)
		}
	}
	write("boot another dev "+strings.Fields(string(text))[3]+"\n", 0o644)
	refused("of another boot", reason.OutLifetimeUnknown)
	write(string(text), 0o666)
	refused("written by anybody", reason.OutLifetimeUnknown)
	if err := os.Remove(record); err != nil {
		t.Fatal(err)
	}
	refused("without a record", reason.OutLifetimeUnknown)
	if out := o.want("--apply"); !strings.Contains(out, "slot 0                   made") {
		t.Errorf("the record was not made anew: %s", out)
	}
	wantProvisioned(t, s.Run(job()).WantOK())

	// out_storage provisioned takes no substitute; held takes no slot.
	shown := string(s.Raw("policy", "show", "sales-summary").Stdout)
	must := s.File("must.json", strings.Replace(shown, `"policy_id"`, `"out_storage": "provisioned", "policy_id"`, 1))
	held := s.File("held.json", strings.NewReplacer(`"policy_id"`, `"out_storage": "held", "policy_id"`,
		"per_job_host_dir_bound_at_/out_single_file_summary.csv_on_operator_provisioned_bounded_tmpfs", "per_job_tmpfs_at_/out_single_file_summary.csv_held_by_the_launcher").Replace(shown))
	with := func(policy string, flags ...string) *harness.Run {
		return s.Run(harness.Job{Code: "print(1)", PolicyArg: policy, Bare: true, Flags: append(degrade(), flags...)})
	}
	wantProvisioned(t, with(must).WantOK())
	if r := with(held).WantOK(); !strings.HasPrefix(row(t, r, "mount /out").Shown, "tmpfs rw,") {
		t.Errorf("held: %+v", row(t, r, "mount /out"))
	}
	if err := unix.Unmount(o.Slot(0), 0); err != nil {
		t.Fatal(err)
	}
	if r := with(must, "--allow-degraded", "out_storage"); r.Status != launcher.ExitRefused || r.Result.Reason.ID != reason.OutNotProvisioned {
		t.Errorf("must, unmounted: %d %+v", r.Status, r.Result.Reason)
	}
	with(held).WantOK()
	o.want("--apply") // as after a boot
	wantProvisioned(t, with(must).WantOK())
}

// inodes is a policy file of root's whose /out holds n inodes.
func inodes(t *testing.T, n int) string {
	t.Helper()
	return harness.NewSite(t, harness.Callers(t)[0]).Policy(harness.Set("out_inodes", n))
}
