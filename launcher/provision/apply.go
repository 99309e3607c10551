package provision

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"nsbox/launcher/outslot"
	"nsbox/launcher/reason"
)

// Step is one line of a report.
type Step struct {
	Name     string   `json:"name"`
	Why      string   `json:"why"`
	State    State    `json:"state"`
	Shown    string   `json:"shown"`
	Commands []string `json:"commands"`
	Undo     []string `json:"undo"`
	Did      bool     `json:"did"` // the commands were run just now
}

// Recorded is the configuration that was applied in a directory, or nil.
func Recorded(dir string) (*Config, error) {
	r, err := readRecord(Config{Dir: dir}.recordPath())
	if r == nil {
		return nil, err
	}
	return &r.Config, err
}

// open reads the record and holds the configuration against it.
func open(c Config) (*record, host, error) {
	if err := c.validate(); err != nil {
		return nil, host{}, err
	}
	r, err := readRecord(c.recordPath())
	if err != nil {
		return nil, host{}, err
	}
	if r != nil && r.Config != c {
		return nil, host{}, reason.New(reason.ProvisionForeign, c.Dir, fmt.Sprintf("was provisioned for %s with %d slots of %d bytes and %d inodes", r.Config.User, r.Config.Slots, r.Config.Bytes, r.Config.Inodes),
			"ask for the same, name another --dir and --user, or --undo first")
	}
	return r, lookAround(c, r), nil
}

func (s step) report(h host) Step {
	out := Step{Name: s.name, Why: s.why, Commands: s.do, Undo: s.undo}
	if s.unneeded != "" {
		out.State, out.Shown, out.Commands, out.Undo = Unneeded, s.unneeded, []string{}, []string{}
		return out
	}
	out.State, out.Shown = s.check(h)
	return out
}

// Look says of every step what it would run and whether the host has it. It
// changes nothing.
func Look(c Config) ([]Step, error) {
	_, h, err := open(c)
	if err != nil {
		return nil, err
	}
	var out []Step
	for _, s := range table(c, h) {
		out = append(out, s.report(h))
	}
	return out, nil
}

// Apply makes what is missing, step by step, and believes a step only when its
// check does. What it did not make itself it refuses. The reports are valid
// beside an error.
func Apply(ctx context.Context, c Config) ([]Step, error) {
	if os.Geteuid() != 0 {
		return nil, reason.New(reason.ProvisionNotRoot, "nsbox provision --apply", "makes an account and mounts", "look at what it would run: nsbox provision; then run it as root")
	}
	r, h, err := open(c)
	if err != nil {
		return nil, err
	}
	if h.ids.Start == 0 {
		return nil, reason.New(reason.ProvisionStep, "subordinate ids", fmt.Sprintf("no %d ids are free below 600100000", h.ids.Count), "remove ranges of accounts that are gone from /etc/subuid and /etc/subgid")
	}
	steps := table(c, h)
	if why := binaryFault(c.Binary); why != "" && (h.systemd || h.apparmor && h.abi4 != "") {
		return nil, reason.New(reason.ProvisionInvalid, c.Binary, why, "install nsbox as root: install -m 0755 nsbox /usr/local/bin/nsbox")
	}
	defer unix.Umask(unix.Umask(0o022))
	var out []Step
	for i, s := range steps {
		if r == nil && i > 0 {
			return out, errors.New("the first step made no record")
		}
		did, err := s.apply(ctx, c, h, &r)
		out = append(out, did)
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

func (s step) apply(ctx context.Context, c Config, h host, r **record) (Step, error) {
	rep := s.report(h)
	if rep.State == Unneeded {
		return rep, nil
	}
	if *r == nil { // the directory itself: what is in it tells whose it is
		if names, err := os.ReadDir(c.Dir); rep.State != Missing && (rep.State != Done || err != nil || len(names) > 0) {
			return rep, foreign(c.Dir, "is there, and holds no record of nsbox provision", "name another --dir")
		}
		if err := run(ctx, s.name, s.do); err != nil {
			return rep, err
		}
		*r = &record{Schema: schema, Config: c, IDs: h.ids, Made: []string{}}
		rep.State = Missing
	}
	if !(*r).ours(s.name) && rep.State != Missing {
		return rep, foreign(s.name, "is there already, and was not made here: "+rep.Shown, "name another --user and --dir; nsbox does not take over what others made")
	}
	if slices.Contains((*r).Made, s.name) && rep.State == Done {
		return rep, nil
	}
	if slices.Contains((*r).Made, s.name) && rep.State == Differs {
		return rep, foreign(s.name, "was changed since it was made: "+rep.Shown, "put it back, or nsbox provision --undo --dir "+c.Dir)
	}
	(*r).Making = s.name
	if err := (*r).write(); err != nil {
		return rep, err
	}
	if err := run(ctx, s.name, s.do); err != nil {
		return rep, err
	}
	rep.Did = true
	if rep.State, rep.Shown = s.check(h); rep.State != Done {
		return rep, reason.New(reason.ProvisionStep, s.name, "was done, and the host does not show it: "+rep.Shown, "nsbox provision --undo --dir "+c.Dir)
	}
	(*r).Making = ""
	if !slices.Contains((*r).Made, s.name) {
		(*r).Made = append((*r).Made, s.name)
	}
	return rep, (*r).write()
}

// run runs commands with sh, in an environment of their own.
func run(ctx context.Context, name string, commands []string) error {
	for _, line := range commands {
		cmd := exec.CommandContext(ctx, "/bin/sh", "-e", "-c", line)
		cmd.Env, cmd.Dir = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}, "/"
		if said, err := cmd.CombinedOutput(); err != nil {
			first, _, _ := strings.Cut(line, "\n")
			return reason.Wrap(reason.ProvisionStep, name+": "+first, strings.Join(strings.Fields(string(said)), " "), "put right what it says and run the same command again; what was made stands in the record", err)
		}
	}
	return nil
}

// Undo takes back what the record of a directory says, last step first. It
// refuses, before anything is undone, while a slot is in use or keeps something,
// while the account runs processes, and while its home has records of attempts.
func Undo(ctx context.Context, dir string) ([]Step, error) {
	if os.Geteuid() != 0 {
		return nil, reason.New(reason.ProvisionNotRoot, "nsbox provision --undo", "removes an account and mounts", "run it as root")
	}
	r, err := readRecord(Config{Dir: dir}.recordPath())
	if err == nil && (r == nil || r.Config.Dir != dir) {
		err = foreign(dir, "has no record of nsbox provision, so nothing here was made by it", "name the directory with --dir")
	}
	if err != nil {
		return nil, err
	}
	h := lookAround(r.Config, r)
	locks, err := r.idle(h)
	defer func() {
		for _, l := range locks {
			l.Close()
		}
	}()
	if err != nil {
		return nil, err
	}
	var out []Step
	for _, s := range slices.Backward(table(r.Config, h)) {
		if !r.ours(s.name) {
			continue
		}
		if s.name == "directory" { // the record lies in it, and is all that may be left
			if err := os.Remove(r.Config.recordPath()); err != nil {
				return out, reason.Wrap(reason.ProvisionStep, r.Config.recordPath(), "cannot be removed", "", err)
			}
		}
		rep := s.report(h)
		if err := run(ctx, s.name, s.undo); err != nil {
			return append(out, rep), err
		}
		rep.Did = true
		if rep.State, rep.Shown = s.check(h); rep.State != Missing {
			return append(out, rep), reason.New(reason.ProvisionStep, s.name, "was undone, and the host still shows it: "+rep.Shown, "look at it, then run --undo again")
		}
		out = append(out, rep)
		if s.name == "directory" {
			break
		}
		r.Made = slices.DeleteFunc(r.Made, func(n string) bool { return n == s.name })
		r.Making = ""
		if err := r.write(); err != nil {
			return out, err
		}
	}
	return out, nil
}

// idle returns the locks of all slots, or why something may not be undone yet.
func (r *record) idle(h host) (locks []*os.File, err error) {
	busy := func(what, why, next string) ([]*os.File, error) {
		return locks, reason.New(reason.ProvisionInUse, what, why, next)
	}
	for n := range r.Config.Slots {
		path := r.Config.slot(n)
		if seen, err := outslot.Look(path); err == nil && seen.TmpFS && seen.UID == h.workload(n) && seen.Left() != "" {
			return busy("the slot "+path, "keeps what an attempt left in it: "+seen.Left(), "as "+r.Config.User+": nsbox reconcile; if the attempt's record is lost: nsbox reconcile --slot "+path)
		}
		f, err := os.OpenFile(outslot.LockPath(path), os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return busy(outslot.LockPath(path), err.Error(), "look at it")
		}
		locks = append(locks, f)
		l := unix.Flock_t{Type: unix.F_WRLCK}
		if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &l); err != nil {
			return busy("the slot "+path, "is in use by an attempt", "wait for it")
		}
	}
	u, err := user.Lookup(r.Config.User)
	if err != nil || !r.ours("account") {
		return locks, nil
	}
	if pid := processOf(u.Uid); pid != 0 {
		return busy("user "+r.Config.User, fmt.Sprintf("runs process %d", pid), "end it")
	}
	if names, _ := os.ReadDir(r.Config.home() + "/.local/state/nsbox/attempts"); len(names) > 0 {
		return busy(r.Config.home(), fmt.Sprintf("has the records of %d attempts", len(names)), "keep or delete "+r.Config.home()+"/.local/state/nsbox/attempts yourself")
	}
	return locks, nil
}

// processOf is one process of a user's, or 0.
func processOf(uid string) int {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		if st, err := os.Lstat(d); err == nil && strconv.FormatInt(ownerOf(st), 10) == uid {
			pid, _ := strconv.Atoi(filepath.Base(d))
			return pid
		}
	}
	return 0
}
