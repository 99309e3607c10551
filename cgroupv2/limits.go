package cgroupv2

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

// Limits is what the work leaf may use. In a field other than SwapBytes, 0 means
// that the dimension is not limited by the kernel here, which somebody must have
// allowed by name.
type Limits struct {
	MemoryBytes int64 // anonymous memory, page cache, tmpfs and kernel memory of all processes together
	SwapBytes   int64 // counts only beside MemoryBytes; 0 is no swap at all
	Tasks       int64 // processes and threads
	CPUPercent  int64 // of one core: 100 is one core, 250 two and a half
}

// Write is one value for one file of a leaf.
type Write struct {
	Controller string
	File       string
	Value      string // as the kernel shows it afterwards
	Why        string

	// absent decides about a file that does not exist: nil makes it an error,
	// else the text to show in place of a value.
	absent func() (shown string, err error)
}

// Applied is one limit as the kernel showed it after it was written.
type Applied struct {
	Leaf   string // "work" or "box"
	File   string
	Wanted string
	Shown  string
	Why    string
}

// Writes is the list for the work leaf, in the order of writing. It looks at
// nothing but l. The error has kind BadLimit.
func (l Limits) Writes() ([]Write, error) {
	var all []Write
	for _, list := range []func(Limits) ([]Write, error){memoryWrites, pidsWrites, cpuWrites} {
		w, err := list(l)
		if err != nil {
			return nil, err
		}
		all = append(all, w...)
	}
	return all, nil
}

func badLimit(file, value, want string) error {
	return &Error{Kind: BadLimit, Path: file, Op: "limit " + value + " for", Err: errors.New("want " + want)}
}

// Apply writes the limits to the work leaf, and the backstop of the box leaf,
// reads every one back and compares. Call it before a process is in the work
// leaf. The list holds what was shown, up to a failure too. A file that the
// leaf lacks because its controller is not in force gives LimitNotApplied.
func (g *Group) Apply(l Limits) ([]Applied, error) {
	writes, err := l.Writes()
	if err != nil {
		return nil, err
	}
	var out []Applied
	for _, w := range writes {
		shown, err := g.put("work", w)
		out = append(out, Applied{Leaf: "work", File: w.File, Wanted: w.Value, Shown: shown, Why: w.Why})
		if err != nil {
			return out, err
		}
	}
	if l.Tasks > 0 {
		w := boxPids()
		shown, err := g.put("box", w)
		out = append(out, Applied{Leaf: "box", File: w.File, Wanted: w.Value, Shown: shown, Why: w.Why})
		if err != nil {
			return out, err
		}
	}
	return out, nil
}

// put writes one value and returns what the file shows.
func (g *Group) put(leaf string, w Write) (string, error) {
	file := leaf + "/" + w.File // both parts are constants of this package
	path := g.Path() + "/" + file
	err := writeSmall(g.top, file, w.Value)
	if err == unix.ENOENT && w.absent != nil {
		shown, err := w.absent()
		if err != nil {
			return shown, &Error{Kind: SwapUncounted, Path: path, Op: "write " + w.Value + " to", Err: err}
		}
		return shown, nil
	}
	if err != nil {
		return "", &Error{Kind: LimitNotApplied, Path: path, Op: "write", Wanted: w.Value, Err: err}
	}
	text, err := readSmall(g.top, file)
	if err != nil {
		return "", &Error{Kind: LimitNotApplied, Path: path, Op: "read back", Wanted: w.Value, Err: err}
	}
	shown := strings.TrimSuffix(text, "\n")
	if shown != w.Value {
		return shown, &Error{Kind: LimitNotApplied, Path: path, Op: "read back", Wanted: w.Value, Shown: shown}
	}
	return shown, nil
}
