package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"nsbox/launcher/journal"
	"nsbox/launcher/reason"
)

// Leftover is an attempt of a dead launcher that a later command closed.
type Leftover struct {
	Attempt string `json:"attempt"`
	Proof   string `json:"proof"` // how its stop was proven
	Note    string `json:"note,omitempty"`
}

// endGrace is how long a start waits for what is just ending: the box of a
// launcher that was killed a moment ago goes down by itself within milliseconds.
const endGrace = 2 * time.Second

// dyingGrace is how long it waits for what was killed already: nothing but the
// kernel's own work is left of it, and a machine may be busy.
const dyingGrace = 20 * time.Second

// recoverLeftovers closes what dead launchers left open in this state directory.
// The caller holds a place (enter). An attempt whose stop is proven is closed as
// UNKNOWN and quarantined, and is no hindrance; one whose stop is not proven is
// quarantined too, stays open, and is the error: QuarantinedLeftover. One that
// died while delivering, everything else proven, is closed as what it came to,
// and its half-made copy removed; nothing else is ended, removed or run again.
func (s *state) recoverLeftovers(ctx context.Context, p *prover) ([]Leftover, error) {
	ids, err := s.openMarks()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, endGrace)
	defer cancel()
	var closed []Leftover
	var errs []error
	for _, id := range ids {
		l, err := s.recoverOne(ctx, p, id)
		if err != nil {
			errs = append(errs, err)
		} else if l != nil {
			closed = append(closed, *l)
		}
	}
	return closed, errors.Join(errs...)
}

func (s *state) recoverOne(ctx context.Context, p *prover, id string) (*Leftover, error) {
	k, err := s.seize(id)
	if errors.Is(err, errAlive) || errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, reason.Wrap(reason.LeftoverUnreadable, s.open()+"/"+id, "cannot be looked at", "nsbox reconcile "+id, err)
	}
	if missing(s.path(id)) {
		// The marker is made after the directory; only a hand removes the latter alone.
		return nil, k.close()
	}
	r, note := s.remains(id)
	r.adopt(k.marker)
	by, err := p.prove(ctx, r)
	if err != nil {
		_ = s.settle(id, r, "") // as far as it goes: the attempt shows as quarantined
		k.keep()
		return nil, reason.Wrap(reason.QuarantinedLeftover, "attempt "+id, "was left by a launcher that died, and its end is not proven", "nsbox reconcile "+id, err)
	}
	foreign := k.same(s.path(id))
	if foreign == nil {
		err = s.settle(id, r, by)
	}
	if err == nil && foreign == nil && r.state.Has(journal.CleanupVerified) {
		err = r.removeTemp()
	}
	if err = errors.Join(foreign, err); err != nil {
		// The stop is proven, so it stands in nobody's way; what it is stays open.
		s.quarantineFile(id, err.Error())
		k.keep()
		return &Leftover{id, by, err.Error()}, nil
	}
	info := s.told(id)
	s.auditAttempt("recovered", info, by)
	return &Leftover{id, by, note}, k.end(s.path(id), info.State == AttemptClosed)
}

// quarantineFile marks the attempt by another path than its journal.
func (s *state) quarantineFile(id, why string) {
	_ = os.WriteFile(s.path(id)+"/QUARANTINE", []byte(logLine(why)+"\n"), 0o600)
}

// settle brings the journal to an end: what is proven (by) and what is not. A
// journal that is none is left as it is for reconcile, and marked beside it.
func (s *state) settle(id string, r *remains, by string) error {
	path := s.path(id) + "/journal"
	if !r.intact && noRecords(path) {
		return s.begin(id, r, by)
	}
	if !r.intact {
		s.quarantineFile(id, "the journal is corrupt")
		return nil
	}
	j, err := journal.Open(path)
	if err != nil {
		return reason.Wrap(reason.JournalWrite, path, "cannot be brought to an end", "free space in the state directory, then nsbox reconcile "+id, err)
	}
	return s.finishJournal(j, id, r, by)
}

// noRecords: missing, or without a whole record though it is a journal.
func noRecords(path string) bool {
	recs, _, err := journal.Read(path)
	return len(recs) == 0 && (err == nil || errors.Is(err, fs.ErrNotExist))
}

// begin makes a journal for an attempt that has none.
func (s *state) begin(id string, r *remains, by string) error {
	path := s.path(id) + "/journal"
	j, err := journal.Create(path)
	if errors.Is(err, fs.ErrExist) {
		j, err = journal.Open(path)
	}
	if err != nil {
		return reason.Wrap(reason.JournalWrite, path, "cannot be made anew", "free space in the state directory, then nsbox reconcile "+id, err)
	}
	return s.finishJournal(j, id, r, by)
}

func (s *state) finishJournal(j *journal.Journal, id string, r *remains, by string) error {
	err := finish(j, closing(j.State(), r, by, s.published(r)))
	err = errors.Join(err, j.Close())
	if err != nil {
		return reason.Wrap(reason.JournalWrite, s.path(id)+"/journal", "cannot be brought to an end", "free space in the state directory, then nsbox reconcile "+id, err)
	}
	s.keepUnknown(id)
	return nil
}

func finish(j *journal.Journal, recs []journal.Record) error {
	for _, rec := range recs {
		var err error
		if rec.Event == journal.Terminal {
			_, err = j.Terminal(Unknown, rec.Data)
		} else {
			err = j.Append(rec)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// closing lists the records that end an attempt of a dead launcher whose journal
// has come to st. by is the stop proof, "" if there is none; at says where the
// artifact was found published, if delivery had begun. It is pure.
func closing(st journal.State, r *remains, by, at string) []journal.Record {
	var recs []journal.Record
	add := func(e journal.Event, data map[string]string) {
		if !st.Has(e) {
			recs = append(recs, journal.Record{Event: e, Data: data})
		}
	}
	add(journal.Attempt, map[string]string{"attempt": r.marker.Attempt, "boot": r.marker.Boot, "deliver": r.marker.Deliver})
	add(journal.Terminal, map[string]string{"why": "the launcher died"})
	if !st.Has(journal.StopProved) {
		recs = append(recs, journal.Record{Event: journal.StopIntent})
		if by != "" {
			add(journal.StopProved, map[string]string{"by": by})
		}
	}
	if by != "" && st.Has(journal.ExporterIntent) {
		add(journal.ExporterStopped, map[string]string{"by": by})
	}
	cleanup := CleanupVerified
	if !st.Has(journal.CleanupVerified) {
		cleanup = CleanupQuarantined
		add(journal.Quarantined, map[string]string{"why": "the launcher died"})
	}
	workload, artifact := st.Outcome(), r.data(journal.CopyVerified, "artifact")
	if workload == "" {
		workload = Unknown
	}
	if artifact == "" {
		artifact = ArtifactNotExamined
	}
	add(journal.Outcome, map[string]string{"workload": workload, "artifact": artifact, "cleanup": cleanup})
	if st.Has(journal.DeliverIntent) && !st.Has(journal.Delivered) && !st.Has(journal.DeliverAbandoned) {
		if at != "" {
			add(journal.Delivered, map[string]string{"path": at})
		} else {
			add(journal.DeliverAbandoned, map[string]string{"why": "the launcher died"})
		}
	}
	return recs
}

// published is the path at which a delivery that had begun is complete: the
// publication is one rename, so what was accepted is there with its bytes or it
// is not.
func (s *state) published(r *remains) string {
	if !r.state.Has(journal.DeliverIntent) {
		return ""
	}
	dir, name, want := r.data(journal.DeliverIntent, "dir"), r.data(journal.DeliverIntent, "name"), r.data(journal.CopyVerified, "sha256")
	if dir == "" || name == "" || want == "" || strings.Contains(name, "/") {
		return ""
	}
	at := dir + "/" + name
	if r.data(journal.CopyVerified, "manifest") == "" {
		if !hasDigest(at, want) {
			return ""
		}
		return at
	}
	m, err := readManifest(s.path(r.marker.Attempt), want)
	if err != nil || len(m.Files) == 0 {
		return ""
	}
	for _, f := range m.Files {
		if !hasDigest(at+"/"+f.Name, f.SHA256) {
			return ""
		}
	}
	return at
}

// hasDigest: path is a file with that content.
func hasDigest(path, want string) bool {
	f, err := openRegular(path)
	if err != nil {
		return false
	}
	f.Close()
	_, got, err := hashFile(path)
	return err == nil && got == want
}

// keepUnknown leaves a result in the attempt's directory if its launcher did not
// get to it. The journal says the same, so a full disk loses nothing.
func (s *state) keepUnknown(id string) {
	path := s.path(id) + "/result.json"
	names, _ := readNames(s.path(id))
	for _, n := range names {
		if strings.HasPrefix(n, ".result.json") { // of a launcher that died while writing
			_ = os.Remove(s.path(id) + "/" + n)
		}
	}
	if !missing(path) {
		return
	}
	i := s.told(id)
	res := newResult()
	res.Attempt, res.Started, res.ExitStatus = id, i.Started, ExitRefused
	res.Workload = WorkloadResult{Outcome: i.Workload, Detail: "the launcher died; told from the journal"}
	res.Artifact.Outcome, res.Artifact.SHA256 = i.Artifact, i.SHA256
	res.Cleanup.Outcome = i.Cleanup
	res.Delivery = DeliveryResult{Outcome: i.Delivery, Path: i.Path}
	res.Digests.Policy = i.Policy
	res.Reason = asReason(reason.New(reason.QuarantinedLeftover, "attempt "+id, "was closed by a later command, since its launcher had died", "nsbox attempts show "+id))
	if data, err := json.Marshal(res); err == nil {
		_ = renameio.WriteFile(path, data, 0o600, renameio.WithTempDir(s.path(id)))
	}
}

// logLine makes text fit a line of a log.
func logLine(text string) string { return strings.Join(strings.Fields(text), " ") }
