package main

import (
	"io"
	"sync"
	"unicode/utf8"

	"nsbox/launcher"
)

// escaper makes bytes safe for a terminal: control characters other than
// newline and tab, DEL, C1, bytes that are no UTF-8 and the characters that
// reorder a line are written as visible escapes. Everything else passes
// unchanged. A character split across writes is held back until it is whole or
// known to be broken; Flush writes what is still held.
type escaper struct {
	to   io.Writer
	mu   sync.Mutex
	held []byte // an incomplete UTF-8 sequence, at most 3 bytes
	out  []byte // reused between writes
}

func (e *escaper) Write(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	data := p
	if len(e.held) > 0 {
		data = append(e.held, p...)
	}
	var rest []byte
	e.out, rest = appendEscaped(e.out[:0], data, false)
	e.held = append([]byte(nil), rest...)
	if _, err := e.to.Write(e.out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush writes an incomplete last character as escaped bytes.
func (e *escaper) Flush() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.held) == 0 {
		return nil
	}
	out, _ := appendEscaped(nil, e.held, true)
	e.held = nil
	_, err := e.to.Write(out)
	return err
}

// visible returns text with every unsafe character escaped, on one line:
// newlines and tabs too, so that no value can look like a line of its own.
func visible(text string) string {
	out, _ := appendEscaped(nil, []byte(text), true)
	line := make([]byte, 0, len(out))
	for _, b := range out {
		switch b {
		case '\n', '\t':
			line = appendHex(line, 'x', uint32(b), 2)
		default:
			line = append(line, b)
		}
	}
	return string(line)
}

// appendEscaped appends the safe form of data to out. Unless final, it returns
// the incomplete UTF-8 sequence at the end of data, if there is one.
func appendEscaped(out, data []byte, final bool) (safe, rest []byte) {
	for len(data) > 0 {
		if b := data[0]; b < utf8.RuneSelf {
			if (b < 0x20 && b != '\n' && b != '\t') || b == 0x7f {
				out = appendHex(out, 'x', uint32(b), 2)
			} else {
				out = append(out, b)
			}
			data = data[1:]
			continue
		}
		if !final && !utf8.FullRune(data) {
			return out, data
		}
		r, size := utf8.DecodeRune(data)
		switch {
		case r == utf8.RuneError && size == 1:
			out = appendHex(out, 'x', uint32(data[0]), 2)
		case launcher.Steers(r):
			out = appendHex(out, 'u', uint32(r), 4)
		default:
			out = append(out, data[:size]...)
		}
		data = data[size:]
	}
	return out, nil
}

func appendHex(out []byte, kind byte, v uint32, digits int) []byte {
	const hex = "0123456789abcdef"
	out = append(out, '\\', kind)
	for i := digits - 1; i >= 0; i-- {
		out = append(out, hex[v>>(4*i)&0xf])
	}
	return out
}
