package exporter

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"nsbox/exporter/raw"
)

// surveyed is a file that may be copied: its handle and what its name led to.
type surveyed struct {
	handle Handle
	id     identity
}

// survey looks at every entry and adds a finding for each fault. It returns the
// files to copy, in the order of the allowed names.
func (e *examination) survey() []surveyed {
	names, err := list(e.dir, e.req.Bounds.MaxEntries)
	e.report.Entries = len(names)
	if err != nil {
		e.report.add(codeListFailed, "", err.Error())
		return nil
	}
	if len(names) > e.req.Bounds.MaxEntries {
		e.report.add(codeTooManyEntries, "", fmt.Sprintf("more than %d", e.req.Bounds.MaxEntries))
		return nil
	}
	found := make([]*surveyed, len(e.req.Names))
	regular := 0
	for _, name := range names {
		id, err := statName(e.dir, name)
		if err != nil {
			e.report.add(codeStatFailed, name, err.Error())
			continue
		}
		if id.typeCode() == "" {
			regular++
		}
		i := slices.IndexFunc(e.req.Names, func(h Handle) bool { return h.Name == name })
		var h *Handle
		if i >= 0 {
			h = &e.req.Names[i]
		}
		e.entry(name, id, h)
		if h != nil && h.FD >= 0 {
			found[i] = &surveyed{*h, id}
		}
	}
	if regular > e.req.Bounds.FileCount {
		e.report.add(codeTooManyFiles, "", fmt.Sprintf("%d, want at most %d", regular, e.req.Bounds.FileCount))
	}
	e.unlisted(names)
	var files []surveyed
	for _, f := range found {
		if f != nil {
			files = append(files, *f)
		}
	}
	return files
}

// entry adds the faults of one entry. The order is that of the report: what the
// entry is, then whose it is, then how large.
func (e *examination) entry(name string, id identity, h *Handle) {
	if h == nil {
		e.report.add(codeNameNotAllowed, name, "")
	}
	if id.Dev != e.root.Dev {
		e.report.add(codeOtherFilesystem, name, "")
	}
	if id.UID != e.req.OwnerUID || id.GID != e.req.OwnerGID {
		e.report.add(codeWrongOwner, name, fmt.Sprintf("is %d:%d, want %d:%d", id.UID, id.GID, e.req.OwnerUID, e.req.OwnerGID))
	}
	if code := id.typeCode(); code != "" {
		e.report.add(code, name, "")
		return
	}
	if id.Nlink > 1 {
		e.report.add(codeHardlink, name, fmt.Sprintf("has %d names", id.Nlink))
	}
	if most := e.req.Bounds.rule(name).Bytes; id.Size > most {
		e.report.add(codeTooLarge, name, fmt.Sprintf("%d bytes, want at most %d", id.Size, most))
	}
	if h != nil && h.FD < 0 {
		e.report.add(codeOpenFailed, name, unix.Errno(h.Errno).Error())
	}
}

// unlisted adds a finding for each allowed name that could be opened, or failed
// to open otherwise than by being absent, although the listing does not show it:
// such a directory must not pass as empty.
func (e *examination) unlisted(names []string) {
	for _, h := range e.req.Names {
		switch {
		case slices.Contains(names, h.Name):
		case h.FD >= 0:
			e.report.add(codeChanged, h.Name, "was opened but is not listed")
		case unix.Errno(h.Errno) != unix.ENOENT:
			e.report.add(codeOpenFailed, h.Name, unix.Errno(h.Errno).Error())
		}
	}
}

// list returns the sorted names in dir, at most most+1 of them: one more tells
// the caller that there are too many.
func list(dir, most int) ([]string, error) {
	if err := raw.Rewind(dir); err != nil {
		return nil, err
	}
	var names []string
	buf := make([]byte, 16<<10)
	for len(names) <= most {
		n, err := raw.Getdents(dir, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return names, err
		}
		if n == 0 {
			break
		}
		for rest := buf[:n]; len(rest) > 0 && len(names) <= most; {
			var used int
			used, _, names = unix.ParseDirent(rest, most+1-len(names), names)
			if used == 0 {
				break
			}
			rest = rest[used:]
		}
	}
	slices.Sort(names)
	return names, nil
}
