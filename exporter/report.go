package exporter

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Verdicts of a Report.
const (
	Accepted = "ACCEPTED"
	Empty    = "EMPTY"
	Rejected = "REJECTED"
)

// MaxReport bounds the report line in bytes, its line feed included. It fits an
// empty pipe, so the stage never waits for the launcher.
const MaxReport = 64 << 10

const (
	maxFindings   = 64
	maxNameText   = 128
	maxDetailText = 160
	digestPrefix  = "sha256:"
)

// Report is the stage's one line. Files is set only if Verdict is ACCEPTED,
// Reasons only if it is REJECTED.
type Report struct {
	Verdict string    `json:"verdict"`
	Reasons []Finding `json:"reasons"`
	Omitted int       `json:"omitted"` // findings beyond the first 64
	Entries int       `json:"entries"` // entries of /out that were seen
	Files   []File    `json:"files"`   // the manifest, in the order of allowed_names

	// The one file of an export that has one. They are not in the line; a reader of
	// Files does not need them.
	Name   string `json:"-"`
	Bytes  int64  `json:"-"`
	Rows   int64  `json:"-"`
	SHA256 string `json:"-"`
}

// File is one accepted file. Its bytes are in the staging file of the same index.
type File struct {
	Name   string   `json:"name"`
	Type   string   `json:"type"`
	Bytes  int64    `json:"bytes"`
	Rows   int64    `json:"rows"`   // CSV records or lines of text; 0 for other types
	SHA256 string   `json:"sha256"` // "sha256:" and hex
	Source identity `json:"source"` // equal before and after the copy
}

// Finding is one cause of a rejection. Name is escaped ASCII, at most 128 bytes,
// and empty if the finding is not about one entry; Detail is one line of ASCII
// and carries no content.
type Finding struct {
	Code   string `json:"code"`   // an artifact reason code
	Name   string `json:"name"`   // of the entry in /out
	Detail string `json:"detail"` // where or how much, without content
}

// Codes returns the codes of all listed findings, each once, in order.
func (r Report) Codes() []string {
	var codes []string
	for _, f := range r.Reasons {
		if !slices.Contains(codes, f.Code) {
			codes = append(codes, f.Code)
		}
	}
	return codes
}

func (r *Report) add(code, name, detail string) {
	if len(r.Reasons) == maxFindings {
		r.Omitted++
		return
	}
	r.Reasons = append(r.Reasons, Finding{code, escape(name, maxNameText), escape(detail, maxDetailText)})
}

// escape keeps printable ASCII and writes any other byte as \xNN, a backslash as
// \\. What does not fit into most bytes is cut and marked.
func escape(s string, most int) string {
	const mark = "..."
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		piece := s[i : i+1]
		switch c := s[i]; {
		case c == '\\':
			piece = `\\`
		case c < ' ' || c > '~':
			piece = fmt.Sprintf(`\x%02x`, c)
		}
		if b.Len()+len(piece) > most-len(mark) {
			return b.String() + mark
		}
		b.WriteString(piece)
	}
	return b.String()
}

func (r Report) encode() ([]byte, error) {
	if r.Reasons == nil {
		r.Reasons = []Finding{}
	}
	if r.Files == nil {
		r.Files = []File{}
	}
	line, err := json.Marshal(r)
	return append(line, '\n'), err
}

// DecodeReport reads the stage's line as coming from a process that may lie. It
// accepts only the exact bytes the stage would write for the same values, known
// words, and values that are possible under b.
func DecodeReport(line []byte, b Bounds) (Report, error) {
	if len(line) > MaxReport {
		return Report{}, fmt.Errorf("exporter report: larger than %d bytes", MaxReport)
	}
	var r Report
	if err := json.Unmarshal(line, &r); err != nil {
		return Report{}, fmt.Errorf("exporter report: %w", err)
	}
	if same, err := r.encode(); err != nil || !bytes.Equal(same, line) {
		return Report{}, errors.New("exporter report: not in the form the stage writes")
	}
	if err := r.check(b); err != nil {
		return Report{}, fmt.Errorf("exporter report: %w", err)
	}
	r.onlyFile()
	return r, nil
}

func (r *Report) onlyFile() {
	if len(r.Files) == 1 {
		f := r.Files[0]
		r.Name, r.Bytes, r.Rows, r.SHA256 = f.Name, f.Bytes, f.Rows, f.SHA256
	}
}

func (r Report) check(b Bounds) error {
	if r.Entries < 0 || r.Entries > b.MaxEntries+1 || r.Omitted < 0 || r.Omitted > maxOmitted(b) {
		return errors.New("counts are out of range")
	}
	if len(r.Reasons) > maxFindings || r.Omitted > 0 && len(r.Reasons) < maxFindings {
		return errors.New("the number of reasons is not possible")
	}
	for _, f := range r.Reasons {
		switch {
		case Explain(f.Code) == "":
			return errors.New("a reason code is unknown")
		case !plainText(f.Name, maxNameText) || !plainText(f.Detail, maxDetailText):
			return errors.New("a reason's text is too long or not printable ASCII")
		}
	}
	switch r.Verdict {
	case Accepted:
		return r.checkAccepted(b)
	case Empty:
		if r.Entries != 0 || len(r.Reasons) != 0 {
			return errors.New("EMPTY with entries or reasons")
		}
	case Rejected:
		if len(r.Reasons) == 0 {
			return errors.New("REJECTED without a reason")
		}
	default:
		return errors.New("the verdict is unknown")
	}
	if len(r.Files) != 0 {
		return errors.New("describes a file that was not accepted")
	}
	return nil
}

// maxOmitted bounds what the survey can find: at most 5 faults an entry and a
// few that are about no entry.
func maxOmitted(b Bounds) int { return 5*b.MaxEntries + len(b.AllowedNames) + 8 }

func (r Report) checkAccepted(b Bounds) error {
	switch {
	case len(r.Reasons) != 0:
		return errors.New("ACCEPTED with reasons")
	case len(r.Files) < 1 || len(r.Files) > b.FileCount:
		return errors.New("ACCEPTED with an impossible number of files")
	case r.Entries != len(r.Files):
		return errors.New("ACCEPTED, but /out has not exactly the accepted entries")
	}
	last := -1
	for _, f := range r.Files {
		at := slices.Index(b.AllowedNames, f.Name)
		if at <= last {
			return errors.New("an accepted name is not an allowed one, or out of order")
		}
		last = at
		if err := f.check(b); err != nil {
			return err
		}
	}
	return nil
}

func (f File) check(b Bounds) error {
	rule := b.rule(f.Name)
	digest, ok := strings.CutPrefix(f.SHA256, digestPrefix)
	raw, err := hex.DecodeString(digest)
	most := min(b.MaxRows, f.Bytes) // no row is without a byte
	if rule.Type == TypeJSON || rule.Type == TypeBinary {
		most = 0
	}
	switch {
	case f.Type != rule.Type:
		return errors.New("the accepted type is not that of the name")
	case f.Bytes < 0 || f.Bytes > rule.Bytes || f.Source.Size != f.Bytes:
		return errors.New("the accepted size is out of range")
	case f.Rows < 0 || f.Rows > most:
		return errors.New("the accepted number of rows is out of range")
	case !ok || err != nil || len(raw) != 32 || digest != strings.ToLower(digest):
		return errors.New("the digest is not a SHA-256")
	case f.Source.Nlink != 1:
		return errors.New("the accepted file has not exactly one name")
	}
	return nil
}

func plainText(s string, most int) bool {
	return len(s) <= most && !strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c > '~' })
}
