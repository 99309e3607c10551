package rootfs

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"

	"nsbox/nsexec"
)

// A cached closure is magic, SHA-256 of the payload, payload. The payload is a
// fixed sequence of varints and length-prefixed strings; JSON of the same content
// takes 0.6 ms to decode, ten times as long. Any change of the sequence or of how
// closures are computed raises the number in the magic.
const cacheMagic = "nsbox-closure 2\n"

var errCorrupt = errors.New("corrupt closure")

func digestOf(payload []byte) string {
	sum := sha256.Sum256(payload)
	return hex.EncodeToString(sum[:])
}

func seal(payload []byte) []byte {
	sum := sha256.Sum256(payload)
	return append(append([]byte(cacheMagic), sum[:]...), payload...)
}

func encodeClosure(c *Closure) []byte {
	var e encoder
	e.str(c.Command)
	e.str(c.Program)
	e.strs(c.Args)
	e.str(c.Real)
	e.str(c.Python)
	e.num(int64(len(c.Nodes)))
	for _, n := range c.Nodes {
		e.str(n.Path)
		e.str(string(n.Kind))
		e.str(n.Source)
		e.str(string(n.Data))
		e.num(int64(n.Mode))
		e.num(int64(n.Access))
	}
	e.num(int64(len(c.Libraries)))
	for _, l := range c.Libraries {
		e.str(l.Name)
		e.str(l.Path)
	}
	e.num(int64(len(c.Files)))
	for _, f := range c.Files {
		e.str(f.Path)
		link := int64(0)
		if f.Link {
			link = 1
		}
		for _, v := range []int64{link, int64(f.Dev), int64(f.Ino), f.Size, f.MTimeNS, f.CTimeNS} {
			e.num(v)
		}
	}
	e.strs(c.Notes)
	return e.b
}

// decodeClosure is the inverse of seal(encodeClosure(c)).
func decodeClosure(b []byte) (*Closure, error) {
	const head = len(cacheMagic) + sha256.Size
	if len(b) < head || string(b[:len(cacheMagic)]) != cacheMagic {
		return nil, errCorrupt
	}
	payload := b[head:]
	if sum := sha256.Sum256(payload); string(sum[:]) != string(b[len(cacheMagic):head]) {
		return nil, errCorrupt
	}
	d := decoder{b: payload, text: string(payload)}
	c := &Closure{Command: d.str(), Program: d.str(), Args: d.strs(), Real: d.str(), Python: d.str()}
	if n := d.count(); n > 0 {
		c.Nodes = make([]nsexec.Node, n)
	}
	for i := range c.Nodes {
		c.Nodes[i] = nsexec.Node{Path: d.str(), Kind: nsexec.NodeKind(d.str()), Source: d.str(), Data: d.bytes(), Mode: uint32(d.num()), Access: nsexec.Access(d.num())}
	}
	if n := d.count(); n > 0 {
		c.Libraries = make([]Library, n)
	}
	for i := range c.Libraries {
		c.Libraries[i] = Library{Name: d.str(), Path: d.str()}
	}
	if n := d.count(); n > 0 {
		c.Files = make([]FileID, n)
	}
	for i := range c.Files {
		c.Files[i] = FileID{Path: d.str(), Link: d.num() != 0, Dev: uint64(d.num()), Ino: uint64(d.num()), Size: d.num(), MTimeNS: d.num(), CTimeNS: d.num()}
	}
	c.Notes = d.strs()
	if d.bad || len(d.b) != 0 {
		return nil, errCorrupt
	}
	c.Digest = digestOf(payload)
	return c, nil
}

type encoder struct{ b []byte }

func (e *encoder) num(v int64) { e.b = binary.AppendVarint(e.b, v) }
func (e *encoder) str(s string) {
	e.num(int64(len(s)))
	e.b = append(e.b, s...)
}
func (e *encoder) strs(list []string) {
	e.num(int64(len(list)))
	for _, s := range list {
		e.str(s)
	}
}

// decoder reads zero values once it has met a fault; bad is looked at last.
type decoder struct {
	b    []byte
	text string // ends where b ends; strings are cut from it without a copy each
	bad  bool
}

func (d *decoder) num() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

// count reads a length; each element takes at least a byte, so a larger one is
// a fault and never an allocation.
func (d *decoder) count() int {
	v := d.num()
	if v < 0 || v > int64(len(d.b)) {
		d.bad, d.b = true, nil
		return 0
	}
	return int(v)
}

func (d *decoder) str() string {
	n := d.count()
	at := len(d.text) - len(d.b)
	d.b = d.b[n:]
	return d.text[at : at+n]
}

// bytes is nil for none, as in what was encoded.
func (d *decoder) bytes() []byte {
	if s := d.str(); s != "" {
		return []byte(s)
	}
	return nil
}

func (d *decoder) strs() []string {
	n := d.count()
	if n == 0 {
		return nil
	}
	out := make([]string, n)
	for i := range out {
		out[i] = d.str()
	}
	return out
}
