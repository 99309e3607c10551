package policy

import (
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// num checks the grammar of a number and returns its literal.
func (p *parser) num() (string, *syntax) {
	start := p.pos
	digits := func() bool {
		from := p.pos
		for c := p.peek(); c >= '0' && c <= '9'; c = p.peek() {
			p.pos++
		}
		return p.pos > from
	}
	bad := func() (string, *syntax) {
		p.pos = start
		return "", p.fail("this is no JSON number: " + p.ahead())
	}
	if p.peek() == '-' {
		p.pos++
	}
	leadingZero := p.peek() == '0'
	whole := p.pos
	if !digits() || leadingZero && p.pos > whole+1 {
		return bad()
	}
	if p.peek() == '.' {
		if p.pos++; !digits() {
			return bad()
		}
	}
	if p.peek()|0x20 == 'e' {
		p.pos++
		if c := p.peek(); c == '+' || c == '-' {
			p.pos++
		}
		if !digits() {
			return bad()
		}
	}
	return p.src[start:p.pos], nil
}

func (p *parser) str() (string, *syntax) {
	p.pos++
	start := p.pos
	for p.pos < len(p.src) {
		switch c := p.src[p.pos]; {
		case c == '"':
			p.pos++
			return p.src[start : p.pos-1], nil
		case c == '\\':
			return p.escaped(start)
		case c < 0x20:
			return "", p.fail("a control character stands inside a string")
		}
		p.pos++
	}
	return "", p.fail("a string is not closed")
}

// escaped reads the rest of a string that has at least one backslash.
func (p *parser) escaped(start int) (string, *syntax) {
	out := []byte(p.src[start:p.pos])
	for p.pos < len(p.src) {
		c := p.src[p.pos]
		p.pos++
		switch {
		case c == '"':
			return string(out), nil
		case c < 0x20:
			return "", p.fail("a control character stands inside a string")
		case c != '\\':
			out = append(out, c)
			continue
		}
		e := p.peek()
		p.pos++
		switch i := strings.IndexByte(`"\/bfnrt`, e); {
		case e == 'u':
			r := p.hex4()
			if utf16.IsSurrogate(r) && strings.HasPrefix(p.src[min(p.pos, len(p.src)):], `\u`) {
				p.pos += 2
				r = utf16.DecodeRune(r, p.hex4())
			}
			if r < 0 || utf16.IsSurrogate(r) || r == utf8.RuneError {
				return "", p.fail(`a \u escape is not one character`)
			}
			out = utf8.AppendRune(out, r)
		case i >= 0 && e != 0:
			out = append(out, "\"\\/\b\f\n\r\t"[i])
		default:
			return "", p.fail("a string has an unknown escape")
		}
	}
	return "", p.fail("a string is not closed")
}

// hex4 returns the character of four hexadecimal digits, or -1.
func (p *parser) hex4() rune {
	if p.pos+4 > len(p.src) {
		p.pos = len(p.src)
		return -1
	}
	v, err := strconv.ParseUint(p.src[p.pos:p.pos+4], 16, 16)
	p.pos += 4
	if err != nil {
		return -1
	}
	return rune(v)
}
