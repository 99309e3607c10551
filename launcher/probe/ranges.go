package probe

import (
	"cmp"
	"slices"
)

const (
	// IDsPerSlot is how many ids one attempt has.
	IDsPerSlot = 4 // box root, workload, exporter's root, exporter

	overflowID = 65534 // what an unmapped id looks like
	noID16     = 65535 // "no id" for 16-bit interfaces

	// systemd gives 524288 to 1879048191 to containers and 2147352576 upwards
	// to foreign images; the ids in between belong to nobody by convention.
	defaultBase  = 1879048192
	defaultCount = 65536

	// As useradd takes them: SUB_UID_MIN, SUB_UID_MAX, SUB_UID_COUNT.
	subMin, subMax, subCount = 100000, 600100000, 65536
)

// usable returns what the account has been given and nobody else has: ranges of
// four ids and more, largest first, without the ids of root, of the account, of
// other accounts (taken) and those that mean "nobody". An owner may be written
// as a name or as a number.
func usable(file string, all []subID, user string, uid int64, taken []int64, bad *problems) []Range {
	mine := func(owner string) bool {
		if user != "" && owner == user {
			return true
		}
		id, err := parseID(owner)
		return err == nil && id == uid
	}
	var out []Range
	for _, e := range all {
		if !mine(e.owner) {
			continue
		}
		if i := slices.IndexFunc(all, func(o subID) bool { return !mine(o.owner) && o.overlaps(e.Range) }); i >= 0 {
			bad.add("%s: range %d:%d of %s overlaps one of %s", file, e.Start, e.Count, e.owner, all[i].owner)
			continue
		}
		n := len(out)
		for _, r := range without(e.Range, append([]int64{0, uid, overflowID, noID16}, taken...)) {
			if r.Count >= IDsPerSlot {
				out = append(out, r)
			}
		}
		if len(out) == n {
			bad.add("%s: range %d:%d of %s has no %d consecutive ids that are not in use", file, e.Start, e.Count, e.owner, IDsPerSlot)
		}
	}
	slices.SortFunc(out, func(a, b Range) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Start, b.Start))
	})
	return slices.Compact(out)
}

// without cuts single ids out of r and returns the pieces in order.
func without(r Range, ids []int64) []Range {
	ids = slices.Sorted(slices.Values(ids))
	var out []Range
	start := r.Start
	for _, id := range ids {
		if id < start || id >= r.end() {
			continue
		}
		if id > start {
			out = append(out, Range{start, id - start})
		}
		start = id + 1
	}
	if start < r.end() {
		out = append(out, Range{start, r.end() - start})
	}
	return out
}

// free reports whether no entry and no account has an id of r.
func free(r Range, taken []int64, lists ...[]subID) bool {
	for _, id := range taken {
		if r.overlaps(Range{id, 1}) {
			return false
		}
	}
	for _, l := range lists {
		if slices.ContainsFunc(l, func(e subID) bool { return e.overlaps(r) }) {
			return false
		}
	}
	return true
}

// freeStart returns where useradd would put the next range: the first start at
// which 65536 ids are free in all lists and of all accounts, or 0.
func freeStart(taken []int64, lists ...[]subID) int64 {
	var used []Range
	for _, id := range taken {
		used = append(used, Range{id, 1})
	}
	for _, l := range lists {
		for _, e := range l {
			used = append(used, e.Range)
		}
	}
	slices.SortFunc(used, func(a, b Range) int { return cmp.Compare(a.Start, b.Start) })
	start := int64(subMin)
	for _, u := range used {
		if u.overlaps(Range{start, subCount}) {
			start = u.end()
		}
	}
	if start+subCount > subMax {
		return 0
	}
	return start
}
