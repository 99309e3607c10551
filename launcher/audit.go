package launcher

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"nsbox/launcher/policy"
	"nsbox/launcher/reason"
)

// auditLine is one line of audit.log: the end of an attempt ("attempt"), the
// closing of a dead launcher's ("recovered"), a policy that is not the one of
// the attempt before ("policy"), a reconcile, a gc. Lines are only ever
// appended; gc alone rewrites the file, to drop lines past their time.
type auditLine struct {
	Time     time.Time `json:"time"`
	Event    string    `json:"event"`
	Attempt  string    `json:"attempt,omitempty"`
	Workload string    `json:"workload,omitempty"`
	Artifact string    `json:"artifact,omitempty"`
	Cleanup  string    `json:"cleanup,omitempty"`
	Delivery string    `json:"delivery,omitempty"`
	Path     string    `json:"path,omitempty"`
	Policy   string    `json:"policy,omitempty"`
	Was      string    `json:"was,omitempty"` // the policy before
	Reason   reason.ID `json:"reason,omitempty"`
	Note     string    `json:"note,omitempty"`
	KeepDays int       `json:"keep_days,omitempty"` // until gc may drop the line; 0: the default
}

// keep is how long the line stays.
func (l auditLine) keep() time.Duration {
	if l.KeepDays > 0 {
		return time.Duration(l.KeepDays) * day
	}
	return time.Duration(policy.DefaultRetention.AuditDays) * day
}

const (
	// A line is a fixed set of short words and one path; more than this is a fault.
	maxAuditLine = 8 << 10
	// How far back the last policy is looked for.
	auditTail = 64 << 10
)

func (s *state) auditPath() string { return s.dir + "/audit.log" }

// auditResult writes the line of an attempt that its own launcher ended, and the
// one before it if the policy is another than last time.
//
// runtime_log_bytes bounds all that nsbox itself logs of one attempt: these lines
// (limit) and what its exporter said, which is cut to what is left beside a longest
// line. Journal and result are no logs but the record itself: the journal holds a
// fixed set of events and nothing that a program chose, recovery rests on it, and a
// record cut short would be a lie.
func (s *state) auditResult(res Result, limit int64, keepDays int) error {
	l := auditLine{
		Event: "attempt", Attempt: res.Attempt, Workload: res.Workload.Outcome, Artifact: res.Artifact.Outcome,
		Cleanup: res.Cleanup.Outcome, Delivery: res.Delivery.Outcome, Path: res.Delivery.Path, Policy: res.Digests.Policy, KeepDays: keepDays,
	}
	if res.Reason != nil {
		l.Reason = res.Reason.ID
	}
	return s.audit(limit, l)
}

// auditAttempt writes a line told from a journal. Failing to is no reason to
// leave the attempt open.
func (s *state) auditAttempt(event string, i AttemptInfo, note string) {
	_ = s.audit(maxAuditLine, auditLine{
		Event: event, Attempt: i.ID, Workload: i.Workload, Artifact: i.Artifact, Cleanup: i.Cleanup,
		Delivery: i.Delivery, Path: i.Path, Policy: i.Policy, Note: logLine(note), KeepDays: i.keepAudit,
	})
}

// audit appends lines in one write, whole or not at all, after whatever a crash
// or a full disk left of the last one.
func (s *state) audit(limit int64, l auditLine) error {
	fail := func(err error) error {
		return reason.Wrap(reason.AuditWrite, s.auditPath(), "cannot be appended to", "free space in the state directory", err)
	}
	f, err := s.openAudit()
	if err != nil {
		return fail(err)
	}
	defer f.Close()
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return fail(err)
	}
	tail := make([]byte, min(end, auditTail))
	if _, err := f.ReadAt(tail, end-int64(len(tail))); err != nil && err != io.EOF {
		return fail(err)
	}
	var out bytes.Buffer
	if len(tail) > 0 && tail[len(tail)-1] != '\n' {
		out.WriteByte('\n')
	}
	l.Time = time.Now().UTC().Round(0)
	if was := lastPolicy(tail); l.ran() && was != l.Policy {
		change := auditLine{Time: l.Time, Event: "policy", Attempt: l.Attempt, Policy: l.Policy, Was: was, KeepDays: l.KeepDays}
		if err := encodeLine(&out, change); err != nil {
			return fail(err)
		}
	}
	if err := encodeLine(&out, l); err != nil {
		return fail(err)
	}
	if int64(out.Len()) > min(limit, maxAuditLine) {
		return fail(unix.EFBIG)
	}
	if _, err := f.Write(out.Bytes()); err != nil {
		_ = f.Truncate(end)
		return fail(err)
	}
	return nil
}

func encodeLine(to *bytes.Buffer, l auditLine) error {
	data, err := json.Marshal(l)
	to.Write(append(data, '\n'))
	return err
}

// ran: the line is about an attempt that was made under its policy just then.
func (l auditLine) ran() bool {
	return l.Policy != "" && (l.Event == "attempt" || l.Event == "recovered")
}

// lastPolicy is the digest of the last attempt in the tail of the log.
func lastPolicy(tail []byte) string {
	lines := bytes.Split(tail, []byte("\n"))
	for i := len(lines) - 1; i >= 0; i-- {
		var l auditLine
		if json.Unmarshal(lines[i], &l) == nil && l.ran() {
			return l.Policy
		}
	}
	return ""
}

// openAudit opens and locks the log: attempts that run side by side, and gc,
// which puts another file in its place, must not write into each other.
func (s *state) openAudit() (*os.File, error) {
	for {
		f, err := os.OpenFile(s.auditPath(), os.O_RDWR|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
			f.Close()
			if err == unix.EINTR { // the Go runtime's own signals do that
				continue
			}
			return nil, err
		}
		var st unix.Stat_t
		if unix.Fstat(int(f.Fd()), &st) == nil && st.Nlink > 0 {
			return f, nil
		}
		f.Close() // replaced while we waited
	}
}
