package exporter

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// StageName is the argv[0] under which nsbox runs as the exporter.
const StageName = "nsbox-export"

// Request is the launcher's order to the stage. Names holds one handle for each
// of Bounds.AllowedNames, in the same order. OwnerUID and OwnerGID are the
// workload's ids as the exporter's user namespace shows them.
type Request struct {
	Names    []Handle `json:"names"`
	Staging  []int    `json:"staging,omitempty"` // Bounds.Slots() descriptors; empty: descriptor 4 alone
	Bounds   Bounds   `json:"bounds"`
	OwnerUID uint32   `json:"owner_uid"`
	OwnerGID uint32   `json:"owner_gid"`
}

// Handle is what opening one allowed name gave: a descriptor and Errno 0, or FD
// -1 and the errno of openat2.
type Handle struct {
	Name  string `json:"name"`
	FD    int    `json:"fd"`
	Errno int    `json:"errno"`
}

// Bounds are the policy's limits on what leaves. The numbers must be set: zero is
// not "no limit". What may be left out is strict when it is, but for CSVFormula,
// which the specification's policy does not ask for.
type Bounds struct {
	FileBytes    int64           `json:"file_bytes"` // of one file, holes included
	FileCount    int             `json:"file_count"` // regular files in /out
	MaxLine      int64           `json:"max_line"`   // bytes of a CSV record or a line of text, without its end
	MaxRows      int64           `json:"max_rows"`   // CSV records or lines of text, the last one with or without LF
	MaxEntries   int             `json:"max_entries"`
	AllowedNames []string        `json:"allowed_names"`
	Rules        map[string]Rule `json:"rules,omitempty"`       // by allowed name
	CSVFormula   string          `json:"csv_formula,omitempty"` // FormulaReject or FormulaAllow; empty: allow
	AllowBOM     bool            `json:"allow_bom,omitempty"`   // csv and text may begin with a byte order mark
}

const (
	entriesCeiling = 4096
	namesCeiling   = 16
	filesCeiling   = 7
	bytesCeiling   = 1 << 40
	// descriptorsCeiling is what a box can be handed besides /out itself: names and
	// staging files. It also fits the 32 descriptors the policy gives the stage.
	descriptorsCeiling = 19
)

// Slots is how many staging files an export may need.
func (b Bounds) Slots() int { return min(b.FileCount, len(b.AllowedNames)) }

// Argv returns the stage's argument vector.
func (r Request) Argv() ([]string, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	data, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	return []string{StageName, string(data)}, nil
}

// Validate reports every fault of r at once, or nil.
func (r Request) Validate() error {
	faults := []error{r.Bounds.Validate()}
	bad := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if len(r.Names) != len(r.Bounds.AllowedNames) {
		bad("names: has %d handles for %d allowed names", len(r.Names), len(r.Bounds.AllowedNames))
		return errors.Join(faults...)
	}
	seen := map[int]bool{}
	for i, h := range r.Names {
		switch {
		case h.Name != r.Bounds.AllowedNames[i]:
			bad("names[%d]: is not allowed_names[%d]", i, i)
		case h.FD == -1 && h.Errno <= 0:
			bad("names[%d]: no descriptor and no errno", i)
		case h.FD != -1 && (h.FD < 3 || h.Errno != 0 || seen[h.FD]):
			bad("names[%d]: descriptor %d with errno %d is not usable", i, h.FD, h.Errno)
		}
		seen[h.FD] = h.FD >= 0
	}
	if len(r.staging()) != r.Bounds.Slots() {
		bad("staging: has %d descriptors; want %d", len(r.staging()), r.Bounds.Slots())
	}
	for i, fd := range r.staging() {
		if fd < 3 || seen[fd] {
			bad("staging[%d]: descriptor %d is not usable", i, fd)
		}
		seen[fd] = true
	}
	return errors.Join(faults...)
}

func (r Request) staging() []int {
	if len(r.Staging) == 0 {
		return []int{stagingFD}
	}
	return r.Staging
}

// Validate reports every fault of b at once, or nil.
func (b Bounds) Validate() error {
	var faults []error
	within := func(key string, v, most int64) {
		if v < 1 || v > most {
			faults = append(faults, fmt.Errorf("%s: is %d; want 1 to %d", key, v, most))
		}
	}
	within("file_bytes", b.FileBytes, bytesCeiling)
	within("file_count", int64(b.FileCount), filesCeiling)
	within("max_line", b.MaxLine, bytesCeiling)
	within("max_rows", b.MaxRows, bytesCeiling)
	within("max_entries", int64(b.MaxEntries), entriesCeiling)
	within("allowed_names: count", int64(len(b.AllowedNames)), namesCeiling)
	seen := map[string]bool{}
	for i, name := range b.AllowedNames {
		if !plainName(name) || seen[name] {
			faults = append(faults, fmt.Errorf("allowed_names[%d]: want a file name, once, in UTF-8, without slash or control characters", i))
		}
		seen[name] = true
	}
	if n := len(b.AllowedNames) + b.Slots(); n > descriptorsCeiling {
		faults = append(faults, fmt.Errorf("allowed_names and file_count: need %d descriptors; want at most %d", n, descriptorsCeiling))
	}
	switch b.CSVFormula {
	case "", FormulaAllow, FormulaReject:
	default:
		faults = append(faults, fmt.Errorf("csv_formula: is %q; want %q or %q", b.CSVFormula, FormulaAllow, FormulaReject))
	}
	return errors.Join(append(faults, b.checkRules()...)...)
}

func plainName(name string) bool {
	control := func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 }
	return name != "" && name != "." && name != ".." && len(name) <= 255 && utf8.ValidString(name) &&
		!strings.Contains(name, "/") && !strings.ContainsFunc(name, control)
}
