package exporter

import (
	"fmt"
	"slices"
)

// Types of artifact. Each name has one; its type decides which checks the bytes
// must pass and what Rows counts.
const (
	TypeCSV    = "csv"    // UTF-8 text of RFC 4180 records, all of as many fields
	TypeText   = "text"   // UTF-8 text of lines
	TypeJSON   = "json"   // one RFC 8259 value in UTF-8, without a byte order mark
	TypeBinary = "binary" // any bytes that do not begin like an archive, compressed data or a program
)

// Types lists the artifact types, the strictest first.
func Types() []string { return []string{TypeCSV, TypeText, TypeJSON, TypeBinary} }

// Rule is what holds for one allowed name. Its zero value is CSV within FileBytes.
type Rule struct {
	Type  string `json:"type,omitempty"`  // empty: TypeCSV
	Bytes int64  `json:"bytes,omitempty"` // 0: Bounds.FileBytes; never more than that
}

// rule returns the whole rule of a name.
func (b Bounds) rule(name string) Rule {
	r := b.Rules[name]
	if r.Type == "" {
		r.Type = TypeCSV
	}
	if r.Bytes == 0 {
		r.Bytes = b.FileBytes
	}
	return r
}

func (b Bounds) checkRules() []error {
	var faults []error
	for name, r := range b.Rules {
		if !slices.Contains(b.AllowedNames, name) {
			faults = append(faults, fmt.Errorf("rules: %q is not an allowed name", name))
		}
		if r.Type != "" && !slices.Contains(Types(), r.Type) {
			faults = append(faults, fmt.Errorf("rules: %q: type is %q; want one of %q", name, r.Type, Types()))
		}
		if r.Bytes < 0 || r.Bytes > b.FileBytes {
			faults = append(faults, fmt.Errorf("rules: %q: bytes is %d; want 0 to %d", name, r.Bytes, b.FileBytes))
		}
	}
	return faults
}

// pipeline makes the checks of one file.
type pipeline func(Bounds, Rule) checks

// standardChecks is what an artifact of the rule's type must pass. A type that
// is not known gets no checker that lets anything pass: Validate refused it.
func standardChecks(b Bounds, r Rule) checks {
	if r.Type == TypeBinary {
		return checks{&magicCheck{documents: true}}
	}
	c := checks{&magicCheck{}}
	if !b.AllowBOM || r.Type == TypeJSON {
		c = append(c, &bomCheck{})
	}
	c = append(c, &nulCheck{}, &utf8Check{})
	switch r.Type {
	case TypeJSON:
		return append(c, &jsonCheck{})
	case TypeText:
		return append(c, &crCheck{}, &lineCheck{maxLine: b.MaxLine, maxRows: b.MaxRows})
	}
	return append(c, &crCheck{}, newCSVCheck(b))
}
