package probe

import (
	"errors"
	"slices"
	"strconv"
	"strings"
)

// status is what nsbox needs of /proc/self/status.
type status struct {
	ruid, euid, rgid, egid int
	groups                 []int
	capEff                 uint64
	noNewPrivs             bool
	seccomp                int
}

// parseStatus fails if a field is missing or malformed: a launcher that does
// not know its own powers goes nowhere.
func parseStatus(text string) (status, error) {
	var s status
	want := map[string]func(v string) error{
		"Uid": func(v string) error { return twoInts(v, &s.ruid, &s.euid) },
		"Gid": func(v string) error { return twoInts(v, &s.rgid, &s.egid) },
		"Groups": func(v string) error {
			for f := range strings.FieldsSeq(v) {
				id, err := parseID(f)
				if err != nil {
					return err
				}
				s.groups = append(s.groups, int(id))
			}
			return nil
		},
		"CapEff": func(v string) (err error) { s.capEff, err = strconv.ParseUint(v, 16, 64); return err },
		"NoNewPrivs": func(v string) (err error) {
			s.noNewPrivs, err = strconv.ParseBool(v)
			return err
		},
		"Seccomp": func(v string) (err error) { s.seccomp, err = strconv.Atoi(v); return err },
	}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(line, ":")
		if parse := want[key]; parse != nil {
			if err := parse(strings.TrimSpace(value)); err != nil {
				return s, errors.New("field " + key + ": " + err.Error())
			}
			delete(want, key)
		}
	}
	// Seccomp is missing on a kernel built without it: no box there either.
	for _, key := range []string{"Uid", "Gid", "Groups", "CapEff", "NoNewPrivs", "Seccomp"} {
		if want[key] != nil {
			return s, errors.New("field " + key + " is missing")
		}
	}
	return s, nil
}

func twoInts(v string, a, b *int) error {
	f := strings.Fields(v)
	if len(f) != 4 {
		return errors.New("want four ids")
	}
	x, err1 := parseID(f[0])
	y, err2 := parseID(f[1])
	*a, *b = int(x), int(y)
	return errors.Join(err1, err2)
}

// parseIDMap reads a uid_map or gid_map.
func parseIDMap(text string) ([]Extent, error) {
	var out []Extent
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if len(f) != 3 {
			return nil, errors.New("id map: want three numbers in a line")
		}
		var n [3]int64
		for i := range f {
			v, err := strconv.ParseUint(f[i], 10, 32)
			if err != nil {
				return nil, errors.New("id map: " + strconv.Quote(f[i]) + " is no number of 32 bits")
			}
			n[i] = int64(v)
		}
		if n[2] == 0 || n[0]+n[2] > 1<<32 || n[1]+n[2] > 1<<32 {
			return nil, errors.New("id map: extent out of range")
		}
		out = append(out, Extent{n[0], n[1], n[2]})
	}
	return out, nil
}

// mapped returns the largest part of r that exists in the namespace of m.
func mapped(r Range, m []Extent) Range {
	var best Range
	for _, e := range m {
		start := max(r.Start, e.Inside)
		count := min(r.end(), e.Inside+e.Count) - start
		if count > best.Count {
			best = Range{start, count}
		}
	}
	return best
}

// parseRelease reads MAJOR.MINOR of a kernel release such as "6.1.0-18-amd64".
func parseRelease(s string) (major, minor int, ok bool) {
	a, rest, found := strings.Cut(s, ".")
	b := rest
	if i := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' }); i >= 0 {
		b = rest[:i]
	}
	x, err1 := strconv.ParseUint(a, 10, 16)
	y, err2 := strconv.ParseUint(b, 10, 16)
	return int(x), int(y), found && err1 == nil && err2 == nil
}

// v1Bound returns those of memory, pids and cpu that the text of
// /proc/self/cgroup shows bound to a version 1 hierarchy.
func v1Bound(selfCgroup string) []string {
	bound := map[string]bool{}
	for line := range strings.Lines(selfCgroup) {
		f := strings.SplitN(line, ":", 3)
		if len(f) != 3 || f[0] == "0" {
			continue
		}
		for c := range strings.SplitSeq(f[1], ",") {
			bound[c] = true
		}
	}
	return slices.DeleteFunc([]string{"memory", "pids", "cpu"}, func(c string) bool { return !bound[c] })
}
