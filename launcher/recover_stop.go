package launcher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"nsbox/cgroupv2"
	"nsbox/launcher/journal"
	"nsbox/launcher/probe"
)

// prover shows that nothing of a dead launcher's attempt runs any more. Stored
// process ids prove nothing and are neither kept nor used.
type prover struct {
	boot  string         // of this host, now
	root  *cgroupv2.Root // already open, or nil
	slots *slots         // of this account, or nil
}

// remains is what is known of an attempt whose launcher is dead.
type remains struct {
	marker  marker
	state   journal.State
	records []journal.Record
	intact  bool // the journal reads without an error
}

// adopt takes what the marker says, and fills what it does not say from the
// journal's first record.
func (r *remains) adopt(m marker) {
	m.Attempt = r.marker.Attempt
	if m.Boot == "" {
		m.Boot = r.data(journal.Attempt, "boot")
	}
	if m.IDs == nil {
		if ids, err := parseSlot(r.data(journal.Attempt, "ids")); err == nil {
			m.IDs = &ids
		}
	}
	if m.Out == nil {
		m.Out = parseOutRef(r.data(journal.Attempt, "out"))
	}
	r.marker = m
}

// slotText and parseSlot carry a slot's ids through the journal.
func slotText(s probe.Slot) string {
	return fmt.Sprintf("%d:%d %d:%d %d:%d %d:%d", s.Root.UID, s.Root.GID, s.Workload.UID, s.Workload.GID, s.ExportRoot.UID, s.ExportRoot.GID, s.Exporter.UID, s.Exporter.GID)
}

func parseSlot(text string) (s probe.Slot, err error) {
	_, err = fmt.Sscanf(text, "%d:%d %d:%d %d:%d %d:%d", &s.Root.UID, &s.Root.GID, &s.Workload.UID, &s.Workload.GID, &s.ExportRoot.UID, &s.ExportRoot.GID, &s.Exporter.UID, &s.Exporter.GID)
	return s, err
}

// data is a value of the last record of event e.
func (r *remains) data(e journal.Event, key string) string { return dataOf(r.records, e, key) }

func dataOf(records []journal.Record, e journal.Event, key string) string {
	for i := len(records) - 1; i >= 0; i-- {
		if records[i].Event == e {
			return records[i].Data[key]
		}
	}
	return ""
}

// prove returns how the stop is proven, or why it is not. It waits until ctx is
// done for processes that are just ending, and ends none itself.
func (p *prover) prove(ctx context.Context, r *remains) (by string, err error) {
	switch {
	case r.marker.Boot != "" && r.marker.Boot != p.boot:
		return "lost_by_reboot", nil
	case r.intact && !r.state.Has(journal.BoxIntent):
		return "no box was started", nil
	case r.intact && r.state.Has(journal.StopProved) && !r.mayBeWiping() && (!r.state.Has(journal.ExporterIntent) || r.state.Has(journal.ExporterStopped)):
		return "recorded earlier", nil
	}
	var shown []string
	inGroup := r.state.Has(journal.CgroupIntent) || !r.intact && r.marker.Cgroup != ""
	if inGroup {
		how, err := p.groupEmpty(ctx, r)
		if err != nil {
			return "", err
		}
		shown = append(shown, how)
	}
	// The exporter's box is not in the job cgroup.
	exporting := !r.intact || r.state.Has(journal.ExporterIntent) && !r.state.Has(journal.ExporterStopped)
	if !inGroup || exporting || r.mayBeWiping() {
		if r.marker.IDs == nil || p.slots == nil && !r.marker.IDs.Shared() {
			return "", errors.New("neither a job cgroup nor exclusive ids show who belongs to it")
		}
		if err := p.slots.vacant(ctx, *r.marker.IDs, r.marker.Exe, r.marker.Attempt); err != nil {
			return "", err
		}
		shown = append(shown, "no process has the attempt's ids")
	}
	return strings.Join(shown, ", "), nil
}

// groupEmpty: the job cgroup is gone or the kernel shows no process in it.
func (p *prover) groupEmpty(ctx context.Context, r *remains) (string, error) {
	g, done, err := p.group(r)
	if err != nil {
		return "", err
	}
	if g == nil {
		return "the job cgroup is gone", nil
	}
	defer done()
	err = g.WaitEmpty(ctx)
	if kind(err) == cgroupv2.Busy && awaitGone(ctx, dyingGrace, func() ([]holder, error) { return members(g.Path()) }) == nil {
		short, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		err = g.WaitEmpty(short)
	}
	if err != nil {
		return "", err
	}
	return "the job cgroup is empty", nil
}

// members are the processes in a job cgroup that have not ended.
func members(group string) ([]holder, error) {
	var found []holder
	for _, leaf := range []string{"", "/box", "/work"} {
		text, err := os.ReadFile(group + leaf + "/cgroup.procs")
		if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
			return nil, err
		}
		for _, pid := range numbers(strings.Fields(string(text))) {
			found = append(found, holderAt(int(pid)))
		}
	}
	return found, nil
}

// group reaches the attempt's job cgroup; nil if it is gone. done closes it.
func (p *prover) group(r *remains) (g *cgroupv2.Group, done func(), err error) {
	where := r.data(journal.CgroupIntent, "root")
	if where == "" {
		where = r.marker.Cgroup
	}
	if where == "" {
		return nil, nil, nil
	}
	var id uint64
	if text := r.data(journal.CgroupMade, "id"); text != "" {
		if id, err = strconv.ParseUint(text, 10, 64); err != nil {
			return nil, nil, fmt.Errorf("the journal's cgroup id %q is no number", text)
		}
	} else if id, err = idByName(filepath.Join(where, "nsbox-"+r.marker.Attempt)); id == 0 {
		return nil, nil, err // died between intent and record; the name holds the attempt's 80 random bits
	}
	root, own := p.root, false
	if root == nil || root.Path() != where {
		root, err = cgroupv2.Find(where)
		if kind(err) == cgroupv2.NotACgroup && missing(where) {
			return nil, nil, nil
		}
		if err != nil {
			return nil, nil, err
		}
		own = true
	}
	closeRoot := func() {
		if own {
			root.Close()
		}
	}
	g, err = root.Open(r.marker.Attempt, id)
	if err != nil {
		closeRoot()
		if kind(err) == cgroupv2.Gone {
			err = nil
		}
		return nil, nil, err
	}
	return g, func() { g.Close(); closeRoot() }, nil
}

func kind(err error) cgroupv2.Kind {
	var e *cgroupv2.Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return ""
}

func missing(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, os.ErrNotExist)
}

// idByName is the cgroup's id, 0 without an error if there is none of that name.
func idByName(dir string) (uint64, error) {
	var st unix.Stat_t
	err := unix.Lstat(dir, &st)
	if err == unix.ENOENT || err == unix.ENOTDIR {
		return 0, nil
	}
	return st.Ino, err
}
