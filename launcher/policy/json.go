package policy

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"nsbox/launcher/reason"
)

// Bounds of a document. The preset uses 10 KiB, depth 4 and 34 members.
const (
	maxBytes   = 1 << 20
	maxDepth   = 16
	maxMembers = 256 // of one list or object; keeps the search for doubled keys cheap
)

type kind uint8

const (
	null kind = iota
	boolean
	number
	text
	list
	object
)

func (k kind) String() string {
	return [...]string{"null", "true or false", "a number", "a string", "a list", "an object"}[k]
}

// node is one JSON value and the line on which it starts.
type node struct {
	kind  kind
	line  int
	key   string // name within the enclosing object
	text  string // a string's content, a number's literal, true or false
	items []node // elements or members, in the file's order
}

// parser reads one document. Doubled keys are collected; broken syntax ends it.
type parser struct {
	src    string
	pos    int
	line   int
	path   []string
	faults *Faults
}

// syntax is the one fault that stops the reading.
type syntax struct {
	line int
	what string
}

// parse returns the document's tree. If ok is false the text is no JSON and the
// last fault says where it stops being so.
func parse(data []byte, faults *Faults) (root node, ok bool) {
	stop := func(line int, what, next string) {
		faults.add(Fault{ID: reason.PolicyInvalid, Line: line, What: what, Next: next})
	}
	switch {
	case len(data) > maxBytes:
		faults.add(Fault{ID: reason.PolicyTooLarge, What: fmt.Sprintf("the document is %d bytes long", len(data)), Next: "keep it below 1 MiB"})
		return node{}, false
	case bytes.HasPrefix(data, []byte("\xef\xbb\xbf")):
		stop(1, "the text starts with a byte order mark", "save the file as UTF-8 without it")
		return node{}, false
	case !utf8.Valid(data):
		line := 1
		for rest := data; len(rest) > 0; {
			r, n := utf8.DecodeRune(rest)
			if r == utf8.RuneError && n == 1 {
				break
			}
			if r == '\n' {
				line++
			}
			rest = rest[n:]
		}
		stop(line, "the text is not valid UTF-8", "save the file as UTF-8")
		return node{}, false
	}
	p := &parser{src: string(data), line: 1, faults: faults}
	root, err := p.document()
	if err != nil {
		stop(err.line, err.what, "the file has to be one JSON object; nsbox policy show sales-summary prints a whole one")
		return node{}, false
	}
	return root, true
}

func (p *parser) document() (node, *syntax) {
	p.space()
	if p.pos == len(p.src) {
		return node{}, p.fail("the document is empty")
	}
	n, err := p.value(1)
	if err != nil {
		return node{}, err
	}
	p.space()
	if p.pos < len(p.src) {
		return node{}, p.fail("there is text after the end of the document: " + p.ahead())
	}
	return n, nil
}

func (p *parser) fail(what string) *syntax { return &syntax{p.line, what} }

// ahead shows the next few characters of the file.
func (p *parser) ahead() string {
	rest := p.src[p.pos:]
	if rest == "" {
		return "the end of the file"
	}
	if i := strings.IndexAny(rest, "\r\n"); i > 0 {
		rest = rest[:i]
	}
	for i := range rest {
		if i >= 16 {
			rest = rest[:i]
			break
		}
	}
	return strconv.QuoteToASCII(rest)
}

func (p *parser) space() {
	for ; p.pos < len(p.src); p.pos++ {
		switch p.src[p.pos] {
		case '\n':
			p.line++
		case ' ', '\t', '\r':
		default:
			return
		}
	}
}

func (p *parser) peek() byte {
	if p.pos < len(p.src) {
		return p.src[p.pos]
	}
	return 0
}

func (p *parser) value(depth int) (node, *syntax) {
	if depth > maxDepth {
		return node{}, p.fail("values are nested deeper than " + strconv.Itoa(maxDepth))
	}
	n := node{line: p.line}
	var err *syntax
	switch c := p.peek(); {
	case c == '{':
		n.kind = object
		n.items, err = p.members(depth)
	case c == '[':
		n.kind = list
		n.items, err = p.elements(depth)
	case c == '"':
		n.kind = text
		n.text, err = p.str()
	case c == '-' || c >= '0' && c <= '9':
		n.kind = number
		n.text, err = p.num()
	default:
		err = p.literal(&n)
	}
	return n, err
}

func (p *parser) literal(n *node) *syntax {
	start := p.pos
	for c := p.peek(); c|0x20 >= 'a' && c|0x20 <= 'z'; c = p.peek() {
		p.pos++
	}
	switch word := p.src[start:p.pos]; word {
	case "null":
	case "true", "false":
		n.kind, n.text = boolean, word
	default:
		p.pos = start
		return p.fail("a value is expected here, found " + p.ahead())
	}
	return nil
}

func (p *parser) members(depth int) ([]node, *syntax) {
	p.pos++
	items := make([]node, 0, 4)
	for first := true; ; first = false {
		p.space()
		if first && p.peek() == '}' {
			p.pos++
			return items, nil
		}
		if p.peek() != '"' {
			return nil, p.fail("a key in double quotes is expected here, found " + p.ahead())
		}
		line := p.line
		key, err := p.str()
		if err != nil {
			return nil, err
		}
		p.space()
		if p.peek() != ':' {
			return nil, p.fail("a colon is expected after the key, found " + p.ahead())
		}
		p.pos++
		p.space()
		p.path = append(p.path, segment(key))
		item, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		item.key = key
		if doubled(items, key) {
			p.faults.add(Fault{ID: reason.PolicyInvalid, Path: joinPath(p.path), Line: line, What: "the key stands twice in one object", Next: "keep one of them"})
		} else {
			items = append(items, item)
		}
		p.path = p.path[:len(p.path)-1]
		if done, err := p.more('}', len(items)); done || err != nil {
			return items, err
		}
	}
}

func doubled(items []node, key string) bool {
	for i := range items {
		if items[i].key == key {
			return true
		}
	}
	return false
}

func (p *parser) elements(depth int) ([]node, *syntax) {
	p.pos++
	items := make([]node, 0, 4)
	for first := true; ; first = false {
		p.space()
		if first && p.peek() == ']' {
			p.pos++
			return items, nil
		}
		p.path = append(p.path, "["+strconv.Itoa(len(items))+"]")
		item, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		p.path = p.path[:len(p.path)-1]
		items = append(items, item)
		if done, err := p.more(']', len(items)); done || err != nil {
			return items, err
		}
	}
}

// more steps over the comma between members, or over the closing bracket.
func (p *parser) more(closing byte, have int) (done bool, err *syntax) {
	p.space()
	switch c := p.peek(); {
	case c == closing:
		p.pos++
		return true, nil
	case c == ',' && have >= maxMembers:
		return false, p.fail("one list or object has more than " + strconv.Itoa(maxMembers) + " members")
	case c == ',':
		p.pos++
		return false, nil
	}
	return false, p.fail("a comma or " + string(closing) + " is expected here, found " + p.ahead())
}

// segment is one step of a path; what is no plain name is quoted.
func segment(key string) string {
	for i := range len(key) {
		c := key[i]
		if !(c == '_' || c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z') {
			return strconv.QuoteToASCII(key)
		}
	}
	if key == "" || len(key) > 64 {
		return strconv.QuoteToASCII(key[:min(len(key), 64)])
	}
	return key
}

// joinPath writes steps as a.b[3].c.
func joinPath(steps []string) string {
	var b strings.Builder
	for _, s := range steps {
		if b.Len() > 0 && s[0] != '[' {
			b.WriteByte('.')
		}
		b.WriteString(s)
	}
	return b.String()
}
