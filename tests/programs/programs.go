// Package programs holds the Python programs that the tests and nsbox verify
// run inside a box. Each tries something and prints one JSON report of how it
// ended; attempt.py is what they share and is staged beside them.
package programs

import (
	"embed"
	"os"
	"path/filepath"
)

//go:embed *.py
var files embed.FS

// WriteTo writes every program into an existing directory, mode 0644.
func WriteTo(dir string) error {
	entries, err := files.ReadDir(".")
	if err != nil {
		return err
	}
	for _, e := range entries {
		data, err := files.ReadFile(e.Name())
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, e.Name()), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}
