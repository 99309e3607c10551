package seccompgen

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"nsbox/seccompgen/filter"
)

// A cache file is magic, length of the program (uint32, little endian), SHA-256 of
// profile digest and program, program.
const (
	cacheMagic  = "nsbxbpf1"
	cacheHeader = len(cacheMagic) + 4 + sha256.Size
)

// Cached returns the program of p from dir, or compiles it and leaves it there. dir
// is a directory of mode 0700 that belongs to the caller; anything else is an error.
// A file that is torn, changed, someone else's or writable by others is not used but
// replaced. hit says whether libseccomp was spared. A cache that cannot be written
// is no error: the program is whole and only the next call is slower.
func Cached(dir string, p Profile) (prog filter.Program, hit bool, err error) {
	digest := p.Digest()
	d, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, false, fmt.Errorf("filter cache %s: open: %w", dir, err)
	}
	defer unix.Close(d)
	var st unix.Stat_t
	if err := unix.Fstat(d, &st); err != nil {
		return nil, false, fmt.Errorf("filter cache %s: stat: %w", dir, err)
	}
	if int(st.Uid) != os.Geteuid() || st.Mode&0o077 != 0 {
		return nil, false, fmt.Errorf("filter cache %s: owner %d, mode %04o: it must be the caller's own and private (0700)",
			dir, st.Uid, st.Mode&0o7777)
	}
	name := strings.TrimPrefix(digest, "sha256:") + ".bpf"
	if prog, err := load(d, name, digest); err == nil {
		return prog, true, nil
	}
	prog, err = Compile(p)
	if err != nil {
		return nil, false, err
	}
	_ = save(filepath.Join(dir, name), digest, prog)
	return prog, false, nil
}

// load reads one cache file below the directory d.
func load(d int, name, digest string) (filter.Program, error) {
	// NONBLOCK: opening a FIFO put in the file's place must not wait.
	fd, err := unix.Openat(d, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 || st.Nlink != 1 {
		return nil, errors.New("not a private regular file")
	}
	if st.Size <= int64(cacheHeader) || st.Size > int64(cacheHeader+maxInstructions*8) {
		return nil, errors.New("impossible size")
	}
	b := make([]byte, st.Size)
	n, err := unix.Read(fd, b)
	if err != nil {
		return nil, err
	}
	if n != len(b) {
		return nil, errors.New("short read")
	}
	return decode(b, digest)
}

func decode(b []byte, digest string) (filter.Program, error) {
	prog := b[cacheHeader:]
	if len(prog)%8 != 0 || !bytes.Equal(b[:cacheHeader], header(digest, prog)) {
		return nil, errors.New("header does not match")
	}
	return prog, nil
}

func header(digest string, prog []byte) []byte {
	h := sha256.New()
	h.Write([]byte(digest))
	h.Write(prog)
	b := binary.LittleEndian.AppendUint32([]byte(cacheMagic), uint32(len(prog)))
	return h.Sum(b)
}

// save replaces the file at path in one step. It is not synced: a file torn by a
// crash fails its checksum and is written again.
func save(path, digest string, prog filter.Program) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(append(header(digest, prog), prog...))
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		// A directory of this name would stop the rename; it is nobody's.
		_ = unix.Rmdir(path)
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}
