package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"nsbox/launcher/reason"
)

// Source says where a policy came from, for the plan and the result.
type Source struct {
	Arg    string // "preset:NAME" or the file's absolute path
	Digest string // "sha256:" and the lower-case hex digest of Raw
	Raw    []byte // the exact bytes that were decoded
}

const presetPrefix = "preset:"

// Load reads a preset by name (or as preset:NAME) or a file by path. A preset's
// name wins over a file of the same name in the working directory; write
// ./NAME for the file. The file is opened once and everything is asked of the
// open descriptor: it has to be regular, belong to the caller or root, be
// writable by its owner only and lie in a directory where nobody else can
// replace it. Links in the path are followed; what they lead to is checked.
//
// A file may extend another policy; its digest then covers that one's as well.
func Load(arg string) (*Policy, Source, error) { return load(arg, nil) }

func load(arg string, chain []string) (*Policy, Source, error) {
	raw, src, err := read(arg)
	if err != nil {
		return nil, src, err
	}
	sum := sha256.Sum256(raw)
	src.Digest, src.Raw = "sha256:"+hex.EncodeToString(sum[:]), raw
	over, faults := readOverlay(raw)
	if len(faults) > 0 {
		return nil, src, faults.wrap(src.Arg)
	}
	if over != nil {
		p, digest, err := over.resolve(src.Arg, raw, chain)
		if err == nil {
			src.Digest = digest
		}
		return p, src, err
	}
	p, err := Decode(src.Arg, raw)
	return p, src, err
}

func read(arg string) ([]byte, Source, error) {
	name, named := strings.CutPrefix(arg, presetPrefix)
	if raw, ok := PresetBytes(name); ok {
		return raw, Source{Arg: presetPrefix + name}, nil
	}
	if named {
		return nil, Source{Arg: arg}, reason.New(reason.PolicyUnknownPreset, strconv.QuoteToASCII(name), "is no preset", didYouMean(name, Presets()))
	}
	abs, err := filepath.Abs(arg)
	if err != nil || arg == "" {
		return nil, Source{Arg: arg}, reason.Wrap(reason.PolicyNotFound, strconv.QuoteToASCII(arg), "is no path", "name a file or a preset: "+strings.Join(Presets(), ", "), err)
	}
	src := Source{Arg: abs}
	// Without NONBLOCK the open would wait for a pipe's writer.
	fd, err := openRetry(arg)
	switch {
	case errors.Is(err, unix.ENOENT) && !strings.ContainsRune(arg, '/'):
		return nil, src, reason.Wrap(reason.PolicyUnknownPreset, strconv.QuoteToASCII(arg), "is neither a preset nor a file here", "check the path, or name a preset; "+didYouMean(arg, Presets()), err)
	case err != nil:
		return nil, src, reason.Wrap(reason.PolicyNotFound, abs, "cannot be opened", "name a readable file or a preset: "+strings.Join(Presets(), ", "), err)
	}
	defer unix.Close(fd)
	if err := checkFile(fd, abs); err != nil {
		return nil, src, err
	}
	raw, err := readAll(fd)
	if err != nil {
		return nil, src, reason.Wrap(reason.PolicyNotFound, abs, "cannot be read", "check the file and its disk", err)
	}
	if len(raw) > maxBytes {
		return nil, src, tooLarge(abs)
	}
	return raw, src, nil
}

func openRetry(path string) (int, error) {
	for {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

func tooLarge(path string) error {
	return reason.New(reason.PolicyTooLarge, path, "is larger than 1 MiB", "a policy is a few KiB; check that this is the right file")
}

// checkFile asks the open descriptor, so that no later rename can matter.
func checkFile(fd int, path string) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return reason.Wrap(reason.PolicyNotFound, path, "cannot be examined", "check the file and its disk", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return reason.New(reason.PolicyNotRegular, path, "is not a regular file", "name a file or a preset: "+strings.Join(Presets(), ", "))
	}
	euid := uint32(os.Geteuid())
	if !owned(&st, euid) {
		return reason.New(reason.PolicyOwner, path, fmt.Sprintf("belongs to uid %d, neither the caller (%d) nor root", st.Uid, euid), "copy it, or give it to the caller with chown")
	}
	if st.Mode&0o022 != 0 {
		return reason.New(reason.PolicyWritable, path, fmt.Sprintf("can be written by others than its owner (mode %04o)", st.Mode&0o7777), "chmod go-w "+path)
	}
	if st.Size > maxBytes {
		return tooLarge(path)
	}
	return checkDirectory(fd, path, euid)
}

// checkDirectory looks at the directory the opened file really lies in.
func checkDirectory(fd int, path string, euid uint32) error {
	real, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return reason.Wrap(reason.PolicyNotFound, path, "its directory cannot be found", "mount /proc", err)
	}
	dir := filepath.Dir(real)
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return reason.Wrap(reason.PolicyNotFound, dir, "cannot be examined", "keep the policy in a directory you can list", err)
	}
	if !owned(&st, euid) && st.Uid != overflowID {
		return reason.New(reason.PolicyWritable, dir, fmt.Sprintf("belongs to uid %d, who can replace the policy there", st.Uid), "keep the policy in a directory of your own")
	}
	if st.Mode&0o002 != 0 && st.Mode&unix.S_ISVTX == 0 {
		return reason.New(reason.PolicyWritable, dir, fmt.Sprintf("anybody can replace the policy there (mode %04o)", st.Mode&0o7777), "chmod o-w "+dir+", or keep the policy elsewhere")
	}
	return nil
}

// overflowID owns what belongs to nobody of this user namespace.
const overflowID = 65534

func owned(st *unix.Stat_t, euid uint32) bool { return st.Uid == euid || st.Uid == 0 }

// readAll reads one byte more than a policy may have.
func readAll(fd int) ([]byte, error) {
	buf := make([]byte, 0, 16<<10)
	for len(buf) <= maxBytes {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := unix.Read(fd, buf[len(buf):cap(buf)])
		switch {
		case err == unix.EINTR:
		case err != nil:
			return nil, err
		case n == 0:
			return buf, nil
		default:
			buf = buf[:len(buf)+n]
		}
	}
	return buf, nil
}
