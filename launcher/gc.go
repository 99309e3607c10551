package launcher

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"nsbox/launcher/reason"
)

// Retention says how long records are kept after an attempt has ended.
type Retention struct {
	Results time.Duration // attempts' directories
	Audit   time.Duration // lines of the audit log
}

// DefaultRetention is 14 days for results and 90 for the audit log.
func DefaultRetention() Retention {
	const day = 24 * time.Hour
	return Retention{Results: 14 * day, Audit: 90 * day}
}

// Collected is what gc removed, or would remove.
type Collected struct {
	Attempts   []string `json:"attempts"`
	AuditLines int      `json:"audit_lines"`
	Temporary  []string `json:"temporary"` // half-written files of killed launchers, in nsbox's own directories
}

// tempAge is far above the time any file of nsbox's takes to be written.
const tempAge = time.Hour

// Collect removes the records of closed attempts that are past their time.
// Attempts that run, are left over or quarantined are never touched. The error
// is a *reason.Error; what was collected is valid beside it.
func Collect(stateDir string, keep Retention, now time.Time, dry bool) (Collected, error) {
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
		if i.State != AttemptClosed || !endOf(i).Before(now.Add(-keep.Results)) {
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
	c.AuditLines, auditErr = s.trimAudit(now.Add(-keep.Audit), dry)
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

// trimAudit drops lines older than the given time; a line without a readable
// time is kept.
func (s *state) trimAudit(before time.Time, dry bool) (int, error) {
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
		if json.Unmarshal(line, &l) == nil && !l.Time.IsZero() && l.Time.Before(before) {
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
