// Package stage holds the programs that run inside a box (cmd/nsbox-stage and,
// for images and wheels, cmd/nsbox-unpack), embedded by `make build`, and gives
// out an executable descriptor of each.
//
// The image is written once into the launcher's private cache directory and
// then only opened: copying it into a memfd at each start would cost more than
// the whole pivot. It is as trustworthy as the cache directory, which is the
// caller's own and 0700, as the rest of what a run depends on.
//
// A binary built without the image (plain `go build`) uses itself: it has the
// same stages, only slower ones.
package stage

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

//go:embed all:image
var files embed.FS

const mode = 0o555

// Open returns an O_PATH descriptor that execveat(2) with AT_EMPTY_PATH starts
// as a stage. cacheDir must exist, private to the caller.
func Open(cacheDir string) (int, error) {
	fd, err := fromImage(cacheDir, "nsbox-stage")
	if errors.Is(err, fs.ErrNotExist) {
		return unix.Open("/proc/self/exe", unix.O_PATH|unix.O_CLOEXEC, 0)
	}
	return fd, err
}

// OpenUnpacker does the same for cmd/nsbox-unpack, which reads image and wheel
// formats. A binary built without the image has no such stage.
func OpenUnpacker(cacheDir string) (int, error) {
	fd, err := fromImage(cacheDir, "nsbox-unpack")
	if errors.Is(err, fs.ErrNotExist) {
		return -1, errors.New("this nsbox was built without its unpacker; build it with make")
	}
	return fd, err
}

func fromImage(cacheDir, name string) (int, error) {
	digest, err := files.ReadFile("image/" + name + ".sha256")
	if err != nil {
		return -1, err
	}
	path := filepath.Join(cacheDir, strings.TrimPrefix(name, "nsbox-")+"-"+strings.TrimSpace(string(digest)))
	if fd, err := open(path, name); err == nil {
		return fd, nil
	}
	image, err := files.ReadFile("image/" + name)
	if err != nil {
		return -1, err
	}
	if err := renameio.WriteFile(path, image, mode, renameio.WithTempDir(cacheDir), renameio.IgnoreUmask()); err != nil {
		return -1, fmt.Errorf("the stage image: %w", err)
	}
	return open(path, name)
}

// open accepts only what Open itself would have written.
func open(path, name string) (int, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	info, infoErr := fs.Stat(files, "image/"+name)
	switch {
	case err != nil:
	case infoErr != nil:
		err = infoErr
	case st.Mode != unix.S_IFREG|mode || int(st.Uid) != os.Geteuid() || st.Nlink != 1 || st.Size != info.Size():
		err = fmt.Errorf("%s is not the file that was written there", path)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}
