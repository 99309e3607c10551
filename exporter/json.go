package exporter

import "fmt"

// maxJSONDepth bounds nesting: a reader that recurses must survive the file.
const maxJSONDepth = 128

// jsonCheck wants exactly one value of RFC 8259. encoding/json has the same
// grammar but holds a whole value in memory; this keeps one bit for each level.
// It does not look for doubled keys, which would need all of them.
type jsonCheck struct {
	state  jsonState
	depth  int
	object [maxJSONDepth]bool // what each open level is
	key    bool               // the string at hand is a key
	hex    int                // digits of \uXXXX still to come
	rest   string             // letters of true, false, null still to come
	offset int64
}

type jsonState uint8

const (
	jsonValue    jsonState = iota
	jsonFirst              // after [: a value or ]
	jsonFirstKey           // after {: a key or }
	jsonKey                // after a comma of an object
	jsonColon              // after a key
	jsonAfter              // after a value
	jsonString             // inside
	jsonEscape             // after a backslash
	jsonHex                // in \uXXXX
	jsonLetters            // in true, false, null
	jsonMinus              // after -
	jsonZero               // after a leading 0
	jsonDigits             // in the integer part
	jsonPoint              // after the point
	jsonFraction           // in the fraction
	jsonE                  // after e
	jsonESign              // after its sign
	jsonExponent           // in the exponent
)

func (c *jsonCheck) Write(chunk []byte) fault {
	for i, b := range chunk {
		if code := c.step(b); code == codeJSONDeep {
			return fault{code, fmt.Sprintf("more than %d levels at byte %d", maxJSONDepth, c.offset+int64(i))}
		} else if code != "" {
			return fault{code, at(c.offset + int64(i))}
		}
	}
	c.offset += int64(len(chunk))
	return fault{}
}

func (c *jsonCheck) Close() fault {
	switch c.state {
	case jsonAfter, jsonZero, jsonDigits, jsonFraction, jsonExponent:
		if c.depth == 0 {
			return fault{}
		}
	}
	return fault{codeJSONSyntax, "the file ends before the value does"}
}

func (c *jsonCheck) step(b byte) (code string) {
	digit := b >= '0' && b <= '9'
	switch c.state {
	case jsonString:
		switch {
		case b == '"' && c.key:
			c.key, c.state = false, jsonColon
		case b == '"':
			c.state = jsonAfter
		case b == '\\':
			c.state = jsonEscape
		case b < ' ':
			return codeJSONSyntax
		}
		return ""
	case jsonEscape:
		switch b {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			c.state = jsonString
		case 'u':
			c.state, c.hex = jsonHex, 4
		default:
			return codeJSONSyntax
		}
		return ""
	case jsonHex:
		if !digit && !(b >= 'a' && b <= 'f') && !(b >= 'A' && b <= 'F') {
			return codeJSONSyntax
		}
		if c.hex--; c.hex == 0 {
			c.state = jsonString
		}
		return ""
	case jsonLetters:
		if b != c.rest[0] {
			return codeJSONSyntax
		}
		if c.rest = c.rest[1:]; c.rest == "" {
			c.state = jsonAfter
		}
		return ""
	case jsonMinus, jsonZero, jsonDigits, jsonPoint, jsonFraction, jsonE, jsonESign, jsonExponent:
		next, ok := numberStep(c.state, b)
		switch {
		case ok:
			c.state = next
			return ""
		case next != jsonAfter:
			return codeJSONSyntax
		}
		c.state = jsonAfter // the number ended before b
	}
	return c.between(b)
}

// numberStep returns the next state inside a number; not ok, it returns jsonAfter
// where the number may end.
func numberStep(s jsonState, b byte) (jsonState, bool) {
	digit := b >= '0' && b <= '9'
	e := b == 'e' || b == 'E'
	switch s {
	case jsonMinus:
		if b == '0' {
			return jsonZero, true
		}
		return jsonDigits, digit
	case jsonZero, jsonDigits:
		switch {
		case digit && s == jsonDigits:
			return jsonDigits, true
		case b == '.':
			return jsonPoint, true
		case e:
			return jsonE, true
		}
		return jsonAfter, false
	case jsonPoint:
		return jsonFraction, digit
	case jsonFraction:
		switch {
		case digit:
			return jsonFraction, true
		case e:
			return jsonE, true
		}
		return jsonAfter, false
	case jsonE:
		if b == '+' || b == '-' {
			return jsonESign, true
		}
		return jsonExponent, digit
	case jsonESign:
		return jsonExponent, digit
	}
	if digit {
		return jsonExponent, true
	}
	return jsonAfter, false
}

// between handles a byte outside strings, words and numbers.
func (c *jsonCheck) between(b byte) (code string) {
	switch b {
	case ' ', '\t', '\n', '\r':
		return ""
	}
	switch c.state {
	case jsonValue:
		return c.begin(b)
	case jsonFirst:
		if b == ']' {
			return c.pop(false)
		}
		return c.begin(b)
	case jsonFirstKey, jsonKey:
		if b == '}' && c.state == jsonFirstKey {
			return c.pop(true)
		}
		if b != '"' {
			return codeJSONSyntax
		}
		c.key, c.state = true, jsonString
	case jsonColon:
		if b != ':' {
			return codeJSONSyntax
		}
		c.state = jsonValue
	case jsonAfter:
		switch {
		case b == ']' || b == '}':
			return c.pop(b == '}')
		case b != ',' || c.depth == 0:
			return codeJSONSyntax
		case c.object[c.depth-1]:
			c.state = jsonKey
		default:
			c.state = jsonValue
		}
	}
	return ""
}

func (c *jsonCheck) begin(b byte) (code string) {
	switch {
	case b == '{' || b == '[':
		if c.depth == maxJSONDepth {
			return codeJSONDeep
		}
		c.object[c.depth] = b == '{'
		c.depth++
		c.state = jsonFirst
		if b == '{' {
			c.state = jsonFirstKey
		}
	case b == '"':
		c.state = jsonString
	case b == '-':
		c.state = jsonMinus
	case b == '0':
		c.state = jsonZero
	case b >= '1' && b <= '9':
		c.state = jsonDigits
	case b == 't':
		c.state, c.rest = jsonLetters, "rue"
	case b == 'f':
		c.state, c.rest = jsonLetters, "alse"
	case b == 'n':
		c.state, c.rest = jsonLetters, "ull"
	default:
		return codeJSONSyntax
	}
	return ""
}

func (c *jsonCheck) pop(object bool) (code string) {
	if c.depth == 0 || c.object[c.depth-1] != object {
		return codeJSONSyntax
	}
	c.depth--
	c.state = jsonAfter
	return ""
}
