package harness

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// shared is what the tests of one process have in common.
type shared struct {
	once sync.Once
	dir  string
	err  error
}

var binary shared

// Main runs the tests and removes what they shared. Use it from TestMain:
//
//	func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }
func Main(m *testing.M) int {
	status := m.Run()
	Forget()
	return status
}

// Forget removes the copy of nsbox; the next Binary makes a new one.
func Forget() {
	if binary.dir != "" {
		os.RemoveAll(binary.dir)
	}
	binary = shared{}
}

// Binary returns the path of the copy of nsbox that every caller may execute.
func Binary(t T) string {
	t.Helper()
	binary.once.Do(func() { binary.err = copyBinary() })
	if binary.err != nil {
		t.Fatal(binary.err)
	}
	return filepath.Join(binary.dir, "nsbox")
}

func copyBinary() error {
	path, err := builtBinary()
	if err != nil {
		return err
	}
	from, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("%w: run make build first", err)
	}
	defer from.Close()
	if binary.dir, err = os.MkdirTemp("", "nsbox-e2e-bin-"); err != nil {
		return err
	}
	if err := os.Chmod(binary.dir, 0o755); err != nil {
		return err
	}
	to, err := os.OpenFile(filepath.Join(binary.dir, "nsbox"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	// The umask of whoever runs the tests must not decide who may execute it.
	return errors.Join(err, to.Chmod(0o755), to.Close())
}

func builtBinary() (string, error) {
	if path := os.Getenv("NSBOX_BIN"); path != "" {
		if !filepath.IsAbs(path) {
			return "", fmt.Errorf("NSBOX_BIN is %s, which is no absolute path; tests run in their package's folder", path)
		}
		return path, nil
	}
	root, err := Repository()
	return filepath.Join(root, "bin", "nsbox"), err
}

// Repository is the folder of go.mod above the working directory.
func Repository() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		if _, found := os.Stat(filepath.Join(dir, "go.mod")); found == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no go.mod above the working directory: set NSBOX_BIN")
		}
		dir = filepath.Dir(dir)
	}
	return "", err
}
