package launcher

import (
	"fmt"
	"unicode"
	"unicode/utf8"
)

// Steers tells the characters above ASCII that steer a terminal (C1), reorder
// what a person reads (Unicode's Bidi_Control) or end a line (U+2028, U+2029).
func Steers(r rune) bool {
	return (r >= 0x80 && r <= 0x9f) || r == 0x2028 || r == 0x2029 || unicode.Is(unicode.Bidi_Control, r)
}

// SafeJSON escapes, in the syntax of JSON, the characters that encoding/json
// leaves as they are though a terminal obeys them. The document stays equal.
func SafeJSON(doc []byte) []byte {
	out := make([]byte, 0, len(doc))
	for len(doc) > 0 {
		r, size := utf8.DecodeRune(doc)
		if r == 0x7f || Steers(r) {
			out = fmt.Appendf(out, `\u%04x`, r)
		} else {
			out = append(out, doc[:size]...)
		}
		doc = doc[size:]
	}
	return out
}
