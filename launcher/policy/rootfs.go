package policy

import (
	"slices"
	"strconv"
	"strings"

	"nsbox/launcher/reason"
)

// rootfsKey is the optional object "rootfs": at most one of host, directory and
// oci names where the box's read-only root comes from. The spec's own document
// does not have it.
type rootfsKey struct {
	Host      *HostRoot      `json:"host,omitempty"`
	Directory *DirectoryRoot `json:"directory,omitempty"`
	OCI       *OCIRoot       `json:"oci,omitempty"`

	// Prepared is what nsbox prep made, on the interpreter's own search path.
	Prepared *Prepared `json:"prepared,omitempty"`
	// VerifyBeforeStart reads and hashes every byte of the root (directory, oci)
	// and of the prepared packages again before each start.
	VerifyBeforeStart bool `json:"verify_before_start,omitempty"`
}

// RootSource is where the box's root comes from: a ClosureRoot, HostRoot,
// DirectoryRoot or OCIRoot, and no other.
type RootSource interface{ rootSource() }

// ClosureRoot is the program with every host file it needs, and no other.
type ClosureRoot struct{}

// HostRoot is a list of host directories, each at its own path in the box.
type HostRoot struct {
	Directories []string `json:"directories"` // clean absolute paths, none below another
}

// DirectoryRoot is a directory of the host that holds a whole root.
type DirectoryRoot struct {
	Path   string `json:"path"`
	Digest string `json:"digest"` // "sha256:" and hex, of its content as nsbox store digest shows it
}

// OCIRoot is an image of an OCI image layout directory.
type OCIRoot struct {
	Layout string `json:"layout"`
	Digest string `json:"digest"` // of the image's manifest
}

func (ClosureRoot) rootSource()   {}
func (HostRoot) rootSource()      {}
func (DirectoryRoot) rootSource() {}
func (OCIRoot) rootSource()       {}

// Prepared names packages in the store.
type Prepared struct {
	Name   string `json:"name"`
	Digest string `json:"digest"` // of their content
}

// Root returns where the box's root comes from.
func (p *Policy) Root() RootSource {
	switch r := p.Rootfs; {
	case r == nil:
	case r.Host != nil:
		return *r.Host
	case r.Directory != nil:
		return *r.Directory
	case r.OCI != nil:
		return *r.OCI
	}
	return ClosureRoot{}
}

// Prepared returns the packages that the policy names, or nil.
func (p *Policy) Prepared() *Prepared {
	if p.Rootfs == nil {
		return nil
	}
	return p.Rootfs.Prepared
}

// VerifyBeforeStart reports whether the root is to be hashed again before each start.
func (p *Policy) VerifyBeforeStart() bool { return p.Rootfs != nil && p.Rootfs.VerifyBeforeStart }

// maxDirectories bounds the list of host directories.
const maxDirectories = 64

// rootfs holds the key's rules. What paths lead to is asked of the host later.
func (d *decoder) rootfs(p *Policy) {
	const key = "rootfs"
	_, closure := p.Root().(ClosureRoot)
	if p.ProcessPolicy.ExecAllowlist == AnyProgramInRoot && closure {
		d.tell(reason.PolicyInvalid, "process_policy.exec_allowlist", strconv.Quote(AnyProgramInRoot)+" needs a root with programs, and rootfs names none", "add rootfs.host, rootfs.directory or rootfs.oci, or write "+strconv.Quote(namedProgramOnly))
	}
	r := p.Rootfs
	if r == nil {
		return
	}
	sources := 0
	for _, given := range []bool{r.Host != nil, r.Directory != nil, r.OCI != nil} {
		if given {
			sources++
		}
	}
	if sources > 1 {
		d.tell(reason.PolicyInvalid, key, "names more than one source", "keep one of host, directory and oci")
	}
	if h := r.Host; h != nil {
		d.hostDirectories(h.Directories)
	}
	if x := r.Directory; x != nil {
		d.place(key+".directory.path", x.Path)
		d.digest(key+".directory.digest", x.Digest, "copy what nsbox store digest PATH prints")
	}
	if x := r.OCI; x != nil {
		d.place(key+".oci.layout", x.Layout)
		d.digest(key+".oci.digest", x.Digest, "copy the manifest's digest from the layout's index.json")
	}
	if x := r.Prepared; x != nil {
		if !ValidName(x.Name) {
			d.tell(reason.PolicyInvalid, key+".prepared.name", strconv.QuoteToASCII(x.Name)+" is no name of prepared packages", "write "+nameRule)
		}
		d.digest(key+".prepared.digest", x.Digest, "copy what nsbox store list shows")
	}
	if r.VerifyBeforeStart && r.Directory == nil && r.OCI == nil && r.Prepared == nil {
		d.tell(reason.PolicyInvalid, key+".verify_before_start", "nothing of this root has a digest to compare with", "remove it, or name a directory, an image or prepared packages")
	}
}

func (d *decoder) hostDirectories(list []string) {
	const key = "rootfs.host.directories"
	if n := len(list); n < 1 || n > maxDirectories {
		d.tell(reason.PolicyInvalid, key, "has "+strconv.Itoa(n)+" entries", "write 1 to "+strconv.Itoa(maxDirectories)+" directories")
	}
	for i, dir := range list {
		d.place(at(key, i), dir)
		if !d.sound(at(key, i)) {
			continue
		}
		for j, other := range list[:i] {
			if d.sound(at(key, j)) && (below(dir, other) || below(other, dir)) {
				d.tell(reason.PolicyInvalid, at(key, i), strconv.Quote(dir)+" collides with "+strconv.Quote(other), "keep the upper one")
			}
		}
	}
}

// place holds a path that has to be absolute and clean, and not all of the host.
func (d *decoder) place(where, path string) {
	switch {
	case !d.sound(where):
	case !cleanAbsolute(path) || strings.ContainsRune(path, '*'):
		d.tell(reason.PolicyInvalid, where, strconv.QuoteToASCII(path)+" is no clean absolute path", "write it without //, . , .. and *")
	case path == "/":
		d.tell(reason.PolicyUnenforceable, where, "/ is the whole host", "name a directory below it")
	}
}

func (d *decoder) digest(where, text, next string) {
	if d.sound(where) && !ValidDigest(text) {
		d.tell(reason.PolicyInvalid, where, strconv.QuoteToASCII(text)+" is no sha256 digest", next)
	}
}

// ValidDigest reports whether text is "sha256:" and 64 lower-case hex digits.
func ValidDigest(text string) bool {
	hex, ok := strings.CutPrefix(text, "sha256:")
	return ok && len(hex) == 64 && strings.Trim(hex, "0123456789abcdef") == ""
}

const nameRule = "1 to 64 of a-z, 0-9, dot, dash and underscore, first a letter or digit"

// ValidName reports whether text can name prepared packages in the store.
func ValidName(text string) bool {
	const first = "abcdefghijklmnopqrstuvwxyz0123456789"
	return len(text) >= 1 && len(text) <= 64 && strings.Trim(text, first+"._-") == "" && strings.ContainsRune(first, rune(text[0]))
}

// rootfsLint explains the key.
func (p *Policy) rootfsLint(note func(path, text string)) {
	r := p.Rootfs
	if r == nil {
		return
	}
	switch s := p.Root().(type) {
	case HostRoot:
		note("rootfs.host", "the root is made of "+strings.Join(s.Directories, ", ")+" of the host as they are at each start; nothing pins their content")
	case DirectoryRoot:
		note("rootfs.directory", s.Path+" is used only while its content has this digest")
	case OCIRoot:
		note("rootfs.oci", "the image is unpacked once into the store, in a box of its own, and used from there")
	}
	if slices.ContainsFunc([]bool{r.Directory != nil, r.OCI != nil, r.Prepared != nil}, func(b bool) bool { return b }) && !r.VerifyBeforeStart {
		note("rootfs.verify_before_start", "false: bytes changed in the store are found by nsbox store verify, not by a start")
	}
}
