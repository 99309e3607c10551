// Package lockfile reads a pip requirements file as a lock: exact versions, one
// SHA-256 each, nothing else, and holds a directory of wheels against it. Pure.
//
// The form is pip's (`pip freeze` with hashes, pip-compile --generate-hashes):
//
//	name==version --hash=sha256:64-hex-digits
//
// with comments, blank lines and continuation by a backslash. What pip would
// take from elsewhere (URLs, paths, options, extras, markers, other operators)
// is refused: the lock has to say by itself what is installed.
package lockfile

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"nsbox/launcher/reason"
)

// Pin is one line: a project in one version as one file.
type Pin struct {
	Name    string // normalised: lower case, runs of ._- as one dash
	Version string
	SHA256  string // hex
	Line    int
}

const (
	maxPins  = 1000
	maxBytes = 1 << 20
)

// Parse reads the lock. file is how messages call it. The error is a
// *reason.Error with LockInvalid.
func Parse(file string, data []byte) ([]Pin, error) {
	bad := func(line int, why string) error {
		return reason.New(reason.LockInvalid, fmt.Sprintf("%s:%d", file, line), why, "write NAME==VERSION --hash=sha256:HEX, one for each wheel, or make it with pip-compile --generate-hashes and keep one hash of each")
	}
	if len(data) > maxBytes {
		return nil, bad(1, "the file is larger than 1 MiB")
	}
	form := regexp.MustCompile(`^([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)==([A-Za-z0-9.!+_-]+)((?:\s+--hash=\S+)*)$`)
	hashForm := regexp.MustCompile(`^--hash=sha256:([0-9a-f]{64})$`)
	var pins []Pin
	lines := strings.Split(string(data), "\n")
	for i := 0; i < len(lines); i++ {
		at, text := i+1, uncomment(lines[i])
		for strings.HasSuffix(text, `\`) && i+1 < len(lines) {
			i++
			text = strings.TrimSuffix(text, `\`) + " " + uncomment(lines[i])
		}
		text = strings.TrimSpace(text)
		if text == "" {
			continue
		}
		m := form.FindStringSubmatch(text)
		if m == nil {
			return nil, bad(at, fmt.Sprintf("%q is not an exact version with a hash", short(text)))
		}
		hashes := strings.Fields(m[3])
		if len(hashes) != 1 {
			return nil, bad(at, fmt.Sprintf("%s has %d hashes, and exactly one file can be installed", m[1], len(hashes)))
		}
		h := hashForm.FindStringSubmatch(hashes[0])
		if h == nil {
			return nil, bad(at, fmt.Sprintf("%q is no sha256 hash", short(hashes[0])))
		}
		p := Pin{Name: Normal(m[1]), Version: m[2], SHA256: h[1], Line: at}
		for _, o := range pins {
			if o.Name == p.Name {
				return nil, bad(at, fmt.Sprintf("%s stands in line %d already", p.Name, o.Line))
			}
			if o.SHA256 == p.SHA256 {
				return nil, bad(at, fmt.Sprintf("its hash stands in line %d already, for %s", o.Line, o.Name))
			}
		}
		if pins = append(pins, p); len(pins) > maxPins {
			return nil, bad(at, fmt.Sprintf("there are more than %d requirements", maxPins))
		}
	}
	if len(pins) == 0 {
		return nil, bad(1, "there is no requirement in it")
	}
	return pins, nil
}

// uncomment cuts a comment, which begins a line or stands after a blank.
func uncomment(line string) string {
	line = strings.TrimRight(line, "\r")
	if i := strings.Index(" "+line, " #"); i >= 0 {
		line = line[:i]
	}
	return strings.TrimSpace(line)
}

// Normal is a project's name as packaging compares it (PEP 503).
func Normal(name string) string {
	parts := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return strings.ContainsRune("._-", r) })
	return strings.Join(parts, "-")
}

func short(s string) string {
	if len(s) > 80 {
		return s[:80] + "…"
	}
	return s
}

// Text is the lock in its plainest form, which is what the installer gets.
func Text(pins []Pin) []byte {
	var b strings.Builder
	for _, p := range pins {
		fmt.Fprintf(&b, "%s==%s --hash=sha256:%s\n", p.Name, p.Version, p.SHA256)
	}
	return []byte(b.String())
}

// File is one file of the directory of wheels.
type File struct {
	Name   string
	SHA256 string // hex
}

// Match holds the files against the lock: each pin has its file, each file its
// pin, and a file is named as its pin. The error is a *reason.Error with
// WheelRefused that names the first fault.
func Match(pins []Pin, files []File) error {
	refuse := func(what, why, next string) error { return reason.New(reason.WheelRefused, what, why, next) }
	used := map[string]string{}
	for _, f := range files {
		name, version, ok := wheelName(f.Name)
		if !ok {
			return refuse(f.Name, "is no wheel: an archive of sources would run its own code to be installed", "build a wheel of it elsewhere, and lock that; or take the file out of the directory")
		}
		i := slices.IndexFunc(pins, func(p Pin) bool { return p.SHA256 == f.SHA256 })
		if i < 0 {
			if j := slices.IndexFunc(pins, func(p Pin) bool { return p.Name == name }); j >= 0 {
				return refuse(f.Name, fmt.Sprintf("has the sha256 %s, and the lock has %s for %s", f.SHA256, pins[j].SHA256, name), "find out why the file is another one than was locked")
			}
			return refuse(f.Name, "is not in the lock: no requirement has its sha256 "+f.SHA256, "take it out of the directory, or lock it")
		}
		p := pins[i]
		if p.Name != name || p.Version != version {
			return refuse(f.Name, fmt.Sprintf("is named as another release than the lock says: %s==%s", p.Name, p.Version), "correct the lock or the file's name")
		}
		if other := used[p.SHA256]; other != "" {
			return refuse(f.Name, "is the same file as "+other, "keep one of them")
		}
		used[p.SHA256] = f.Name
	}
	for _, p := range pins {
		if used[p.SHA256] == "" {
			return refuse(fmt.Sprintf("%s==%s", p.Name, p.Version), "is in the lock and has no wheel in the directory", "add its wheel")
		}
	}
	return nil
}

// wheelName reads NAME-VERSION(-BUILD)-PYTHON-ABI-PLATFORM.whl (the binary
// distribution format, "File name convention").
func wheelName(file string) (name, version string, ok bool) {
	base, ok := strings.CutSuffix(file, ".whl")
	parts := strings.Split(base, "-")
	if !ok || len(parts) != 5 && len(parts) != 6 || slices.Contains(parts, "") {
		return "", "", false
	}
	return Normal(parts[0]), strings.ReplaceAll(parts[1], "_", "-"), true
}
