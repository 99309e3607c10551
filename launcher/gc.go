package launcher

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"nsbox/launcher/journal"
	"nsbox/launcher/reason"
)

// Keys of the attempt's first record: for how many days its policy keeps what is
// recorded of it. They go with the attempt, since gc has no policy.
const (
	keepResults = "keep_results_days"
	keepAudit   = "keep_audit_days"
)

const day = 24 * time.Hour

// daysOf is a number of days of the first record, or what holds without one.
func daysOf(r *remains, key string, otherwise int) int {
	if n, err := strconv.Atoi(r.data(journal.Attempt, key)); err == nil && n > 0 {
		return n
	}
	return otherwise
}

// Collected is what gc removed, or would remove.
type Collected struct {
	Attempts   []string `json:"attempts"`
	AuditLines int      `json:"audit_lines"`
	Temporary  []string `json:"temporary"` // half-written files of killed launchers, in nsbox's own directories
}

// tempAge is far above the time any file of nsbox's takes to be written.
const tempAge = time.Hour

// Collect removes the records of closed attempts that are past the time which
// the policy they ran under gives them. Attempts that run, are left over or quarantined are never touched. The error
// is a *reason.Error; what was collected is valid beside it.
func Collect(stateDir string, now time.Time, dry bool) (Collected, error) {
	c := Collected{Attempts: []string{}, Temporary: []string{}}
	s, err := existingState(stateDir)
	if s == nil {
		return c, err
	}
	ids, err := s.attemptIDs()
	if err != nil {
		return c, err
	}
	errs := []error{s.emptyTrash(dry)}
	for _, id := range ids {
		i := s.info(id)
		if i.State != AttemptClosed || !endOf(i).Before(now.Add(-time.Duration(i.KeepDays)*day)) {
			continue
		}
		if !dry {
			if err := s.discard(id); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		c.Attempts = append(c.Attempts, id)
	}
	var auditErr error
	c.AuditLines, auditErr = s.trimAudit(now, dry)
	c.Temporary = s.sweepTemporary(now.Add(-tempAge), dry)
	if len(c.Attempts)+c.AuditLines > 0 && !dry {
		errs = append(errs, s.audit(maxAuditLine, auditLine{Event: "gc", Note: collectedNote(c)}))
	}
	if err := errors.Join(append(errs, auditErr)...); err != nil {
		return c, reason.Wrap(reason.CollectFailed, s.dir, "not everything past its time could be removed", "look at what is named, and run nsbox gc again", err)
	}
	return c, nil
}

func collectedNote(c Collected) string {
	data, _ := json.Marshal(map[string]int{"attempts": len(c.Attempts), "audit_lines": c.AuditLines})
	return string(data)
}

func endOf(i AttemptInfo) time.Time {
	if i.Ended.IsZero() {
		return i.Started
	}
	return i.Ended
}

func (s *state) trash() string { return s.dir + "/trash" }

// discard moves the record out of attempts/ in one act and then removes it: a
// gc that is killed half-way must not leave an attempt without its journal.
func (s *state) discard(id string) error {
	if err := privateDir(s.trash()); err != nil {
		return err
	}
	if err := os.Rename(s.path(id), s.trash()+"/"+id); err != nil {
		return err
	}
	return removeIn(s.trash(), id)
}

func (s *state) emptyTrash(dry bool) error {
	if dry || missing(s.trash()) {
		return nil
	}
	names, err := readNames(s.trash())
	errs := []error{err}
	for _, n := range names {
		errs = append(errs, removeIn(s.trash(), n))
	}
	return errors.Join(errs...)
}

// trimAudit drops lines that are past their time now; a line without a readable
// time is kept.
func (s *state) trimAudit(now time.Time, dry bool) (int, error) {
	if missing(s.auditPath()) {
		return 0, nil
	}
	f, err := s.openAudit()
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var kept bytes.Buffer
	dropped := 0
	for r := bufio.NewReader(f); ; {
		line, err := r.ReadBytes('\n')
		var l auditLine
		if json.Unmarshal(line, &l) == nil && !l.Time.IsZero() && l.Time.Before(now.Add(-l.keep())) {
			dropped++
		} else {
			kept.Write(line)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return 0, err
		}
	}
	if dropped == 0 || dry {
		return dropped, nil
	}
	// Writers wait for the lock on the old file and then see that it has no name any more.
	return dropped, renameio.WriteFile(s.auditPath(), kept.Bytes(), 0o600, renameio.WithTempDir(s.dir))
}

// sweepTemporary removes what atomic writes of killed launchers left.
func (s *state) sweepTemporary(before time.Time, dry bool) []string {
	found := []string{}
	for _, dir := range []string{s.dir, s.cache()} {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			info, err := e.Info()
			if err != nil || !e.Type().IsRegular() || !strings.HasPrefix(e.Name(), ".") || info.ModTime().After(before) {
				continue
			}
			if dry || os.Remove(dir+"/"+e.Name()) == nil {
				found = append(found, dir+"/"+e.Name())
			}
		}
	}
	return found
}
