package exporter

// Values of Bounds.CSVFormula.
const (
	FormulaAllow  = "allow"
	FormulaReject = "reject"
)

// formulaScan reads one cell and finds what a spreadsheet would evaluate: a cell
// that begins with = @ + - or their full-width forms. Numbers may carry a sign,
// and a sign alone is a common mark for "no value". Blanks before the cell's
// text do not count. Since a program may split at other characters than the
// comma, a cell begins again after ; | a tab and a line break.
type formulaScan struct {
	state formulaState
	prev  byte // in signed
	exp   bool // in signed: an exponent was seen
}

type formulaState uint8

const (
	cellStart formulaState = iota
	cellText
	signed  // a sign, and so far a number
	wideOne // 0xef of a full-width form
	wideTwo // 0xef 0xbc
)

// harmless takes the next byte of the cell and reports whether the cell is still
// no formula.
func (s *formulaScan) harmless(b byte) bool {
	switch b {
	case ';', '|', '\t', '\n', '\r':
		*s = formulaScan{}
		return true
	}
	switch s.state {
	case cellStart:
		switch b {
		case '=', '@':
			return false
		case '+', '-':
			s.state, s.prev = signed, b
		case ' ':
		case 0xef:
			s.state = wideOne
		default:
			s.state = cellText
		}
	case wideOne:
		s.state = cellText
		if b == 0xbc {
			s.state = wideTwo
		}
	case wideTwo:
		s.state = cellText
		switch b {
		case 0x8b, 0x8d, 0x9d, 0xa0: // full-width + - = @
			return false
		}
	case signed:
		return s.number(b)
	}
	return true
}

// number is true while what follows the sign is a decimal number: -E1 is a cell's
// name, -1E1 is not.
func (s *formulaScan) number(b byte) bool {
	digit := func(b byte) bool { return b >= '0' && b <= '9' }
	prev := s.prev
	s.prev = b
	switch {
	case digit(b), b == ' ':
		return true
	case b == '.', b == ',', b == '%':
		return !s.exp
	case b == 'e', b == 'E':
		if s.exp || !digit(prev) {
			return false
		}
		s.exp = true
		return true
	case b == '+', b == '-':
		return prev == 'e' || prev == 'E'
	}
	return false
}
