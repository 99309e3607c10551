package conformance

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
)

// mockWheel writes a wheel of one module and returns its sha256.
func mockWheel(path string) (string, error) {
	files := []struct{ name, data string }{
		{"mockwheel.py", "VALUE = 42\n"},
		{"mockwheel-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: mockwheel\nVersion: 1.0\n"},
		{"mockwheel-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: nsbox-verify\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
	}
	var record strings.Builder
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	add := func(name, data string) error {
		w, err := z.Create(name)
		if err == nil {
			_, err = w.Write([]byte(data))
		}
		return err
	}
	for _, f := range files {
		sum := sha256.Sum256([]byte(f.data))
		fmt.Fprintf(&record, "%s,sha256=%s,%d\n", f.name, base64.RawURLEncoding.EncodeToString(sum[:]), len(f.data))
		if err := add(f.name, f.data); err != nil {
			return "", err
		}
	}
	record.WriteString("mockwheel-1.0.dist-info/RECORD,,\n")
	if err := add("mockwheel-1.0.dist-info/RECORD", record.String()); err != nil {
		return "", err
	}
	if err := z.Close(); err != nil {
		return "", err
	}
	sum := sha256.Sum256(out.Bytes())
	return hex.EncodeToString(sum[:]), os.WriteFile(path, out.Bytes(), 0o644)
}
