package launcher

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
	"golang.org/x/sys/unix"

	"nsbox/launcher/journal"
	"nsbox/launcher/policy"
	"nsbox/launcher/reason"
)

// What an attempt is to the commands about attempts.
const (
	AttemptRunning     = "RUNNING"     // its launcher is alive
	AttemptLeftover    = "LEFTOVER"    // its launcher died; the next start or reconcile closes it
	AttemptQuarantined = "QUARANTINED" // closed, and kept as it is until reconcile
	AttemptClosed      = "CLOSED"
)

// AttemptInfo is one attempt as its journal tells it. The outcome words are
// those of Result; a journal that ends before one of them leaves it empty.
type AttemptInfo struct {
	ID         string    `json:"id"`
	State      string    `json:"state"`
	Started    time.Time `json:"started"`
	Ended      time.Time `json:"ended,omitzero"` // last record; zero while it runs
	Workload   string    `json:"workload"`
	Artifact   string    `json:"artifact"`
	Cleanup    string    `json:"cleanup"`
	Delivery   string    `json:"delivery"`
	Path       string    `json:"path,omitempty"` // of the delivered artifact
	SHA256     string    `json:"sha256,omitempty"`
	Reconciled bool      `json:"reconciled"`
	Policy     string    `json:"policy"`        // digest
	For        string    `json:"for,omitempty"` // "doctor": nsbox's own run; empty: the caller's
	KeepDays   int       `json:"keep_days"`     // after its end, until gc may remove the record
	Dir        string    `json:"dir"`
	Open       []string  `json:"open"`           // intents without completion
	Note       string    `json:"note,omitempty"` // what is wrong with the record

	keepAudit int // days
}

// forWhom is the key of AttemptInfo.For in an attempt's first record.
const forWhom = "for"

// existingState opens a state directory without making one; nil if there is none.
func existingState(dir string) (*state, error) {
	if dir == "" {
		var err error
		if dir, err = defaultStateDir(); err != nil {
			return nil, err
		}
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, stateError(dir, err)
	}
	if missing(dir) || missing(dir+"/attempts") {
		return nil, nil
	}
	if err := heldByNobodyElse(dir, os.Geteuid()); err != nil {
		return nil, err
	}
	for _, d := range []string{dir, dir + "/attempts"} {
		if err := privateDir(d); err != nil {
			return nil, err
		}
	}
	return &state{dir}, nil
}

// Attempts lists every attempt of the state directory, oldest first.
func Attempts(stateDir string) ([]AttemptInfo, error) {
	s, err := existingState(stateDir)
	if s == nil {
		return nil, err
	}
	ids, err := s.attemptIDs()
	if err != nil {
		return nil, err
	}
	var all []AttemptInfo
	for _, id := range ids {
		all = append(all, s.info(id))
	}
	return all, nil
}

// Attempt looks at one attempt. result is its result.json, nil if there is none.
func Attempt(stateDir, id string) (info AttemptInfo, result json.RawMessage, err error) {
	s, id, err := s0(stateDir, id)
	if err != nil {
		return info, nil, err
	}
	data, err := readRegular(s.path(id)+"/result.json", maxResult)
	if err == nil && json.Valid(data) {
		result = data
	}
	return s.info(id), result, nil
}

// AttemptLog opens the kept bytes of one stream of an attempt.
func AttemptLog(stateDir, id string, stderr bool) (io.ReadCloser, error) {
	s, id, err := s0(stateDir, id)
	if err != nil {
		return nil, err
	}
	name := "stdout"
	if stderr {
		name = "stderr"
	}
	f, err := openRegular(s.path(id) + "/" + name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, reason.New(reason.AttemptUnknown, "attempt "+id, "has no kept "+name+": its program was never started, or its launcher died before keeping it", "nsbox attempts show "+id)
	}
	if err != nil {
		return nil, stateError(s.path(id)+"/"+name, err)
	}
	return f, nil
}

// s0 opens the state directory for one attempt that must be there, named by its
// id or by a beginning that no other has.
func s0(stateDir, given string) (s *state, id string, err error) {
	refused := func(why string) (*state, string, error) {
		return nil, "", reason.New(reason.AttemptUnknown, "attempt "+given, why, "nsbox attempts lists those that are")
	}
	const unknown = "is not recorded in this state directory"
	if s, err = existingState(stateDir); err != nil {
		return nil, "", err
	}
	if s == nil || given == "" {
		return refused(unknown)
	}
	if validID(given) {
		if missing(s.path(given)) {
			return refused(unknown)
		}
		return s, given, nil
	}
	ids, err := s.attemptIDs()
	if err != nil {
		return nil, "", err
	}
	ids = slices.DeleteFunc(ids, func(id string) bool { return !strings.HasPrefix(id, given) })
	switch len(ids) {
	case 0:
		return refused(unknown)
	case 1:
		return s, ids[0], nil
	}
	return refused(fmt.Sprintf("is the beginning of %d ids in this state directory", len(ids)))
}

// Orphans names the attempts whose launcher died and that no command has closed
// yet. A state directory that cannot be read names none; a run in it says why.
func Orphans(stateDir string) []string {
	s, err := existingState(stateDir)
	if s == nil || err != nil {
		return nil
	}
	ids, err := s.openMarks()
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(ids, func(id string) bool { return isLocked(s.open() + "/" + id) })
}

const maxResult = 64 << 20

func (s *state) path(id string) string { return s.dir + "/attempts/" + id }

func (s *state) attemptIDs() ([]string, error) {
	names, err := readNames(s.dir + "/attempts")
	if err != nil {
		return nil, stateError(s.dir+"/attempts", err)
	}
	names = slices.DeleteFunc(names, func(n string) bool { return !validID(n) })
	slices.Sort(names) // a ULID begins with the time
	return names, nil
}

// info is the attempt as a command shows it: its marker says whether its
// launcher lives.
func (s *state) info(id string) AttemptInfo {
	i := s.told(id)
	path := s.open() + "/" + id
	switch {
	case missing(path):
	case isLocked(path):
		i.State, i.Ended = AttemptRunning, time.Time{}
		if i.Path == "" {
			i.Delivery = ""
		}
	case i.State == AttemptClosed:
		i.State = AttemptLeftover // complete, and not yet taken out of open/
	}
	return i
}

// told folds the attempt's journal, marker or not. It never fails: what cannot
// be read is said in Note, and such an attempt counts as quarantined.
func (s *state) told(id string) AttemptInfo {
	r, note := s.remains(id)
	i := describe(r, note)
	i.ID, i.Dir, i.Started = id, s.path(id), idTime(id)
	i.State = AttemptClosed
	switch {
	case r.state.Has(journal.Reconciled):
	case len(r.records) == 0 && s.neverBegan(id):
		i.Workload, i.Artifact, i.Cleanup, i.Delivery = Unknown, ArtifactNotExamined, CleanupVerified, DeliveryNoArtifact
		i.Note = "its launcher died before anything was begun"
	case !r.intact || r.state.Has(journal.Quarantined) || !missing(s.path(id)+"/QUARANTINE"):
		i.State, i.Cleanup = AttemptQuarantined, CleanupQuarantined
		if !r.state.Has(journal.Delivered) { // which may stand where only its record failed
			i.Delivery = DeliveryBlocked
		}
	case !r.state.Has(journal.Outcome) || r.state.Has(journal.DeliverIntent) && i.Delivery == "":
		i.State = AttemptLeftover // and if it has no marker, the machine went down before that was on disk
	}
	return i
}

// neverBegan: only what is made before the marker is in the directory. An
// emptied journal has company.
func (s *state) neverBegan(id string) bool {
	names, err := readNames(s.path(id))
	return err == nil && !slices.ContainsFunc(names, func(n string) bool { return n != "journal" && n != nonceName && n != markerName })
}

// remains reads what is on disk of an attempt, without its marker. note says
// what is wrong with the journal.
func (s *state) remains(id string) (r *remains, note string) {
	r = &remains{marker: marker{Attempt: id}}
	recs, torn, err := journal.Read(s.path(id) + "/journal")
	if err == nil {
		r.state, err = journal.Replay(recs)
	}
	r.records, r.intact = recs, err == nil
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return r, "no journal"
	case err != nil:
		return r, err.Error()
	case len(recs) == 0:
		// Nothing begins before the first record is written, but a file that was
		// emptied looks the same.
		r.intact = false
		return r, "the journal is empty"
	case torn > 0:
		return r, "the journal ends in half a record"
	}
	return r, ""
}

// describe tells the outcome words from the journal alone; it is pure.
func describe(r *remains, note string) AttemptInfo {
	st := r.state
	i := AttemptInfo{
		Workload: st.Outcome(), Artifact: r.data(journal.Outcome, "artifact"), Cleanup: r.data(journal.Outcome, "cleanup"),
		Policy: r.data(journal.Attempt, "policy"), Reconciled: st.Has(journal.Reconciled), Open: []string{}, Note: note,
	}
	i.For = r.data(journal.Attempt, forWhom)
	if w := r.data(journal.Outcome, "workload"); w != "" {
		i.Workload = w
	}
	if i.Artifact == "" {
		i.Artifact = r.data(journal.CopyVerified, "artifact")
	}
	i.KeepDays, i.keepAudit = daysOf(r, keepResults, policy.DefaultRetention.ResultsDays), daysOf(r, keepAudit, policy.DefaultRetention.AuditDays)
	if i.Artifact == ArtifactAccepted {
		i.SHA256 = r.data(journal.CopyVerified, "sha256")
	}
	if n := len(r.records); n > 0 {
		i.Ended = r.records[n-1].Time
	}
	for _, e := range st.Open() {
		i.Open = append(i.Open, string(e))
	}
	switch {
	case st.Has(journal.Delivered):
		i.Delivery, i.Path = Delivered, r.data(journal.Delivered, "path")
	case st.Has(journal.Quarantined) || st.Has(journal.DeliverAbandoned):
		i.Delivery = DeliveryBlocked
	case st.Has(journal.Outcome) && !st.Has(journal.DeliverIntent):
		i.Delivery = deliveryOf(i.Artifact, i.Cleanup)
		if i.Delivery == "" && r.data(journal.Attempt, "deliver") == "" {
			i.Delivery = Delivered // nobody named a directory: the accepted copy stays in the attempt's
		} else if i.Delivery == "" {
			i.Delivery = DeliveryBlocked // its launcher died before delivering, and nobody else does it
		}
	}
	return i
}

func idTime(id string) time.Time {
	u, err := ulid.ParseStrict(id)
	if err != nil {
		return time.Time{}
	}
	return ulid.Time(u.Time()).UTC()
}

// openRegular opens a file of the state directory and nothing that would make
// the reader wait.
func openRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		f.Close()
		return nil, errors.Join(err, &fs.PathError{Op: "open", Path: path, Err: errors.New("not a regular file")})
	}
	return f, nil
}

func readRegular(path string, limit int64) ([]byte, error) {
	f, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}
