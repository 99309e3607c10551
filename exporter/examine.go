package exporter

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"nsbox/exporter/raw"
)

// chunkBytes is how much of the file is in memory at a time.
const chunkBytes = 64 << 10

// Examine surveys the directory dir, checks the files that may leave, copies each
// into its staging file and returns the report. It uses descriptors only and
// blocks on none; whatever is not a regular file is never read. Every failure is
// a finding. Each staging file must be write-only, regular and empty; unless the
// verdict is ACCEPTED all are empty afterwards (one that was not is left as it
// was found).
func Examine(dir int, req Request) Report {
	return examine(dir, req, standardChecks)
}

type examination struct {
	dir     int   // -1: one file by hand, without its directory
	staging []int // empty: nothing is copied
	req     Request
	root    identity // of dir, before anything was looked at
	opened  []int    // to be closed at the end
	report  Report
}

func examine(dir int, req Request, p pipeline) Report {
	e := &examination{dir: dir, staging: req.staging(), req: req}
	if err := e.prepare(); err != nil {
		e.report.add(codeBadRequest, "", err.Error())
		return e.rejected()
	}
	return e.run(e.survey, p)
}

// run is the examination after its descriptors were found to be good.
func (e *examination) run(survey func() []surveyed, p pipeline) (report Report) {
	defer func() {
		for _, fd := range e.opened {
			if fd >= 0 {
				raw.Close(fd)
			}
		}
		// The panic's value is not reported: it may hold a part of the content.
		if recover() != nil {
			e.report.add(codeInternal, "", "the exporter panicked")
			report = e.reject()
		}
	}()
	files := survey()
	if len(e.report.Reasons) == 0 {
		buf := make([]byte, chunkBytes)
		for i, f := range files {
			e.copy(i, f, p(e.req.Bounds, e.req.Bounds.rule(f.handle.Name)), buf)
		}
	}
	e.recheck()
	switch {
	case len(e.report.Reasons) > 0:
		return e.reject()
	case len(files) == 0:
		e.report.Verdict = Empty
		return e.report
	}
	e.report.Verdict = Accepted
	e.report.onlyFile()
	return e.report
}

// prepare refuses descriptors that are not what the launcher promises, so that
// the stage typed by hand, or handed the wrong slot, touches nothing.
func (e *examination) prepare() error {
	if err := e.req.Validate(); err != nil {
		return err
	}
	var err error
	if e.root, err = statFD(e.dir); err != nil {
		return fmt.Errorf("directory descriptor: %w", err)
	}
	if e.root.typeCode() != codeDirectory {
		return fmt.Errorf("directory descriptor: not a directory")
	}
	for _, fd := range e.staging {
		if err := emptyStaging(fd); err != nil {
			return fmt.Errorf("staging descriptor %d: %w", fd, err)
		}
	}
	return nil
}

func emptyStaging(fd int) error {
	staged, err := statFD(fd)
	if err != nil {
		return err
	}
	flags, err := raw.Fcntl(fd, unix.F_GETFL, 0)
	if err != nil {
		return err
	}
	if staged.typeCode() != "" || staged.Size != 0 || flags&unix.O_ACCMODE != unix.O_WRONLY || flags&unix.O_APPEND != 0 {
		return errors.New("not an empty regular file, write-only and without append")
	}
	return nil
}

// copy reads a file once, through the checks and a digest into staging file i.
func (e *examination) copy(i int, s surveyed, c checks, buf []byte) {
	file, most := s.handle, e.req.Bounds.rule(s.handle.Name).Bytes
	opened, err := statFD(file.FD)
	if err != nil {
		e.report.add(codeStatFailed, file.Name, err.Error())
		return
	}
	if d := s.id.difference(opened); d != "" {
		e.report.add(codeChanged, file.Name, d)
		return
	}
	sum := sha256.New()
	var total int64
	for {
		n, err := pread(file.FD, buf, total)
		if err != nil {
			e.report.add(codeReadFailed, file.Name, err.Error())
			return
		}
		if n == 0 {
			break
		}
		if total+int64(n) > most {
			e.report.add(codeTooLarge, file.Name, fmt.Sprintf("more than %d bytes were read", most))
			return
		}
		if !e.passes(file.Name, c.write(buf[:n])) {
			return
		}
		sum.Write(buf[:n])
		if e.copying() {
			if err := pwriteAll(e.staging[i], buf[:n], total); err != nil {
				e.report.add(codeWriteFailed, file.Name, err.Error())
				return
			}
		}
		total += int64(n)
	}
	if !e.passes(file.Name, c.close()) || !e.finish(i, s, total) {
		return
	}
	e.report.Files = append(e.report.Files, File{
		Name: file.Name, Type: e.req.Bounds.rule(file.Name).Type, Bytes: total, Rows: c.rows(),
		SHA256: digestPrefix + hex.EncodeToString(sum.Sum(nil)), Source: s.id,
	})
}

func (e *examination) copying() bool { return len(e.staging) > 0 }

func (e *examination) passes(name string, faults []fault) bool {
	for _, f := range faults {
		e.report.add(f.code, name, f.detail)
	}
	return len(faults) == 0
}

// finish compares file and name with what was surveyed and flushes the copy.
func (e *examination) finish(i int, s surveyed, total int64) bool {
	name := s.handle.Name
	now, err := statFD(s.handle.FD)
	if err != nil {
		e.report.add(codeStatFailed, name, err.Error())
		return false
	}
	changes := []string{s.id.difference(now)}
	if e.dir >= 0 {
		named, err := statName(e.dir, name)
		if err != nil {
			e.report.add(codeChanged, name, "the name is gone: "+err.Error())
			return false
		}
		changes = append(changes, s.id.difference(named))
	}
	if total != s.id.Size {
		changes = append(changes, fmt.Sprintf("%d bytes were read of %d", total, s.id.Size))
	}
	for _, d := range changes {
		if d != "" {
			e.report.add(codeChanged, name, d)
			return false
		}
	}
	if !e.copying() {
		return true
	}
	if err := retry(func() error { return raw.Fsync(e.staging[i]) }); err != nil {
		e.report.add(codeWriteFailed, name, err.Error())
		return false
	}
	if staged, err := statFD(e.staging[i]); err != nil || staged.Size != total {
		e.report.add(codeWriteFailed, name, "the staging file has not the size that was written")
		return false
	}
	return true
}

// recheck compares the directory itself: an entry that came or went moves its
// times, which also covers a second listing.
func (e *examination) recheck() {
	if e.dir < 0 {
		return
	}
	now, err := statFD(e.dir)
	if err != nil {
		e.report.add(codeStatFailed, "", err.Error())
		return
	}
	if d := e.root.difference(now); d != "" {
		e.report.add(codeChanged, "", "/out: "+d)
	}
}

// reject empties the staging files and returns the report without any file.
func (e *examination) reject() Report {
	for _, fd := range e.staging {
		if err := discard(fd); err != nil {
			e.report.add(codeWriteFailed, "", "emptying the staging file: "+err.Error())
		}
	}
	return e.rejected()
}

func (e *examination) rejected() Report {
	return Report{Verdict: Rejected, Reasons: e.report.Reasons, Omitted: e.report.Omitted, Entries: e.report.Entries}
}

// discard leaves no byte of a rejected file behind.
func discard(staging int) error {
	id, err := statFD(staging)
	if err != nil || id.Size == 0 {
		return err
	}
	if err := retry(func() error { return raw.Ftruncate(staging, 0) }); err != nil {
		return err
	}
	return retry(func() error { return raw.Fsync(staging) })
}

func pread(fd int, buf []byte, at int64) (n int, err error) {
	err = retry(func() (e error) { n, e = raw.Pread(fd, buf, at); return e })
	return n, err
}

func pwriteAll(fd int, data []byte, at int64) error {
	for len(data) > 0 {
		n := 0
		err := retry(func() (e error) { n, e = raw.Pwrite(fd, data, at); return e })
		if err != nil {
			return err
		}
		if n == 0 {
			return unix.EIO
		}
		data, at = data[n:], at+int64(n)
	}
	return nil
}
