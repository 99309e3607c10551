package exporter

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"golang.org/x/sys/unix"
)

// chunkBytes is how much of the file is in memory at a time.
const chunkBytes = 64 << 10

// Examine surveys the directory dir, checks and copies the one file that may
// leave into staging, and returns the report. It uses descriptors only and
// blocks on none; whatever is not a regular file is never read. Every failure is
// a finding. staging must be write-only, regular and empty; unless the verdict
// is ACCEPTED it is empty afterwards (one that was not is left as it was found).
func Examine(dir, staging int, req Request) Report {
	return examine(dir, staging, req, standardChecks)
}

type examination struct {
	dir, staging int
	req          Request
	root         identity // of dir, before anything was looked at
	report       Report
}

func examine(dir, staging int, req Request, pipeline func(Bounds) checks) (report Report) {
	e := &examination{dir: dir, staging: staging, req: req}
	if err := e.prepare(); err != nil {
		e.report.add(codeBadRequest, "", err.Error())
		return e.rejected()
	}
	defer func() {
		// The panic's value is not reported: it may hold a part of the content.
		if recover() != nil {
			e.report.add(codeInternal, "", "the exporter panicked")
			report = e.reject()
		}
	}()
	file, id := e.survey()
	if len(e.report.Reasons) == 0 && file != nil {
		e.copy(*file, id, pipeline(req.Bounds))
	}
	e.recheck()
	switch {
	case len(e.report.Reasons) > 0:
		return e.reject()
	case file == nil:
		e.report.Verdict = Empty
		return e.report
	}
	e.report.Verdict = Accepted
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
	staged, err := statFD(e.staging)
	if err != nil {
		return fmt.Errorf("staging descriptor: %w", err)
	}
	flags, err := unix.FcntlInt(uintptr(e.staging), unix.F_GETFL, 0)
	if err != nil {
		return fmt.Errorf("staging descriptor: %w", err)
	}
	if staged.typeCode() != "" || staged.Size != 0 || flags&unix.O_ACCMODE != unix.O_WRONLY || flags&unix.O_APPEND != 0 {
		return fmt.Errorf("staging descriptor: not an empty regular file, write-only and without append")
	}
	return nil
}

// copy reads the file once. Its name was surveyed as id.
func (e *examination) copy(file Handle, id identity, pipeline checks) {
	opened, err := statFD(file.FD)
	if err != nil {
		e.report.add(codeStatFailed, file.Name, err.Error())
		return
	}
	if d := id.difference(opened); d != "" {
		e.report.add(codeChanged, file.Name, d)
		return
	}
	sum := sha256.New()
	buf := make([]byte, chunkBytes)
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
		if total+int64(n) > e.req.Bounds.FileBytes {
			e.report.add(codeTooLarge, file.Name, fmt.Sprintf("more than %d bytes were read", e.req.Bounds.FileBytes))
			return
		}
		if !e.passes(file.Name, pipeline.write(buf[:n])) {
			return
		}
		sum.Write(buf[:n])
		if err := pwriteAll(e.staging, buf[:n], total); err != nil {
			e.report.add(codeWriteFailed, file.Name, err.Error())
			return
		}
		total += int64(n)
	}
	if !e.passes(file.Name, pipeline.close()) {
		return
	}
	e.finish(file, id, total)
	if len(e.report.Reasons) == 0 {
		e.report.Name, e.report.Bytes, e.report.Rows = file.Name, total, pipeline.rows()
		e.report.SHA256 = digestPrefix + hex.EncodeToString(sum.Sum(nil))
		e.report.Source = id
	}
}

func (e *examination) passes(name string, faults []fault) bool {
	for _, f := range faults {
		e.report.add(f.code, name, f.detail)
	}
	return len(faults) == 0
}

// finish compares file and name with what was surveyed and flushes the copy.
func (e *examination) finish(file Handle, id identity, total int64) {
	now, err := statFD(file.FD)
	if err != nil {
		e.report.add(codeStatFailed, file.Name, err.Error())
		return
	}
	named, err := statName(e.dir, file.Name)
	if err != nil {
		e.report.add(codeChanged, file.Name, "the name is gone: "+err.Error())
		return
	}
	for _, d := range []string{id.difference(now), id.difference(named)} {
		if d != "" {
			e.report.add(codeChanged, file.Name, d)
			return
		}
	}
	if total != id.Size {
		e.report.add(codeChanged, file.Name, fmt.Sprintf("%d bytes were read of %d", total, id.Size))
		return
	}
	if err := retry(func() error { return unix.Fsync(e.staging) }); err != nil {
		e.report.add(codeWriteFailed, file.Name, err.Error())
		return
	}
	if staged, err := statFD(e.staging); err != nil || staged.Size != total {
		e.report.add(codeWriteFailed, file.Name, "the staging file has not the size that was written")
	}
}

// recheck compares the directory itself: an entry that came or went moves its
// times, which also covers a second listing.
func (e *examination) recheck() {
	now, err := statFD(e.dir)
	if err != nil {
		e.report.add(codeStatFailed, "", err.Error())
		return
	}
	if d := e.root.difference(now); d != "" {
		e.report.add(codeChanged, "", "/out: "+d)
	}
}

// reject empties the staging file and returns the report without the file.
func (e *examination) reject() Report {
	if err := discard(e.staging); err != nil {
		e.report.add(codeWriteFailed, "", "emptying the staging file: "+err.Error())
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
	if err := retry(func() error { return unix.Ftruncate(staging, 0) }); err != nil {
		return err
	}
	return retry(func() error { return unix.Fsync(staging) })
}

func pread(fd int, buf []byte, at int64) (n int, err error) {
	err = retry(func() (e error) { n, e = unix.Pread(fd, buf, at); return e })
	return n, err
}

func pwriteAll(fd int, data []byte, at int64) error {
	for len(data) > 0 {
		n := 0
		err := retry(func() (e error) { n, e = unix.Pwrite(fd, data, at); return e })
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
