package exporter

import (
	"bytes"
	"encoding/csv"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestCSVStructure(t *testing.T) {
	for _, c := range []struct {
		name, data string
		codes      []string // none: accepted
		rows       int64
	}{
		{"quoted", `"a","b"` + "\n1,2\n", nil, 2},
		{"quoted comma", "a,b\n\"1,2\",3\n", nil, 2},
		{"quoted line feeds", "a,b\n\"1\n\n2\",3\n", nil, 2},
		{"quoted crlf", "a,b\r\n\"1\r\n2\",3\r\n", nil, 2},
		{"doubled quotes", "a\n\"\"\"\"\n", nil, 2},
		{"quoted empty", "a,b\n\"\",\"\"\n", nil, 2},
		{"quoted at the end, open", "a,b\n1,\"2\"", nil, 2},
		{"empty at the end, open", "a,b\n1,", nil, 2},
		{"mixed ends", "a\r\nb\n", nil, 2},
		{"empty line of one column", "a\n\n", nil, 2},
		{"empty line of two columns", "a,b\n\n", []string{codeCSVFields}, 0},
		{"a field more", "a,b\n1,2,3\n", []string{codeCSVFields}, 0},
		{"a field less", "a,b\n1\n", []string{codeCSVFields}, 0},
		{"a field less, open", "a,b\n1", []string{codeCSVFields}, 0},
		{"a field more after a quoted break", "a,b\n\"1\n2\",3,4\n", []string{codeCSVFields}, 0},
		{"unbalanced", "a,b\n\"1,2\n", []string{codeCSVQuote}, 0},
		{"only a quote", `"`, []string{codeCSVQuote}, 0},
		{"quote in a plain field", "a\n1\"2\n", []string{codeCSVQuote}, 0},
		{"quote after a blank", "a,b\n1, \"2\"\n", []string{codeCSVQuote}, 0},
		{"text after a quoted field", "a\n\"1\"2\n", []string{codeCSVQuote}, 0},
		{"blank after a quoted field", "a\n\"1\" \n", []string{codeCSVQuote}, 0},
		{"three quotes", "a\n\"\"\"\n", []string{codeCSVQuote}, 0},
		{"record at the cap", "\"2345\n789\"\n", nil, 1},
		{"record beyond the cap, its lines not", "\"2345\n7890\"\n", []string{codeLineTooLong}, 0},
		{"records at the cap, lines beyond", "a\n\"\n\n\n\"\n\n", nil, 3},
		{"records beyond", "a\n\"\n\"\n\n\n", []string{codeTooManyRows}, 0},
		{"bare cr after a quoted field", "\"a\"\rb\n", []string{codeBareCR}, 0},
		{"quoted bare cr", "\"a\rb\"\n", []string{codeBareCR}, 0},
		{"cr at the end", "\"a\"\r", []string{codeBareCR}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			for size := 1; size <= len(c.data); size++ {
				codes, rows := stream([]byte(c.data), smallBounds(), Rule{}, func(int) int { return size })
				if !slices.Equal(codes, c.codes) || codes == nil && rows != c.rows {
					t.Errorf("in chunks of %d: %v and %d rows, want %v and %d", size, codes, rows, c.codes, c.rows)
				}
			}
		})
	}
}

func TestByteOrderMarkWhereAllowed(t *testing.T) {
	b := smallBounds()
	b.AllowBOM = true
	for data, want := range map[string][]string{
		bom + "\"a\",b\n":                nil,
		bom + "a,\"b\"\n1,2\n":           nil,
		bom:                              nil,
		"\"a\",b\n":                      nil,
		"\uffee,b\n":                     nil, // begins with one byte of the mark
		"\xef":                           {codeNotUTF8},
		"\xef\xbb":                       {codeNotUTF8},
		bom + bom + "\"a\"\n":            {codeCSVQuote}, // the second is content
		bom + strings.Repeat("1", 11):    {codeLineTooLong},
		bom + "a\n" + bom + "\"quoted\"": {codeCSVQuote},
	} {
		for size := 1; size <= len(data); size++ {
			if codes, _ := stream([]byte(data), b, Rule{}, func(int) int { return size }); !slices.Equal(codes, want) {
				t.Errorf("%q in chunks of %d: %v, want %v", data, size, codes, want)
			}
		}
	}
	for _, data := range []string{bom, bom + "a\n"} {
		if codes, _ := stream([]byte(data), smallBounds(), Rule{}, func(int) int { return 1 }); !slices.Equal(codes, []string{codeBOM}) {
			t.Errorf("%q by default: %v", data, codes)
		}
	}
}

func TestFormulas(t *testing.T) {
	b := testBounds()
	b.CSVFormula = FormulaReject
	for _, cell := range []string{
		"=1+1", "@SUM(A1)", "+A1", "-A1", "-E1", "-1+2", "+1-cmd|' /C calc'!A0", "=", "@", " =1", "  @x", "\t=1", "x;=1", "x|=1", "x\t-A1",
		"1;@x", "=1", "＠x", "＋x", "－x", "-1e1e1", "-1e", "--1", "-1E+2.5", "x\n=1", "-(1)", "-2+3",
	} {
		t.Run(cell, func(t *testing.T) {
			quoted := `"` + cell + `"`
			forms := []string{"a,b\n1," + quoted + "\n", quoted + ",b\n", quoted}
			if !strings.ContainsAny(cell, "\n") {
				forms = append(forms, "a,b\n"+cell+",1\n", cell)
			}
			if cell == "-1e" { // a whole cell of it is text to a spreadsheet, and so it is let pass
				return
			}
			for _, data := range forms {
				if codes, _ := stream([]byte(data), b, Rule{}, func(int) int { return 3 }); !slices.Equal(codes, []string{codeCSVFormula}) {
					t.Errorf("%q: %v", data, codes)
				}
				if codes, _ := stream([]byte(data), testBounds(), Rule{}, func(int) int { return 3 }); codes != nil {
					t.Errorf("%q is refused though formulas are allowed: %v", data, codes)
				}
			}
		})
	}
	for _, cell := range []string{"", "1", "-1", "+1", "-1.5", "-1,5", "-.5", "-1e10", "+1E-10", "-5%", "-", "+", "- 3", "a=b", "x@y.z", "2-1", "a-b", "'=1", "\"\"=1", "ï", "＃", "\uff1c", "a b"} {
		for _, data := range []string{"a,b\n1,\"" + cell + "\"\n", `"` + cell + "\",b\n", `"` + cell + `"`} {
			if codes, _ := stream([]byte(data), b, Rule{}, func(int) int { return 2 }); codes != nil {
				t.Errorf("%q: %v", data, codes)
			}
		}
	}
}

// FuzzCSV holds the streaming check against encoding/csv, both ways, and against
// itself in other chunks.
func FuzzCSV(f *testing.F) {
	for _, s := range []string{
		"a,b\r\n1,2\n", "a,b\n\"x\ny\",\"\"\"\"\n", "a\n\n", ",\n,", "\"a\"\r\n", "\"", "a\"b", "\"a\"b", "𝄞,€\n1,2", "\r\n", "a,b\n1", "\"\"\n\"\"",
		"a,b\n=1,-2\n", "\xef\xbb\xbfa,b\n", "\"\r\n\"\n", "x\n\"y\n\n\nz\"",
	} {
		f.Add([]byte(s), byte(1))
		f.Add([]byte(s), byte(4))
	}
	f.Fuzz(func(t *testing.T, data []byte, step byte) {
		b := testBounds()
		b.MaxLine, b.MaxRows = 64, 16
		codes, rows := stream(data, b, Rule{}, func(at int) int { return 1 + (at*7+int(step))%(1+int(step)) })
		whole, wholeRows := stream(data, b, Rule{}, func(int) int { return len(data) })
		if (codes == nil) != (whole == nil) || codes == nil && rows != wholeRows {
			t.Fatalf("%q: %v and %d rows in chunks, %v and %d as a whole", data, codes, rows, whole, wholeRows)
		}
		r := csv.NewReader(bytes.NewReader(data))
		records, err := r.ReadAll()
		if codes == nil {
			accepted(t, data, records, err, rows)
			strict := b
			strict.CSVFormula = FormulaReject
			refused, n := stream(data, strict, Rule{}, func(int) int { return 1 })
			if dangerous := slices.ContainsFunc(records, func(cells []string) bool { return slices.ContainsFunc(cells, obviousFormula) }); dangerous && refused == nil {
				t.Fatalf("%q: a formula passes", data)
			}
			if refused == nil && n != rows || refused != nil && !slices.Equal(refused, []string{codeCSVFormula}) {
				t.Fatalf("%q: with the formula rule: %v, %d rows", data, refused, n)
			}
			return
		}
		if err == nil && readable(data) && !slices.Contains(whole, codeTooManyRows) && !slices.Contains(whole, codeLineTooLong) && match(data, false).code == "" {
			t.Fatalf("%q: %v, but encoding/csv reads %q", data, codes, records)
		}
	})
}

// accepted wants encoding/csv to read the same table. It skips empty lines, which
// only a file of one column may have.
func accepted(t *testing.T, data []byte, records [][]string, err error, rows int64) {
	t.Helper()
	if err != nil {
		t.Fatalf("%q: accepted, and encoding/csv says %v", data, err)
	}
	n, columns := int64(len(records)), 1
	if n > 0 {
		columns = len(records[0])
	}
	if n > rows || n < rows && columns > 1 {
		t.Fatalf("%q: %d rows, encoding/csv reads %d", data, rows, n)
	}
	if mine := simpleParse(data); !slices.EqualFunc(mine, records, slices.Equal[[]string]) {
		t.Fatalf("%q: by the grammar %q, encoding/csv reads %q", data, mine, records)
	}
}

// simpleParse reads accepted CSV in the plainest way, without empty lines.
func simpleParse(data []byte) (records [][]string) {
	s := strings.ReplaceAll(string(data), "\r\n", "\n")
	for s != "" {
		if s[0] == '\n' {
			s = s[1:]
			continue
		}
		var record []string
		for more := true; more; {
			var cell string
			if strings.HasPrefix(s, `"`) {
				s = s[1:]
				for {
					part, rest, _ := strings.Cut(s, `"`)
					cell, s = cell+part, rest
					if !strings.HasPrefix(s, `"`) {
						break
					}
					cell, s = cell+`"`, s[1:]
				}
			} else {
				end := strings.IndexAny(s, ",\n")
				if end < 0 {
					end = len(s)
				}
				cell, s = s[:end], s[end:]
			}
			record = append(record, cell)
			more = strings.HasPrefix(s, ",")
			if s != "" {
				s = s[1:]
			}
		}
		records = append(records, record)
	}
	return records
}

// readable is the part of our rules that encoding/csv does not have.
func readable(data []byte) bool {
	bare := bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	return utf8.Valid(data) && bytes.IndexByte(data, 0) < 0 && !bytes.Contains(bare, []byte("\r")) &&
		!bytes.HasPrefix(bare, []byte("\n")) && !bytes.Contains(bare, []byte("\n\n")) && !bytes.HasPrefix(data, []byte(bom))
}

func obviousFormula(cell string) bool {
	return cell != "" && (cell[0] == '=' || cell[0] == '@' || strings.IndexByte("+-", cell[0]) >= 0 && strings.ContainsAny(cell, "()!:") && !strings.ContainsAny(cell, ";|\t\n"))
}
