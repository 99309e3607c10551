package probe

import (
	"fmt"
	"strconv"
	"strings"
)

const (
	maxID       = 1<<32 - 2 // 1<<32-1 is the kernel's "no id"
	maxProblems = 16
)

// problems is a bounded list: a file of a thousand bad lines is one finding.
type problems []string

func (p *problems) add(format string, args ...any) {
	if len(*p) < maxProblems {
		*p = append(*p, fmt.Sprintf(format, args...))
	}
}

// parsePasswd returns the first name of each uid in /etc/passwd.
func parsePasswd(text string) map[int64]string {
	names := map[int64]string{}
	for line := range strings.Lines(text) {
		name, rest, _ := strings.Cut(strings.TrimRight(line, "\r\n"), ":")
		_, rest, _ = strings.Cut(rest, ":")
		idText, _, ok := strings.Cut(rest, ":")
		id, err := parseID(idText)
		if !ok || err != nil || name == "" || strings.ContainsAny(name[:1], "#+-") {
			continue // comments and NIS entries name nobody
		}
		if _, seen := names[id]; !seen {
			names[id] = name
		}
	}
	return names
}

// groupFile is what /etc/group says.
type groupFile struct {
	name    map[int64]string
	members map[string][]string // group name → listed members
}

func parseGroup(text string) groupFile {
	g := groupFile{name: map[int64]string{}, members: map[string][]string{}}
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimRight(line, "\r\n"), ":")
		if len(f) < 3 || f[0] == "" || strings.ContainsAny(f[0][:1], "#+-") {
			continue
		}
		id, err := parseID(f[2])
		if err != nil {
			continue
		}
		if _, seen := g.name[id]; !seen {
			g.name[id] = f[0]
		}
		if len(f) > 3 && f[3] != "" {
			for m := range strings.SplitSeq(f[3], ",") {
				g.members[f[0]] = append(g.members[f[0]], strings.TrimSpace(m))
			}
		}
	}
	return g
}

func parseID(s string) (int64, error) {
	if s == "" || s[0] < '0' || s[0] > '9' {
		return 0, strconv.ErrSyntax
	}
	n, err := strconv.ParseUint(s, 10, 32)
	if err == nil && n > maxID {
		err = strconv.ErrRange
	}
	return int64(n), err
}

// subID is one valid line of /etc/subuid or /etc/subgid.
type subID struct {
	owner string // name or number, as written
	Range
}

// parseSubIDs reads OWNER:START:COUNT lines. A line that newuidmap would not
// honour is left out and named. file is for the message only.
func parseSubIDs(file, text string, bad *problems) []subID {
	var out []subID
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSuffix(line, "\n")
		if strings.TrimSpace(line) == "" || line[0] == '#' {
			continue
		}
		f := strings.Split(line, ":")
		if len(f) != 3 || f[0] == "" {
			bad.add("%s:%d: not OWNER:START:COUNT", file, n)
			continue
		}
		if strings.HasSuffix(line, "\r") {
			bad.add("%s:%d: the line ends in a carriage return, so newuidmap ignores it", file, n)
			continue
		}
		start, err1 := parseID(f[1])
		count, err2 := parseID(f[2])
		switch {
		case err1 != nil || err2 != nil:
			bad.add("%s:%d: start or count is no number of 32 bits", file, n)
		case count == 0:
			bad.add("%s:%d: the range is empty", file, n)
		case start+count-1 > maxID:
			bad.add("%s:%d: the range goes beyond the last id", file, n)
		default:
			out = append(out, subID{f[0], Range{start, count}})
		}
	}
	return out
}
