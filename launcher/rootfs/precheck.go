package rootfs

import (
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"

	"nsbox/launcher/reason"
)

// Check finds of inputs what Stage would refuse, as far as names, kinds, sizes
// and modes tell it. No file is opened and nothing is made. maxBytes is Stage's.
// The error is a *reason.Error.
func Check(inputs []Input, maxBytes int64) error {
	s := &stager{limit: maxBytes, left: maxBytes, claims: map[string]string{}}
	for _, in := range inputs {
		var st unix.Stat_t
		if err := unix.Stat(in.Path, &st); err == unix.ENOENT || err == unix.ENOTDIR {
			return reason.Wrap(reason.InputMissing, quote(in.Path), "does not exist", missingNext, err)
		} else if err != nil {
			return sourceError(in.Path, err)
		}
		name := in.Name
		if name == "" && st.Mode&unix.S_IFMT != unix.S_IFDIR {
			name = filepath.Base(in.Path)
		}
		if err := s.foresee("", name, in.Path, &st, 0); err != nil {
			return err
		}
	}
	return nil
}

// foresee is what Stage will come to at one entry; name is empty for a
// directory whose contents are named directly below rel.
func (s *stager) foresee(rel, name, host string, st *unix.Stat_t, depth int) error {
	if err := kindAllowed(host, st.Mode); err != nil {
		return err
	}
	if name != "" {
		var err error
		if rel, err = s.claim(rel, name, host); err != nil {
			return err
		}
	}
	isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	need := uint32(unix.R_OK)
	if isDir {
		need |= unix.X_OK
	}
	if err := unix.Faccessat(unix.AT_FDCWD, host, need, unix.AT_EACCESS); err != nil {
		return sourceError(host, err)
	}
	if !isDir {
		if s.left -= st.Size; s.left < 0 {
			return s.tooLarge(&source{host: host})
		}
		return nil
	}
	if depth >= maxDepth {
		return reason.New(reason.InputTooMany, quote(host), fmt.Sprintf("lies more than %d directories deep", maxDepth), "give a deeper directory with --in")
	}
	return filepath.WalkDir(host, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return sourceError(p, err)
		}
		if p == host {
			return nil
		}
		var st unix.Stat_t
		if err := unix.Lstat(p, &st); err != nil {
			return sourceError(p, err)
		}
		if err := s.foresee(rel, e.Name(), p, &st, depth+1); err != nil {
			return err
		}
		if e.IsDir() {
			return fs.SkipDir // foresee has been there
		}
		return nil
	})
}
