package policy

import (
	"fmt"
	"sort"
	"strconv"
	"strings"

	"nsbox/launcher/reason"
)

// Fault is one thing wrong with a document or with a --limit list.
type Fault struct {
	ID   reason.ID
	Path string // JSON path, e.g. resources.tasks_job.value; empty: the document itself
	Line int    // counted from 1; 0 outside of a file
	What string // what is wrong, one line, quoted where it repeats the file
	Next string // what to do, one line
}

// Faults is everything wrong at once, ordered by line. It is never empty when
// it is an error.
type Faults []Fault

// maxFaults bounds what a hostile file can make nsbox print.
const maxFaults = 200

// Reason is the first fault's id.
func (f Faults) Reason() reason.ID {
	if len(f) == 0 {
		return reason.PolicyInvalid
	}
	return f[0].ID
}

func (f Faults) Error() string {
	var b strings.Builder
	for i, x := range f {
		if i > 0 {
			b.WriteByte('\n')
		}
		if x.Line > 0 {
			fmt.Fprintf(&b, "line %d: ", x.Line)
		}
		if x.Path != "" {
			b.WriteString(x.Path + ": ")
		}
		b.WriteString(x.What)
	}
	return b.String()
}

// wrap returns nil, or one error that carries all faults and the first one's id.
func (f Faults) wrap(what string) error {
	if len(f) == 0 {
		return nil
	}
	sort.SliceStable(f, func(i, j int) bool { return f[i].Line < f[j].Line })
	why := "1 fault"
	if len(f) > 1 {
		why = strconv.Itoa(len(f)) + " faults"
	}
	return reason.Wrap(f.Reason(), what, why, f[0].Next, f)
}

func (f *Faults) add(x Fault) {
	if len(*f) < maxFaults {
		*f = append(*f, x)
	}
}

// at reports whether path, something below it or something above it is already
// at fault, so that one mistake is told once.
func (f Faults) at(path string) bool {
	for _, x := range f {
		if within(path, x.Path) || within(x.Path, path) {
			return true
		}
	}
	return false
}

// within reports whether path is root or lies below it.
func within(path, root string) bool {
	rest, ok := strings.CutPrefix(path, root)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// nearest returns the candidate that is at most two letters away from word, or "".
func nearest(word string, candidates []string) string {
	best, distance := "", 3
	for _, c := range candidates {
		if strings.EqualFold(c, word) {
			return c
		}
		if d := letters(word, c); d < distance {
			best, distance = c, d
		}
	}
	return best
}

// letters is the edit distance of two short words.
func letters(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

// didYouMean is a next step for a wrong word of a known list.
func didYouMean(word string, candidates []string) string {
	list := "known: " + strings.Join(candidates, ", ")
	if n := nearest(word, candidates); n != "" {
		return "did you mean " + n + "? " + list
	}
	return list
}
