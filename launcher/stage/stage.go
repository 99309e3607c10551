// Package stage holds the program that runs inside a box (cmd/nsbox-stage),
// embedded by `make build`, and gives out an executable descriptor of it.
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

const (
	imageName  = "image/nsbox-stage"
	digestName = "image/nsbox-stage.sha256"
	mode       = 0o555
)

// Open returns an O_PATH descriptor that execveat(2) with AT_EMPTY_PATH starts
// as a stage. cacheDir must exist, private to the caller.
func Open(cacheDir string) (int, error) {
	digest, err := files.ReadFile(digestName)
	if errors.Is(err, fs.ErrNotExist) {
		return unix.Open("/proc/self/exe", unix.O_PATH|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return -1, err
	}
	path := filepath.Join(cacheDir, "stage-"+strings.TrimSpace(string(digest)))
	if fd, err := open(path); err == nil {
		return fd, nil
	}
	image, err := files.ReadFile(imageName)
	if err != nil {
		return -1, err
	}
	if err := renameio.WriteFile(path, image, mode, renameio.WithTempDir(cacheDir), renameio.IgnoreUmask()); err != nil {
		return -1, fmt.Errorf("the stage image: %w", err)
	}
	return open(path)
}

// open accepts only what Open itself would have written.
func open(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	info, infoErr := fs.Stat(files, imageName)
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
