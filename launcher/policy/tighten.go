package policy

import (
	"strconv"
	"strings"

	"nsbox/launcher/reason"
)

// LimitName is one name that --limit takes.
type LimitName struct {
	Name    string // wall
	Key     string // resources key, wall_workload
	Value   string // how the value is written
	Example string // wall=5s
}

// LimitNames lists the names of --limit in the document's order.
func LimitNames() []LimitName {
	var names []LimitName
	for i := range resourceRows {
		if row := &resourceRows[i]; row.limit != "" {
			names = append(names, LimitName{row.limit, row.key, row.want(), row.limit + "=" + row.example})
		}
	}
	return names
}

// Tighten returns a copy with lower limits. Each element of spec is
// "name=value[,name=value]"; K, M and G count 1024, 1024² and 1024³ bytes. A
// value equal to the policy's is accepted, a larger one is an error: --limit
// may only take away. Lowering wall takes the same time off the attempt's
// deadline unless deadline is given too. The error lists every fault.
func (p *Policy) Tighten(spec []string) (*Policy, error) {
	var faults Faults
	tight := *p
	entries := tight.Resources.all()
	var given [resourceCount]bool
	var lowered [resourceCount]int64 // how much the limit went down
	for _, list := range spec {
		for entry := range strings.SplitSeq(list, ",") {
			i, n, fault := readLimit(entry)
			if fault == nil && given[i] {
				fault = &Fault{ID: reason.LimitSyntax, What: "is given twice", Next: "give it once"}
			}
			if fault == nil {
				given[i] = true
				row := &resourceRows[i]
				lowered[i], fault = row.lower(entries[i], n)
			}
			if fault != nil {
				fault.Path = "--limit " + shownEntry(entry)
				faults.add(*fault)
			}
		}
	}
	wall, deadline := rowOf("wall_workload"), rowOf(deadlineKey)
	if lowered[wall] > 0 && !given[deadline] {
		row := &resourceRows[deadline]
		n, _ := row.base(entries[deadline])
		row.put(entries[deadline], n-lowered[wall])
	}
	if len(faults) == 0 {
		if short := tight.deadlineShort(); short != "" {
			faults.add(Fault{ID: reason.LimitRange, Path: "--limit deadline", What: short, Next: "lower wall as well, or leave deadline to follow it"})
		}
	}
	if len(faults) > 0 {
		return nil, faults.wrap("--limit")
	}
	return &tight, nil
}

// readLimit reads one name=value. The index is that of the row.
func readLimit(entry string) (int, int64, *Fault) {
	name, value, ok := strings.Cut(entry, "=")
	if !ok || name == "" || value == "" {
		return 0, 0, &Fault{ID: reason.LimitSyntax, What: "is not name=value", Next: "write for example wall=5s,memory=128M"}
	}
	var names []string
	for i := range resourceRows {
		row := &resourceRows[i]
		if row.limit != name {
			if row.limit != "" {
				names = append(names, row.limit)
			}
			continue
		}
		n, err := row.read(value)
		if err != nil {
			return 0, 0, &Fault{ID: reason.LimitSyntax, What: err.Error(), Next: "write " + row.want() + ", for example " + row.limit + "=" + row.example}
		}
		return i, n, nil
	}
	return 0, 0, &Fault{ID: reason.LimitUnknown, What: strconv.QuoteToASCII(name) + " is no limit", Next: didYouMean(name, names)}
}

// lower sets the entry to n and returns by how much that is less than before.
func (row *resourceRow) lower(r *resource, n int64) (int64, *Fault) {
	before, _ := row.base(r)
	if n > before {
		return 0, &Fault{ID: reason.LimitLoosens, What: row.show(n) + " is more than the policy's " + row.show(before), Next: "ask for at most " + row.show(before) + ", or change the policy"}
	}
	if bad := row.outside(n); bad != "" {
		return 0, &Fault{ID: reason.LimitRange, What: row.show(n) + " " + bad, Next: "ask for " + row.show(row.min) + " or more"}
	}
	row.put(r, n)
	return before - n, nil
}

// rowOf returns the index of a key that the program itself names.
func rowOf(key string) int {
	for i := range resourceRows {
		if resourceRows[i].key == key {
			return i
		}
	}
	return 0
}

// shownEntry is what the person wrote, safe to print.
func shownEntry(entry string) string {
	if len(entry) > 64 {
		entry = entry[:64]
	}
	if q := strconv.QuoteToASCII(entry); q[1:len(q)-1] != entry || entry == "" {
		return q
	}
	return entry
}
