package rootfs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"nsbox/launcher/reason"
)

// file copies and hashes src into the new file name of the open directory dst.
func (s *stager) file(src *source, dst int, rel, name string) error {
	full, err := s.claim(rel, name, src.host)
	if err != nil {
		return err
	}
	if src.stat.Size > s.left {
		return s.tooLarge(src)
	}
	out := nowhere
	if dst != nowhere {
		if out, err = unix.Openat(dst, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600); err != nil {
			return stagingFailed("/in/"+full, err)
		}
		defer unix.Close(out)
	}
	n, sum, err := s.copy(src, out)
	if err != nil {
		return err
	}
	if n != src.stat.Size {
		return inputChanged(src.host)
	}
	if err := unchanged(src); err != nil {
		return err
	}
	if out != nowhere {
		if err := unix.Fchmod(out, 0o644); err != nil {
			return stagingFailed("/in/"+full, err)
		}
	}
	s.left -= n
	s.done = append(s.done, Staged{Name: full, Bytes: n, SHA256: sum})
	return nil
}

func (s *stager) copy(src *source, out int) (n int64, sum string, err error) {
	h := sha256.New()
	for {
		if err := context.Cause(s.ctx); err != nil {
			return 0, "", err
		}
		var got int
		err := retry(func() (err error) { got, err = unix.Read(src.fd, s.buf); return err })
		if err != nil {
			return 0, "", sourceError(src.host, err)
		}
		if got == 0 {
			return n, hex.EncodeToString(h.Sum(nil)), nil
		}
		s.copied.Add(int64(got))
		if n += int64(got); n > s.left {
			return 0, "", s.tooLarge(src)
		}
		h.Write(s.buf[:got])
		for b := s.buf[:got]; len(b) > 0 && out != nowhere; {
			var put int
			err := retry(func() (err error) { put, err = unix.Write(out, b); return err })
			if err != nil {
				return 0, "", stagingFailed(src.host, err)
			}
			b = b[put:]
		}
	}
}

func (s *stager) tooLarge(src *source) error {
	return reason.New(reason.InputTooLarge, quote(src.host), fmt.Sprintf("the inputs together exceed %d bytes", s.limit),
		"give less, or have the policy's owner raise the limit")
}

// unchanged compares what a directory or file was when opened with what it is;
// settled has made sure that a change since then shows.
func unchanged(src *source) error {
	var now unix.Stat_t
	if err := unix.Fstat(src.fd, &now); err != nil {
		return sourceError(src.host, err)
	}
	was := &src.stat
	if now.Size != was.Size || now.Mtim != was.Mtim || now.Ctim != was.Ctim {
		return inputChanged(src.host)
	}
	return nil
}

func inputChanged(host string) error {
	return reason.New(reason.InputChanged, quote(host), "changed while it was being copied",
		"run again when nothing writes to it, or give a finished copy")
}

const missingNext = "check the path given to --in"

func sourceError(host string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ESTALE):
		return reason.Wrap(reason.InputMissing, quote(host), "vanished while the inputs were copied", "run again when nothing is removed there", err)
	case errors.Is(err, unix.ELOOP):
		return kindAllowed(host, unix.S_IFLNK)
	case errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV):
		return kindAllowed(host, 0)
	}
	return reason.Wrap(reason.InputUnreadable, quote(host), "cannot be read", "make it readable for the user that runs nsbox", err)
}

func stagingFailed(what string, err error) error {
	return reason.Wrap(reason.InputStagingFailed, quote(what), "the private copy of the inputs cannot be written",
		"check free space and permissions of the state directory", err)
}
