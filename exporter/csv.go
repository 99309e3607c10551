package exporter

import (
	"bytes"
	"fmt"
)

// csvCheck holds a file to RFC 4180 with the comma: a quote opens a field or
// stands doubled in a quoted one, nothing follows a closing quote, every record
// has as many fields as the first. Readers disagree on everything else, and one
// file must not be two tables. An empty line is a record of one empty field. A
// record is bounded as a whole, since that is what a reader holds in memory.
//
// A carriage return counts as the first half of a record's end; that a line feed
// follows it is crCheck's to hold.
type csvCheck struct {
	maxRecord, maxRows int64
	formulas           *formulaScan // nil: cells may hold formulas
	bom                int          // bytes of a byte order mark still to be skipped, if they come

	state   csvState
	records int64 // begun or ended
	length  int64 // bytes of the record begun, without its end
	fields  int64 // of the record begun, the one at hand included
	want    int64 // fields of the first record
}

type csvState uint8

const (
	recordStart csvState = iota
	fieldStart
	plainField
	quotedField
	quoteInQuoted // the end of the field, or half of a doubled quote
	returnSeen
)

const bom = "\xef\xbb\xbf"

func newCSVCheck(b Bounds) *csvCheck {
	c := &csvCheck{maxRecord: b.MaxLine, maxRows: b.MaxRows}
	if b.CSVFormula == FormulaReject {
		c.formulas = &formulaScan{}
	}
	if b.AllowBOM {
		c.bom = len(bom)
	}
	return c
}

func (c *csvCheck) rows() int64 { return c.records }

func (c *csvCheck) Write(chunk []byte) fault {
	for c.bom > 0 && len(chunk) > 0 {
		if chunk[0] != bom[len(bom)-c.bom] {
			// Part of a mark is no mark: what was skipped was content.
			begun := bom[:len(bom)-c.bom]
			c.bom = 0
			for i := range len(begun) {
				if f := c.step(begun[i]); f.code != "" {
					return f
				}
			}
			break
		}
		c.bom--
		chunk = chunk[1:]
	}
	for len(chunk) > 0 {
		if c.state == recordStart && c.formulas == nil {
			n, f := c.unquoted(chunk)
			if f.code != "" {
				return f
			}
			if chunk = chunk[n:]; len(chunk) == 0 {
				break
			}
		}
		n := c.run(chunk)
		if n == 0 {
			if f := c.step(chunk[0]); f.code != "" {
				return f
			}
			chunk = chunk[1:]
			continue
		}
		if c.length += int64(n); c.length > c.maxRecord {
			return c.tooLong()
		}
		chunk = chunk[n:]
	}
	return fault{}
}

// run takes the bytes at the beginning of chunk that no rule of step decides on
// one by one, and returns how many.
func (c *csvCheck) run(chunk []byte) int {
	switch {
	case c.state == quotedField && c.formulas == nil:
		return upTo(chunk, '"')
	case c.state == quotedField && c.formulas.state == cellText:
		return textRun(chunk, '"')
	case c.state == plainField && c.formulas != nil && c.formulas.state == cellText:
		return textRun(chunk, ',')
	case c.formulas != nil || c.state != plainField && c.state != fieldStart:
		return 0
	}
	plain := chunk[:upTo(chunk, '\n')]
	plain = bytes.TrimSuffix(plain[:upTo(plain, '"')], []byte{'\r'})
	if len(plain) == 0 {
		return 0
	}
	c.fields += int64(bytes.Count(plain, []byte{','}))
	c.state = plainField
	if plain[len(plain)-1] == ',' {
		c.state = fieldStart
	}
	return len(plain)
}

// upTo returns how many bytes stand before the first b.
func upTo(chunk []byte, b byte) int {
	if i := bytes.IndexByte(chunk, b); i >= 0 {
		return i
	}
	return len(chunk)
}

// textRun returns how many bytes of a harmless cell stand before its end and
// before what a cell may begin again after.
func textRun(chunk []byte, end byte) int {
	for i, b := range chunk {
		switch b {
		case end, '"', '\n', '\r', ';', '|', '\t':
			return i
		}
	}
	return len(chunk)
}

// unquoted takes the whole records that stand before the first quote, of most
// files nearly all, and returns how many bytes that were. Its loop is most of what
// the checks cost.
func (c *csvCheck) unquoted(chunk []byte) (taken int, f fault) {
	chunk = chunk[:upTo(chunk, '"')]
	for {
		end := bytes.IndexByte(chunk[taken:], '\n')
		if end < 0 {
			return taken, fault{}
		}
		record := chunk[taken : taken+end]
		if end > 0 && record[end-1] == '\r' {
			record = record[:end-1]
		}
		c.records++
		c.length, c.fields = int64(len(record)), int64(bytes.Count(record, []byte{','}))+1
		if c.records > c.maxRows || c.length > c.maxRecord || c.fields != c.want {
			if f := c.whole(); f.code != "" {
				return taken, f
			}
		}
		taken += end + 1
	}
}

// whole is what step would say of a record that was taken at once.
func (c *csvCheck) whole() fault {
	switch {
	case c.records > c.maxRows:
		return c.tooMany()
	case c.length > c.maxRecord:
		return c.tooLong()
	}
	return c.end()
}

func (c *csvCheck) step(b byte) fault {
	if c.state == recordStart {
		if f := c.begin(); f.code != "" {
			return f
		}
		c.state = fieldStart
	}
	switch c.state {
	case returnSeen:
		if b == '\n' {
			return c.end()
		}
		return fault{}
	case quotedField:
		if b == '"' {
			c.state = quoteInQuoted
			return c.grow()
		}
		return c.content(b)
	case quoteInQuoted:
		if b == '"' {
			c.state = quotedField
			return c.content(b)
		}
	}
	switch b {
	case '\n':
		return c.end()
	case '\r':
		c.state = returnSeen
		return fault{}
	case ',':
		c.state = fieldStart
		c.fields++
		if c.formulas != nil {
			*c.formulas = formulaScan{}
		}
		return c.grow()
	case '"':
		if c.state != fieldStart {
			return fault{codeCSVQuote, c.where("a quote stands inside an unquoted field")}
		}
		c.state = quotedField
		return c.grow()
	}
	if c.state == quoteInQuoted {
		return fault{codeCSVQuote, c.where("something follows the closing quote")}
	}
	c.state = plainField
	return c.content(b)
}

// content takes one byte of a cell.
func (c *csvCheck) content(b byte) fault {
	if c.formulas != nil && !c.formulas.harmless(b) {
		return fault{codeCSVFormula, c.where("a spreadsheet would take the cell for a formula")}
	}
	return c.grow()
}

func (c *csvCheck) grow() fault {
	c.length++
	if c.length > c.maxRecord {
		return c.tooLong()
	}
	return fault{}
}

func (c *csvCheck) begin() fault {
	c.records++
	c.length, c.fields = 0, 1
	if c.formulas != nil {
		*c.formulas = formulaScan{}
	}
	if c.records > c.maxRows {
		return c.tooMany()
	}
	return fault{}
}

func (c *csvCheck) end() fault {
	c.state = recordStart
	if c.want == 0 {
		c.want = c.fields
	}
	if c.fields != c.want {
		return fault{codeCSVFields, fmt.Sprintf("record %d has %d fields, the first has %d", c.records, c.fields, c.want)}
	}
	return fault{}
}

func (c *csvCheck) Close() fault {
	switch c.state {
	case recordStart, returnSeen: // a return at the end is crCheck's
		return fault{}
	case quotedField:
		return fault{codeCSVQuote, c.where("the file ends inside a quoted field")}
	}
	return c.end()
}

func (c *csvCheck) tooMany() fault {
	return fault{codeTooManyRows, fmt.Sprintf("more than %d", c.maxRows)}
}

func (c *csvCheck) tooLong() fault {
	return fault{codeLineTooLong, fmt.Sprintf("record %d is longer than %d bytes", c.records, c.maxRecord)}
}

func (c *csvCheck) where(what string) string {
	return fmt.Sprintf("record %d, field %d: %s", c.records, c.fields, what)
}
