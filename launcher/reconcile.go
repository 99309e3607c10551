package launcher

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"nsbox/launcher/journal"
	"nsbox/launcher/reason"
)

// ReconcileRequest asks for the cleaning of quarantined attempts and of what
// dead launchers left. An empty ID means all of them.
type ReconcileRequest struct {
	StateDir string
	ID       string
	DryRun   bool // say what would be done, do nothing
}

// Reconciliation is what was done about one attempt. Left is empty if nothing of
// it is left but its record.
type Reconciliation struct {
	Attempt string   `json:"attempt"`
	Was     string   `json:"was"` // AttemptInfo.State before
	Now     string   `json:"now"`
	Proof   string   `json:"proof"`
	Done    []string `json:"done"` // in a dry run: what would be done
	Left    []string `json:"left"`
}

const (
	reconcileStop    = 5 * time.Second
	reconcileCleanup = 10 * time.Second
)

// Reconcile is the operator's word that what an attempt left may go. It ends
// what is left of it through its identified job cgroup, proves the stop, removes
// what the journal names and what stands in the attempt's own directory, and
// compares again. The record itself (journal, streams, result, accepted copy)
// stays for gc. The error is a *reason.Error; the list is valid beside it.
func Reconcile(ctx context.Context, req ReconcileRequest) ([]Reconciliation, error) {
	s, err := existingState(req.StateDir)
	if err != nil {
		return nil, err
	}
	if req.ID != "" {
		if s, req.ID, err = s0(req.StateDir, req.ID); err != nil {
			return nil, err
		}
	}
	if s == nil {
		return nil, nil
	}
	p, err := hostProver()
	if err != nil {
		return nil, err
	}
	ids := []string{req.ID}
	if req.ID == "" {
		if ids, err = s.attemptIDs(); err != nil {
			return nil, err
		}
	}
	var all []Reconciliation
	var errs []error
	for _, id := range ids {
		was := s.info(id).State
		if was == AttemptClosed || req.ID == "" && was == AttemptRunning {
			continue
		}
		r, err := s.reconcile(ctx, p, id, was, req.DryRun)
		all, errs = append(all, r), append(errs, err)
	}
	return all, errors.Join(errs...)
}

// hostProver is a prover for a command that runs no attempt. A caller without a
// usable range has no slots, and then no proof from ids either.
func hostProver() (*prover, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, reason.Wrap(reason.HostFactsUnreadable, "/proc/sys/kernel/random/boot_id", "cannot be read", "run nsbox where /proc is mounted", err)
	}
	p := &prover{boot: strings.TrimSpace(string(boot))}
	p.slots, _ = openSlots(p.boot)
	return p, nil
}

func (s *state) reconcile(ctx context.Context, p *prover, id, was string, dry bool) (Reconciliation, error) {
	rec := Reconciliation{Attempt: id, Was: was, Now: was, Done: []string{}, Left: []string{}}
	left := func(id2 reason.ID, why string, err error) (Reconciliation, error) {
		rec.Left = append(rec.Left, logLine(err.Error()))
		return rec, reason.Wrap(id2, "attempt "+id, why, "nsbox attempts show "+id, err)
	}
	k, r, err := s.takeOver(id, dry)
	if errors.Is(err, errAlive) {
		return rec, reason.New(reason.AttemptRunning, "attempt "+id, "is running: its launcher is alive", "wait for it, or end it with Ctrl-C where it runs")
	}
	if err != nil {
		return left(reason.LeftoverUnreadable, "cannot be looked at", err)
	}
	defer func() {
		if dry || len(rec.Left) > 0 {
			k.keep()
		} else {
			_ = k.close()
		}
	}()
	if r.marker.Nonce != "" {
		if err := r.marker.same(s.path(id)); err != nil {
			return left(reason.AttemptForeign, "has another directory than the one that was made for it", err)
		}
	}
	if rec.Proof, err = s.stopForGood(ctx, p, r, &rec, dry); err != nil {
		return left(reason.StopUnproven, "is not proven to have stopped; everything is kept", err)
	}
	if dry {
		rec.Done = append(rec.Done, s.inventory(r)...)
		return rec, nil
	}
	if err := s.cleanUp(ctx, p, id, r, &rec); err != nil {
		s.quarantineFile(id, err.Error())
		s.auditAttempt("reconcile", s.told(id), "incomplete: "+err.Error())
		return left(reason.ReconcileIncomplete, "could not be cleaned up completely", err)
	}
	rec.Now = AttemptClosed
	s.auditAttempt("reconcile", s.told(id), rec.Proof)
	return rec, nil
}

// takeOver gets hold of an attempt: of its marker, or of one made anew where it
// has none, so that a crash in the middle leaves it findable.
func (s *state) takeOver(id string, dry bool) (*mark, *remains, error) {
	r, _ := s.remains(id)
	r.adopt(marker{})
	aside := s.path(id) + "/" + markerName
	if missing(s.open()+"/"+id) && !dry {
		err := privateDir(s.open())
		if err == nil && missing(aside) {
			m := r.marker
			m.Nonce = newNonce()
			if b, err := readRegular(s.path(id)+"/"+nonceName, 64); err == nil && len(b) > 16 {
				m.Nonce = strings.TrimSpace(string(b))
			}
			k, err := s.writeMark(s.path(id), m)
			if err == nil {
				r.adopt(k.marker)
			}
			// A full disk must not keep the operator from making room: go on without.
			return k, r, nil
		}
		if err == nil {
			err = os.Rename(aside, s.open()+"/"+id)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	k, err := s.seize(id)
	if errors.Is(err, fs.ErrNotExist) && dry {
		return nil, r, nil
	}
	if err != nil {
		return nil, nil, err
	}
	r.adopt(k.marker)
	return k, r, nil
}

// stopForGood ends the attempt's own job cgroup, found by its 64-bit id in this
// boot, and proves the stop.
func (s *state) stopForGood(ctx context.Context, p *prover, r *remains, rec *Reconciliation, dry bool) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, reconcileStop)
	defer cancel()
	if r.marker.Boot == p.boot && r.state.Has(journal.CgroupIntent) && !r.state.Has(journal.StopProved) {
		g, done, err := p.group(r)
		if err != nil {
			return "", err
		}
		if g != nil {
			defer done()
			rec.Done = append(rec.Done, "end every process in "+g.Path())
			if !dry {
				if err := g.Kill(); err != nil {
					return "", err
				}
			}
		}
	}
	if dry {
		short, stop := context.WithTimeout(ctx, lastLook)
		defer stop()
		by, err := p.prove(short, r)
		if err != nil {
			return "to be proven: " + logLine(err.Error()), nil
		}
		return by, nil
	}
	return p.prove(ctx, r)
}

// cleanUp journals its intent, removes, looks again, and journals the end. On a
// full disk the staged inputs go first: their making was journaled, their stop
// is proven, and without room nothing could be recorded.
func (s *state) cleanUp(ctx context.Context, p *prover, id string, r *remains, rec *Reconciliation) error {
	ctx, cancel := context.WithTimeout(ctx, reconcileCleanup)
	defer cancel()
	err := s.endJournal(id, r, rec)
	if err != nil {
		if free := removeIn(s.path(id), "in"); free != nil {
			return errors.Join(err, free)
		}
		if err = s.endJournal(id, r, rec); err != nil {
			return err
		}
	}
	rec.Done = append(rec.Done, s.inventory(r)...)
	if err := s.removeParts(ctx, p, id, r); err != nil {
		return err
	}
	if err := s.lookAgain(p, id, r); err != nil {
		return err
	}
	if err := s.appendEvent(id, journal.Reconciled, nil); err != nil {
		return err
	}
	return removeIn(s.path(id), "QUARANTINE")
}

// endJournal brings the journal to where a reconcile may begin. One that is not
// a journal is kept aside and begun anew.
func (s *state) endJournal(id string, r *remains, rec *Reconciliation) error {
	path := s.path(id) + "/journal"
	if !r.intact && !noRecords(path) {
		aside, err := setAside(path)
		if err != nil {
			return err
		}
		rec.Done = append(rec.Done, "keep the corrupt journal as "+aside)
		r.state, r.records = journal.State{}, nil
	}
	if !r.intact {
		if err := s.begin(id, r, rec.Proof); err != nil {
			return err
		}
	} else if err := s.settle(id, r, rec.Proof); err != nil {
		return err
	}
	fresh, note := s.remains(id)
	if !fresh.intact {
		return errors.New(note)
	}
	fresh.marker = r.marker
	*r = *fresh
	if r.state.Has(journal.Quarantined) && !r.state.Has(journal.Reconciled) {
		return s.appendEvent(id, journal.ReconcileIntent, nil)
	}
	return nil
}

func setAside(path string) (string, error) {
	for n := 1; n <= 1000; n++ {
		aside := fmt.Sprintf("%s.corrupt-%d", path, n)
		err := os.Link(path, aside) // never replaces
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		return aside, os.Remove(path)
	}
	return "", fmt.Errorf("%s has too many corrupt ones beside it", path)
}

func (s *state) appendEvent(id string, e journal.Event, data map[string]string) error {
	j, err := journal.Open(s.path(id) + "/journal")
	if err != nil {
		return err
	}
	if !j.State().Has(journal.Quarantined) {
		return j.Close() // closed and verified by its own launcher: there was nothing to reconcile
	}
	return errors.Join(j.Append(journal.Record{Event: e, Data: data}), j.Close())
}
