package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/term"

	"nsbox/launcher"
	"nsbox/launcher/policy"
	"nsbox/launcher/reason"
)

// console is the standard streams and what is known about them. It is the only
// thing that prints, and it may be used from several goroutines.
type console struct {
	in         io.Reader
	out, err   *stream
	colour     bool // on err
	inTerminal bool
}

// stream is one output. It goes on after a failed write, dropping what comes,
// so that a reader that went away does not end the run half-way.
type stream struct {
	mu       sync.Mutex
	to       io.Writer
	terminal bool
	broken   error
	midLine  *atomic.Bool // shared by the streams of one terminal; nil elsewhere
}

func (s *stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken == nil {
		_, s.broken = s.to.Write(p)
	}
	if s.midLine != nil && len(p) > 0 {
		s.midLine.Store(p[len(p)-1] != '\n')
	}
	return len(p), nil
}

// failed returns the first error of a write.
func (s *stream) failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broken
}

// guarded is where untrusted bytes go: exact bytes to a file or pipe, escaped
// ones to a terminal. Call finish after the last byte.
func (s *stream) guarded() (w io.Writer, finish func()) {
	if !s.terminal {
		return telling{s}, func() {}
	}
	e := &escaper{to: telling{s}}
	return e, func() { _ = e.Flush() }
}

// telling is a stream whose writer hears that nobody reads any more.
type telling struct{ s *stream }

func (t telling) Write(p []byte) (int, error) {
	if _, err := t.s.Write(p); err != nil {
		return 0, err
	}
	return len(p), t.s.failed()
}

func standardConsole() *console {
	c := &console{
		in: os.Stdin, inTerminal: term.IsTerminal(0),
		out: &stream{to: os.Stdout, terminal: term.IsTerminal(1)},
		err: &stream{to: os.Stderr, terminal: term.IsTerminal(2)},
	}
	c.shareTerminal()
	c.colour = c.err.terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	return c
}

// shareTerminal lets freshLine know what stands on the terminal, which both
// streams are taken to share.
func (c *console) shareTerminal() {
	c.err.midLine = new(atomic.Bool)
	if c.err.terminal && c.out.terminal {
		c.out.midLine = c.err.midLine
	}
}

// text prints own text on standard output. What others chose of it has passed
// visible already; a caller that forgot cannot steer a terminal here.
func (c *console) text(s string) {
	safe, _ := appendEscaped(nil, []byte(s), true)
	_, _ = c.out.Write(safe)
}

// bytes prints a file's bytes on standard output.
func (c *console) bytes(p []byte) {
	w, finish := c.out.guarded()
	_, _ = w.Write(p)
	finish()
}

// document prints one JSON document on standard output.
func (c *console) document(v any) error {
	data, err := encode(v)
	if err != nil {
		return err
	}
	_, _ = c.out.Write(data)
	return c.closed()
}

// closed is what to report if standard output took no more.
func (c *console) closed() error {
	err := c.out.failed()
	if err == nil {
		return nil
	}
	return reason.Wrap(reason.OutputClosed, "standard output", "took no more", "write to a file with room, or to a reader that stays", err)
}

// freshLine ends a line that the program left open, so that it cannot begin ours.
func (c *console) freshLine() {
	if c.err.midLine != nil && c.err.midLine.Load() {
		_, _ = io.WriteString(c.err, "\n")
	}
}

// encode is the one JSON form of nsbox: indented, a newline at the end, safe
// to show on a terminal.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return launcher.SafeJSON(b.Bytes()), nil
}

// note prints one line on standard error.
func (c *console) note(format string, args ...any) {
	fmt.Fprintf(c.err, "nsbox: %s\n", visible(fmt.Sprintf(format, args...)))
}

// problem prints an error of nsbox: the thing, why and the id, then the next step.
func (c *console) problem(r launcher.Reason) {
	var parts []string
	for _, p := range []string{r.What, r.Why} {
		if p != "" {
			parts = append(parts, visible(p))
		}
	}
	mark, plain := "", ""
	if c.colour {
		mark, plain = "\x1b[1;31m", "\x1b[0m"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%snsbox:%s %s (reason %s)\n", mark, plain, strings.Join(parts, ": "), visible(string(r.ID)))
	if r.Next != "" {
		fmt.Fprintf(&b, "nsbox: next: %s\n", visible(r.Next))
	}
	_, _ = io.WriteString(c.err, b.String())
}

// refusal prints an error, and the faults it sums up where there are several.
// The sum's own words would repeat them.
func (c *console) refusal(r launcher.Reason, source string, list policy.Faults) {
	c.freshLine()
	switch len(list) {
	case 0:
	case 1:
		r = launcher.Reason{ID: list[0].ID, What: faultPlace(source, list[0]), Why: list[0].What, Next: list[0].Next}
	default:
		c.faults(source, list)
		r.Why, r.Next = count(int64(len(list)), "fault"), ""
	}
	c.problem(r)
}

// faultPlace is where a fault is: source, line and key, as far as there are any.
func faultPlace(source string, f policy.Fault) string {
	var parts []string
	if source != "" && f.Line > 0 {
		source = fmt.Sprintf("%s:%d", source, f.Line)
	}
	for _, p := range []string{source, f.Path} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	return strings.Join(parts, ": ")
}

func (c *console) faults(source string, list policy.Faults) {
	var b strings.Builder
	for _, f := range list {
		fmt.Fprintf(&b, "%s (reason %s)\n", visible(faultPlace(source, f)+": "+f.What), f.ID)
		if f.Next != "" {
			fmt.Fprintf(&b, "    next: %s\n", visible(f.Next))
		}
	}
	_, _ = io.WriteString(c.err, b.String())
}

// reasonOf makes any error one that has an id.
func reasonOf(err error) launcher.Reason {
	if e := reason.Of(err); e != nil {
		why := e.Why
		var faults policy.Faults // listed one by one elsewhere
		if e.Err != nil && !errors.As(err, &faults) {
			why = strings.TrimPrefix(why+": "+e.Err.Error(), ": ")
		}
		return launcher.Reason{ID: e.ID, What: e.What, Why: why, Next: e.Next}
	}
	return launcher.Reason{ID: reason.Internal, What: "nsbox", Why: err.Error(), Next: "report this as a fault of nsbox"}
}
