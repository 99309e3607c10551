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
// deadline unless deadline is given too. Names that begin with network. lower what
// the policy allows its connections. The error lists every fault.
func (p *Policy) Tighten(spec []string) (*Policy, error) {
	var faults Faults
	tight := *p
	entries := tight.Resources.all()
	var given [resourceCount]bool
	connections := map[string]bool{} // given too
	var lowered [resourceCount]int64 // how much the limit went down
	for _, list := range spec {
		for entry := range strings.SplitSeq(list, ",") {
			name, value, fault := splitLimit(entry)
			switch {
			case fault != nil:
			case strings.HasPrefix(name, "network."):
				fault = tight.tightenConnection(name, value)
				if fault == nil && connections[name] {
					fault = twice()
				}
				connections[name] = true
			default:
				var i int
				var n int64
				if i, n, fault = readLimit(name, value); fault != nil {
					break
				}
				if given[i] {
					fault = twice()
					break
				}
				given[i] = true
				lowered[i], fault = resourceRows[i].lower(entries[i], n)
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

func twice() *Fault {
	return &Fault{ID: reason.LimitSyntax, What: "is given twice", Next: "give it once"}
}

func splitLimit(entry string) (name, value string, fault *Fault) {
	name, value, ok := strings.Cut(entry, "=")
	if !ok || name == "" || value == "" {
		return "", "", &Fault{ID: reason.LimitSyntax, What: "is not name=value", Next: "write for example wall=5s,memory=128M"}
	}
	return name, value, nil
}

// readLimit reads one value. The index is that of the row.
func readLimit(name, value string) (int, int64, *Fault) {
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
			return 0, 0, row.unreadable(err)
		}
		return i, n, nil
	}
	return 0, 0, unknownLimit(name, names)
}

func (row *resourceRow) unreadable(err error) *Fault {
	return &Fault{ID: reason.LimitSyntax, What: err.Error(), Next: "write " + row.want() + ", for example " + row.limit + "=" + row.example}
}

func unknownLimit(name string, names []string) *Fault {
	return &Fault{ID: reason.LimitUnknown, What: strconv.QuoteToASCII(name) + " is no limit", Next: didYouMean(name, names)}
}

// lower sets the entry to n and returns by how much that is less than before.
func (row *resourceRow) lower(r *resource, n int64) (int64, *Fault) {
	before, _ := row.base(r)
	if fault := row.mayBe(n, before); fault != nil {
		return 0, fault
	}
	row.put(r, n)
	return before - n, nil
}

// mayBe says why n must not take the place of before.
func (row *resourceRow) mayBe(n, before int64) *Fault {
	if n > before {
		return &Fault{ID: reason.LimitLoosens, What: row.show(n) + " is more than the policy's " + row.show(before), Next: "ask for at most " + row.show(before) + ", or change the policy"}
	}
	if bad := row.outside(n); bad != "" {
		return &Fault{ID: reason.LimitRange, What: row.show(n) + " " + bad, Next: "ask for " + row.show(row.min) + " or more"}
	}
	return nil
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
