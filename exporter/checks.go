package exporter

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// fault is what a checker found; the zero value is "nothing so far". The detail
// carries positions, never content.
type fault struct{ code, detail string }

// checker sees a file as consecutive chunks of any size. It keeps fixed memory,
// does not keep or change the chunk, and is not called again after a fault.
type checker interface {
	Write(chunk []byte) fault
	Close() fault
}

// checks is the pipeline; its order is that of the report.
type checks []checker

func (c checks) write(chunk []byte) []fault {
	var faults []fault
	for _, one := range c {
		if f := one.Write(chunk); f.code != "" {
			faults = append(faults, f)
		}
	}
	return faults
}

func (c checks) close() []fault {
	var faults []fault
	for _, one := range c {
		if f := one.Close(); f.code != "" {
			faults = append(faults, f)
		}
	}
	return faults
}

// rows returns the number of rows that the counting checker saw, 0 if there is none.
func (c checks) rows() int64 {
	for _, one := range c {
		if counter, ok := one.(interface{ rows() int64 }); ok {
			return counter.rows()
		}
	}
	return 0
}

func at(offset int64) string { return fmt.Sprintf("at byte %d", offset) }

// bomCheck refuses a byte order mark: half of all CSV readers take it for part
// of the first column's name.
type bomCheck struct {
	head [3]byte
	n    int
}

func (c *bomCheck) Write(chunk []byte) fault {
	if c.n == len(c.head) {
		return fault{}
	}
	c.n += copy(c.head[c.n:], chunk)
	if string(c.head[:c.n]) == bom {
		return fault{codeBOM, at(0)}
	}
	return fault{}
}

func (c *bomCheck) Close() fault { return fault{} }

// nulCheck refuses NUL: readers in C see the text end there.
type nulCheck struct{ offset int64 }

func (c *nulCheck) Write(chunk []byte) fault {
	if i := bytes.IndexByte(chunk, 0); i >= 0 {
		return fault{codeNUL, at(c.offset + int64(i))}
	}
	c.offset += int64(len(chunk))
	return fault{}
}

func (c *nulCheck) Close() fault { return fault{} }

// utf8Check refuses what utf8.Valid refuses: overlong forms, surrogates and
// values above U+10FFFF, across chunk borders too.
type utf8Check struct {
	carry  [utf8.UTFMax]byte // the beginning of a rune cut by a chunk border
	n      int
	offset int64 // of the next byte that is not in carry
}

func (c *utf8Check) Write(chunk []byte) fault {
	for c.n > 0 && len(chunk) > 0 {
		c.carry[c.n] = chunk[0]
		c.n++
		c.offset++
		chunk = chunk[1:]
		if !utf8.FullRune(c.carry[:c.n]) {
			continue
		}
		if r, size := utf8.DecodeRune(c.carry[:c.n]); r == utf8.RuneError && size == 1 {
			return c.invalid(c.offset - int64(c.n))
		}
		c.n = 0
	}
	whole := len(chunk) - cutRune(chunk)
	if !utf8.Valid(chunk[:whole]) {
		return c.invalid(c.offset + int64(validPrefix(chunk[:whole])))
	}
	c.n += copy(c.carry[c.n:], chunk[whole:])
	c.offset += int64(len(chunk))
	return fault{}
}

func (c *utf8Check) Close() fault {
	if c.n > 0 {
		return c.invalid(c.offset - int64(c.n))
	}
	return fault{}
}

func (c *utf8Check) invalid(offset int64) fault { return fault{codeNotUTF8, at(offset)} }

// cutRune returns how many bytes at the end begin a rune and do not finish it.
func cutRune(chunk []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(chunk); n++ {
		tail := chunk[len(chunk)-n:]
		if utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}

func validPrefix(b []byte) int {
	i := 0
	for i < len(b) {
		r, size := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		i += size
	}
	return i
}

// crCheck refuses a carriage return that no line feed follows: some readers end
// the row there and others do not, so one file would be two tables.
type crCheck struct {
	pending bool
	offset  int64
}

func (c *crCheck) Write(chunk []byte) fault {
	if len(chunk) == 0 {
		return fault{}
	}
	if c.pending && chunk[0] != '\n' {
		return fault{codeBareCR, at(c.offset - 1)}
	}
	c.pending = false
	for i := 0; ; {
		next := bytes.IndexByte(chunk[i:], '\r')
		if next < 0 {
			break
		}
		i += next + 1
		if i == len(chunk) {
			c.pending = true
			break
		}
		if chunk[i] != '\n' {
			return fault{codeBareCR, at(c.offset + int64(i-1))}
		}
	}
	c.offset += int64(len(chunk))
	return fault{}
}

func (c *crCheck) Close() fault {
	if c.pending {
		return fault{codeBareCR, at(c.offset - 1)}
	}
	return fault{}
}

// lineCheck bounds a text's lines and counts them, an unterminated last one too.
// A carriage return is not counted into the line: it ends the line, or crCheck
// refuses it.
type lineCheck struct {
	maxLine, maxRows int64
	lines            int64 // begun or ended
	length           int64 // of the line begun
	begun            bool
}

func (c *lineCheck) Write(chunk []byte) fault {
	returns := bytes.IndexByte(chunk, '\r') >= 0 // counting in each line costs as much as all the rest
	for len(chunk) > 0 {
		if !c.begun {
			c.begun, c.length = true, 0
			c.lines++
			if c.lines > c.maxRows {
				return fault{codeTooManyRows, fmt.Sprintf("more than %d", c.maxRows)}
			}
		}
		piece, ended := chunk, false
		if i := bytes.IndexByte(chunk, '\n'); i >= 0 {
			piece, ended = chunk[:i], true
			chunk = chunk[i+1:]
		} else {
			chunk = nil
		}
		c.length += int64(len(piece))
		if returns {
			c.length -= int64(bytes.Count(piece, []byte{'\r'}))
		}
		if c.length > c.maxLine {
			return fault{codeLineTooLong, fmt.Sprintf("line %d is longer than %d bytes", c.lines, c.maxLine)}
		}
		c.begun = !ended
	}
	return fault{}
}

func (c *lineCheck) Close() fault { return fault{} }

func (c *lineCheck) rows() int64 { return c.lines }
