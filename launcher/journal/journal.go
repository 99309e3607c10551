package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// reserveBytes holds a usual attempt, some 30 records of 200 bytes, twice.
	reserveBytes = 16 << 10
	outcomeKey   = "outcome"
)

// Journal is an open journal. Its methods may be called from several goroutines.
type Journal struct {
	file *os.File
	dir  *os.File // until its entry is durable

	mu      sync.Mutex
	flushed sync.Cond // a flush ended
	state   State
	seq     uint64
	size    int64 // behind the last whole record
	durable int64 // behind the last record known to be flushed
	busy    bool  // a flush is under way, without mu
	broken  error // sticky
}

// Create makes a new journal at path, mode 0600; an existing file, or a symbolic
// link, is an error (fs.ErrExist). Nothing is durable before the first Sync.
func Create(path string) (*Journal, error) {
	return open(path, unix.O_CREAT|unix.O_EXCL)
}

// Open repairs the journal at path and opens it for more records.
func Open(path string) (*Journal, error) {
	if _, err := Repair(path); err != nil {
		return nil, err
	}
	return open(path, 0)
}

func open(path string, flags int) (*Journal, error) {
	dir, err := openDir(path)
	if err != nil {
		return nil, err
	}
	file, err := openAt(dir, path, unix.O_RDWR|unix.O_APPEND|flags)
	if err != nil {
		dir.Close()
		return nil, err
	}
	j := &Journal{file: file, dir: dir}
	j.flushed.L = &j.mu
	if flags&unix.O_CREAT != 0 {
		err = j.begin()
	} else {
		err = j.resume()
	}
	if err == nil {
		return j, nil
	}
	if flags&unix.O_EXCL != 0 {
		err = errors.Join(err, unix.Unlinkat(int(dir.Fd()), filepath.Base(path), 0))
	}
	file.Close()
	dir.Close()
	return nil, err
}

func (j *Journal) begin() error {
	if err := j.reserve(); err != nil {
		return fmt.Errorf("%w: %w", ErrWrite, err)
	}
	return j.write(header())
}

func (j *Journal) resume() error {
	c, err := scanFile(j.file)
	if err != nil {
		return err
	}
	if j.state, err = Replay(c.recs); err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	j.seq, j.size = uint64(len(c.recs)), c.good
	return nil
}

// reserve asks for room without changing the file's size. A file system that
// cannot is no error, one that has no room is.
func (j *Journal) reserve() error {
	err := retry(func() error {
		return unix.Fallocate(int(j.file.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, reserveBytes)
	})
	if err == unix.EOPNOTSUPP || err == unix.ENOSYS || err == unix.EINVAL {
		return nil
	}
	return err
}

// Append writes rec behind the records before it; it is durable after the next
// Sync. On an error the journal is as before (ErrOrder, ErrWrite: rec was
// refused) or broken, and every later call says so. Terminal events are not
// appended but decided by Terminal.
func (j *Journal) Append(rec Record) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if rec.Event == Terminal {
		return fmt.Errorf("%w: %s is recorded by deciding it", ErrOrder, Terminal)
	}
	return j.append(rec)
}

func (j *Journal) append(rec Record) error {
	if j.broken != nil {
		return j.broken
	}
	next, err := Next(j.state, rec)
	if err != nil {
		return err
	}
	rec.Seq = j.seq + 1
	if rec.Time.IsZero() {
		rec.Time = time.Now()
	}
	rec.Time = rec.Time.UTC().Round(0)
	data, err := frame(rec)
	if err != nil {
		return err
	}
	if err := j.write(data); err != nil {
		return err
	}
	j.state, j.seq = next, rec.Seq
	return nil
}

// write appends data whole or not at all.
func (j *Journal) write(data []byte) error {
	if j.size+int64(len(data)) > maxFileBytes {
		return fmt.Errorf("%w: it would be longer than %d bytes", ErrWrite, maxFileBytes)
	}
	_, err := j.file.Write(data)
	if err == nil {
		j.size += int64(len(data))
		return nil
	}
	err = fmt.Errorf("%w: %w", ErrWrite, err)
	if cut := j.file.Truncate(j.size); cut != nil {
		j.broken = fmt.Errorf("%w; the half record stays: %w", err, cut)
		return j.broken
	}
	// Cutting gives reserved room back; that it cannot be had again is what the
	// error already says.
	_ = j.reserve()
	return err
}

// Terminal records how the workload ended, if nothing ended it before. won tells
// whether this call did; the record is then durable. If it did not, the one that
// did is durable when Terminal returns, and State().Outcome() names it. After an
// error nothing is decided.
func (j *Journal) Terminal(outcome string, data map[string]string) (won bool, err error) {
	rec := Record{Event: Terminal, Data: map[string]string{}}
	for k, v := range data {
		rec.Data[k] = v
	}
	rec.Data[outcomeKey] = outcome
	j.mu.Lock()
	if !j.state.Has(Terminal) {
		err = j.append(rec)
		won = err == nil
	}
	j.mu.Unlock()
	if err == nil {
		err = j.Sync()
	}
	return won && err == nil, err
}

// State returns what the records so far, durable or not, amount to.
func (j *Journal) State() State {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.state
}

// Sync returns once every record appended before the call is durable. One flush
// serves all callers that wait for it.
func (j *Journal) Sync() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	want := j.size
	for j.broken == nil && j.durable < want {
		if j.busy {
			j.flushed.Wait()
			continue
		}
		j.flush()
	}
	return j.broken
}

// flush is called with mu held and gives it up while the disk works, so that
// appends go on.
func (j *Journal) flush() {
	upTo := j.size
	j.busy = true
	j.mu.Unlock()
	err := retry(func() error { return unix.Fdatasync(int(j.file.Fd())) })
	if err == nil && j.dir != nil {
		err = syncDir(j.dir)
	}
	j.mu.Lock()
	j.busy = false
	if err != nil {
		j.broken = fmt.Errorf("%w: flush: %w", ErrWrite, err)
	} else {
		j.durable = upTo
		if j.dir != nil {
			j.dir.Close()
			j.dir = nil
		}
	}
	j.flushed.Broadcast()
}

// Close makes every record durable and closes the file. A second call returns
// fs.ErrClosed, as does every other method after it.
func (j *Journal) Close() error {
	err := j.Sync()
	j.mu.Lock()
	defer j.mu.Unlock()
	for j.busy {
		j.flushed.Wait()
	}
	if errors.Is(j.broken, fs.ErrClosed) {
		return j.broken
	}
	j.broken = fs.ErrClosed
	if j.dir != nil {
		j.dir.Close()
	}
	return errors.Join(err, j.file.Close())
}

func openDir(path string) (*os.File, error) {
	return os.OpenFile(filepath.Dir(path), os.O_RDONLY|unix.O_DIRECTORY, 0)
}

// openAt opens the journal below its directory. O_NONBLOCK: what stands there
// may be a pipe, and opening it must not wait.
func openAt(dir *os.File, path string, flags int) (*os.File, error) {
	fd := -1
	err := retry(func() (e error) {
		fd, e = unix.Openat(int(dir.Fd()), filepath.Base(path), flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
		return e
	})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	if err := unix.SetNonblock(fd, false); err != nil {
		unix.Close(fd)
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	file := os.NewFile(uintptr(fd), path)
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		file.Close()
		return nil, errors.Join(err, fmt.Errorf("%w: %s is not a regular file", ErrCorrupt, path))
	}
	return file, nil
}

func syncDir(dir *os.File) error {
	return retry(func() error { return unix.Fsync(int(dir.Fd())) })
}

func retry(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}
