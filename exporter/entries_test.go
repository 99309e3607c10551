package exporter

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// FuzzEntries fills a directory as the input says and holds the verdict against
// the rules in their plainest words. Each entry is a byte for what it is and a
// name up to the next slash or NUL, which no name can hold.
func FuzzEntries(f *testing.F) {
	for _, s := range []string{
		"", "0summary.csv", "1summary.csv", "2summary.csv", "3summary.csv", "4summary.csv", "5summary.csv", "6summary.csv", "7summary.csv", "8summary.csv",
		"0summary.csv/0b", "0summary.csv\n", "0summary\xff.csv", "0SUMMARY.CSV", "0.summary.csv", "1summary.csv/1b/3c/0d", "0summary.csv ", "0" + strings.Repeat("n", 255),
		"0..summary.csv", "0...", "9summary.csv/9x", "0summary.csv/0summary.csv",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		p := newPlace(t)
		b := testBounds()
		b.FileBytes, b.MaxEntries = 64, 8
		wrong := map[string]bool{}
		entries, regular := map[string]bool{}, 0
		for _, entry := range strings.FieldsFunc(string(input), func(r rune) bool { return r == '/' || r == 0 }) {
			kind, name := entry[0]%10, entry[1:]
			if name == "" || name == "." || name == ".." || len(name) > 255 || entries[name] || len(entries) == 12 {
				continue
			}
			entries[name] = true
			code := p.plant(kind, name)
			if code == "" || code == codeHardlink || code == codeTooLarge || code == codeNUL {
				regular++
			}
			if code != "" && (code != codeNUL || name == "summary.csv") {
				wrong[code] = true
			}
			if name != "summary.csv" {
				wrong[codeNameNotAllowed] = true
			}
		}
		if regular > 1 {
			wrong[codeTooManyFiles] = true
		}
		if len(entries) > b.MaxEntries {
			wrong = map[string]bool{codeTooManyEntries: true}
		} else if len(wrong) > 1 {
			delete(wrong, codeNUL) // content is read only where no entry is wrong
		}
		r := p.examine(b)
		var want []string
		for code := range wrong {
			want = append(want, code)
		}
		got := r.Codes()
		slices.Sort(want)
		slices.Sort(got)
		verdict := Accepted
		switch {
		case len(want) > 0:
			verdict = Rejected
		case len(entries) == 0:
			verdict = Empty
		}
		if r.Verdict != verdict || !slices.Equal(got, want) {
			t.Fatalf("%q: %s %v, want %s %v\n%+v", input, r.Verdict, got, verdict, want, r.Reasons)
		}
	})
}

// plant makes one entry and returns the code it deserves apart from its name.
func (p *place) plant(kind byte, name string) string {
	p.t.Helper()
	outside := func() string {
		path := p.t.TempDir() + "/outside"
		p.check(os.WriteFile(path, []byte(canary), 0o600))
		p.check(os.Lchown(path, p.uid, p.gid))
		return path
	}
	switch kind {
	case '1' % 10:
		p.check(os.Symlink("/etc/hostname", p.at(name)))
		p.own(name)
		return codeSymlink
	case '2' % 10:
		p.check(unix.Mkfifo(p.at(name), 0o600))
		p.own(name)
		return codeFIFO
	case '3' % 10:
		p.check(os.Mkdir(p.at(name), 0o700))
		p.own(name)
		return codeDirectory
	case '4' % 10:
		p.check(unix.Mknod(p.at(name), unix.S_IFSOCK|0o600, 0))
		p.own(name)
		return codeSocket
	case '5' % 10:
		p.file(name, make([]byte, 65))
		return codeTooLarge
	case '6' % 10:
		p.check(os.Link(outside(), p.at(name)))
		return codeHardlink
	case '7' % 10:
		p.file(name, []byte("a\x00"))
		return codeNUL
	case '8' % 10:
		p.file(name, nil)
		p.check(os.Truncate(p.at(name), 1<<40)) // all hole
		return codeTooLarge
	case '9' % 10:
		p.check(os.Symlink(fmt.Sprintf("/proc/self/fd/%d", p.dir), p.at(name)))
		p.own(name)
		return codeSymlink
	}
	p.file(name, goodCSV)
	return ""
}
