package policy

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	"nsbox/launcher/reason"
)

// Decode reads one document. name is how messages call it. The error lists
// every fault: errors.As finds the Faults, reason.Of the first one's id.
func Decode(name string, data []byte) (*Policy, error) {
	var faults Faults
	root, ok := parse(data, &faults)
	if !ok {
		return nil, faults.wrap(name)
	}
	p, ok := decodeTree(root, &faults)
	if !ok {
		return nil, faults.wrap(name)
	}
	return p, nil
}

// decodeTree matches a tree with a Policy; ok is false if anything is at fault.
func decodeTree(root node, faults *Faults) (p *Policy, ok bool) {
	d := &decoder{root: root, faults: faults, fields: make(map[reflect.Type][]field, 32)}
	p = new(Policy)
	d.bind(&root, reflect.ValueOf(p).Elem())
	d.validate(p)
	return p, len(*faults) == 0
}

// decoder matches the tree with Go values. The path is kept as steps and joined
// for a fault only.
type decoder struct {
	root   node
	path   []string
	faults *Faults
	fields map[reflect.Type][]field
}

// field is one key of an object, read from a struct field's json tag.
type field struct {
	key      string
	optional bool
}

func (d *decoder) fieldsOf(t reflect.Type) []field {
	if known, ok := d.fields[t]; ok {
		return known
	}
	all := make([]field, t.NumField())
	for i := range all {
		key, options, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		all[i] = field{key, options == "omitempty"}
	}
	d.fields[t] = all
	return all
}

func (d *decoder) here() string { return joinPath(d.path) }

func (d *decoder) fault(id reason.ID, line int, what, next string) {
	d.faults.add(Fault{ID: id, Path: d.here(), Line: line, What: what, Next: next})
}

// want reports whether n is of kind k, and tells a fault if not.
func (d *decoder) want(n *node, k kind) bool {
	if n.kind != k {
		d.fault(reason.PolicyInvalid, n.line, fmt.Sprintf("is %s; %s is wanted", n.kind, k), "write "+k.String())
	}
	return n.kind == k
}

func (d *decoder) bind(n *node, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		d.object(n, v)
	case reflect.Slice:
		d.list(n, v)
	case reflect.Pointer:
		if n.kind != null {
			v.Set(reflect.New(v.Type().Elem()))
			d.bind(n, v.Elem())
		}
	case reflect.String:
		if n.kind == null && v.Type() == reflect.TypeFor[Word]() {
			return
		}
		if d.want(n, text) && d.readable(n) {
			v.SetString(n.text)
		}
	case reflect.Bool:
		if d.want(n, boolean) {
			v.SetBool(n.text == "true")
		}
	case reflect.Int:
		if d.want(n, number) {
			if f, ok := d.number(n); ok && f == math.Trunc(f) {
				v.SetInt(int64(f))
			} else if ok {
				d.fault(reason.PolicyInvalid, n.line, n.text+" is not a whole number", "write a whole number")
			}
		}
	case reflect.Float64:
		if d.want(n, number) {
			if f, ok := d.number(n); ok {
				v.SetFloat(f)
			}
		}
	default:
		// A field of a kind without a rule here would otherwise accept anything.
		d.fault(reason.PolicyInvalid, n.line, "nsbox has no rule for this key", "report this as a bug of nsbox")
	}
}

func (d *decoder) object(n *node, v reflect.Value) {
	if !d.want(n, object) {
		return
	}
	fields := d.fieldsOf(v.Type())
	seen := make([]bool, len(fields))
	for i := range n.items {
		item := &n.items[i]
		d.path = append(d.path, segment(item.key))
		switch at := index(fields, item.key); {
		case at >= 0:
			seen[at] = true
			d.bind(item, v.Field(at))
		default:
			if c := d.unknown(item, fields); c >= 0 {
				// Bound all the same, so that no other rule stumbles over its absence.
				seen[c] = true
				d.bind(item, v.Field(c))
			}
		}
		d.path = d.path[:len(d.path)-1]
	}
	for i, f := range fields {
		if !seen[i] && !f.optional {
			d.path = append(d.path, f.key)
			d.fault(d.shapeID(), n.line, "the key is missing", "every key is required; take the line from nsbox policy show sales-summary")
			d.path = d.path[:len(d.path)-1]
		}
	}
}

// unknown tells that a key is not known and returns the index of the field it
// differs from by case only, or -1.
func (d *decoder) unknown(n *node, fields []field) int {
	keys := make([]string, len(fields))
	for i, f := range fields {
		if strings.EqualFold(f.key, n.key) {
			d.fault(reason.PolicyInvalid, n.line, "the key differs from "+f.key+" by case", "write "+f.key)
			return i
		}
		keys[i] = f.key
	}
	next := "remove it"
	if c := nearest(n.key, keys); c != "" {
		next = "did you mean " + c + "? otherwise remove it"
	}
	d.fault(d.shapeID(), n.line, "the key is not known", next)
	return -1
}

// shapeID is the id of a missing or additional key. Exactly A1 to A5 can be
// obeyed, so a sixth is a wish nsbox cannot fulfil rather than a typing error.
func (d *decoder) shapeID() reason.ID {
	if len(d.path) == 2 && d.path[0] == "advanced_controls" {
		return reason.PolicyUnenforceable
	}
	return reason.PolicyInvalid
}

func index(fields []field, key string) int {
	for i := range fields {
		if fields[i].key == key {
			return i
		}
	}
	return -1
}

func (d *decoder) list(n *node, v reflect.Value) {
	if !d.want(n, list) {
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.items), len(n.items)))
	for i := range n.items {
		d.path = append(d.path, "["+strconv.Itoa(i)+"]")
		d.bind(&n.items[i], v.Index(i))
		d.path = d.path[:len(d.path)-1]
	}
}

// number reads a literal that is not negative and exact in a float64's 53 bits.
func (d *decoder) number(n *node) (float64, bool) {
	bad := func(what, next string) (float64, bool) {
		d.fault(reason.PolicyInvalid, n.line, what, next)
		return 0, false
	}
	shown := n.text
	if len(shown) > 32 {
		shown = shown[:32] + "…"
	}
	f, err := strconv.ParseFloat(n.text, 64)
	switch {
	case n.text[0] == '-':
		return bad(shown+" is negative", "write a number that is not negative")
	case strings.ContainsAny(n.text, "eE"):
		return bad(shown+" is written with an exponent", "write the digits out")
	case err != nil || f >= 1<<53:
		return bad(shown+" is too large", "write a number below 2^53")
	case len(n.text) > 32:
		return bad(shown+" has more digits than can be kept", "write fewer digits")
	}
	return f, true
}

// readable refuses what could forge or hide a line when it is printed. The
// document's texts reach terminals, the journal and the result.
func (d *decoder) readable(n *node) bool {
	if n.text == "" {
		d.fault(reason.PolicyInvalid, n.line, "is an empty string", "write a text")
		return false
	}
	if len(n.text) > maxText {
		d.fault(reason.PolicyInvalid, n.line, fmt.Sprintf("is %d bytes long", len(n.text)), fmt.Sprintf("keep it within %d bytes", maxText))
		return false
	}
	for _, r := range n.text {
		if r < 0x20 || r >= 0x7f && r < 0xa0 || r >= 0x200b && r <= 0x200f || r >= 0x2028 && r <= 0x202e || r >= 0x2060 && r <= 0x206f || r == 0xfeff {
			d.fault(reason.PolicyInvalid, n.line, fmt.Sprintf("has the invisible character %U", r), "remove it")
			return false
		}
	}
	return true
}

// maxText bounds one string of the document, in bytes.
const maxText = 1024

// lineOf returns the line of a path, or of its nearest ancestor in the file.
func (d *decoder) lineOf(path string) int {
	n := &d.root
	for path != "" {
		var step string
		if path[0] == '[' {
			step, path, _ = strings.Cut(path[1:], "]")
			i, err := strconv.Atoi(step)
			if err != nil || n.kind != list || i >= len(n.items) {
				return n.line
			}
			n = &n.items[i]
		} else {
			end := strings.IndexAny(path, ".[")
			if end < 0 {
				end = len(path)
			}
			step, path = path[:end], path[end:]
			found := false
			for i := range n.items {
				if n.kind == object && n.items[i].key == step {
					n, found = &n.items[i], true
					break
				}
			}
			if !found {
				return n.line
			}
		}
		path = strings.TrimPrefix(path, ".")
	}
	return n.line
}
