package conformance

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

func exportFixtures() []Fixture {
	return []Fixture{
		{ID: "S10", Title: "size, names and count of what leaves", Profile: "TP-PROD", Run: s10,
			Attempt: "a summary.csv of 2 MiB; a wrong name; a second file; 16 MiB in 8 writes",
			Shows:   "the first three are REJECTED, the last meets ENOSPC at the mount's 8 MiB", Cannot: "other quotas of the host"},
		{ID: "S11", Title: "swaps while the exporter looks", Profile: "TP-PROD", Run: s11,
			Attempt: "a racer, not the workload, swaps the file and a link to a secret 50 times while the exporter exists",
			Shows:   "the original's own bytes leave, or nothing", Cannot: "races within the kernel"},
		{ID: "S16", Title: "an archive under the artifact's name", Profile: "TP-PROD", Run: s16,
			Attempt: "one real gzip file of 100 KiB that expands to 64 MiB of zeros",
			Shows:   "refused by its first bytes, never decompressed", Cannot: "decompression limits: nothing decompresses"},
	}
}

func s10(c *Case) {
	c.exports()
	for _, v := range []struct {
		code    string
		reasons []string
	}{
		{"put('summary.csv', b'0123456789abcde\\n' * (2 << 16))\n", []string{"too_large"}},
		{"put('other.csv', b'a,b\\n')\n", []string{"name_not_allowed"}},
		{"put('summary.csv', b'a,b\\n')\nput('second.csv', b'a,b\\n')\n", []string{"too_many_files", "name_not_allowed"}},
	} {
		job, folder := c.leave(v.code)
		c.WantRejected(c.Do(job), folder, v.reasons...)
	}
	job, folder := c.leave("n, how = 0, ''\ntry:\n with open(p, 'wb', buffering=0) as f:\n  for _ in range(8): n += f.write(b'x' * (2 << 20))\nexcept OSError as e: how = e.strerror\nprint(n, os.stat(p).st_size, how)\n")
	run := c.Do(job)
	c.WantRejected(run, folder)
	var written, size int
	if _, err := fmt.Sscan(string(run.Stdout), &written, &size); err != nil || written != size || size > 8*mib || size < 7*mib || !bytes.Contains(run.Stdout, []byte("No space left")) {
		c.Errorf("16 MiB in /out: %q (%v)", run.Stdout, err)
	}
	c.Note("16 MiB", strings.TrimSpace(string(run.Stdout)))
}

// archiveSize is the size of S16's archive in bytes.
const archiveSize = 100 << 10

func s16(c *Case) {
	c.exports()
	packed, err := packedZeros(0)
	if err == nil {
		packed, err = packedZeros(archiveSize - len(packed) - 2) // two bytes tell the field's length
	}
	if err != nil {
		c.Fatal(err)
	}
	c.Control("the archive has 100 KiB and expands to 64 MiB", func() {
		z, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			c.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, z); err != nil || n != 64*mib || len(packed) != archiveSize {
			c.Errorf("%d bytes expand to %d: %v", len(packed), n, err)
		}
	})
	job, folder := c.leave("import shutil\nshutil.copyfile('/in/archive', p)\nprint(os.stat(p).st_size)\n")
	job.In = []string{c.File("archive", string(packed))}
	run := c.Do(job)
	if got := strings.TrimSpace(string(run.Stdout)); got != strconv.Itoa(archiveSize) {
		c.Errorf("the program left %q bytes", got)
	}
	c.WantRejected(run, folder, "compressed_magic")
	// The first bytes are the first reason; what else is told is of the packed
	// bytes too, since the zeros inside are neither records nor invalid UTF-8.
	raw := []string{"compressed_magic", "nul_byte", "not_utf8", "line_too_long"}
	if reasons := run.Result.Artifact.Reasons; len(reasons) == 0 || reasons[0] != raw[0] || slices.ContainsFunc(reasons, func(r string) bool { return !slices.Contains(raw, r) }) {
		c.Errorf("it was parsed: %v", reasons)
	}
	c.cannotUnpack()
}

// cannotUnpack looks for the decompressor in the program that was the exporter.
func (c *Case) cannotUnpack() {
	const decompressor = "compress/flate.(*decompressor)"
	holds := func(path string) bool {
		data, err := os.ReadFile(path)
		if err != nil {
			c.Fatal(err)
		}
		return bytes.Contains(data, []byte(decompressor))
	}
	c.Control("a program that decompresses is told by its functions' names", func() {
		if self, err := os.Executable(); err != nil || !holds(self) {
			c.Errorf("this one's own are not found: %v", err)
		}
	})
	stages, _ := filepath.Glob(filepath.Join(c.State, "cache", "stage-*"))
	for _, path := range stages {
		if holds(path) {
			c.Errorf("%s has a decompressor", path)
		}
	}
	if len(stages) != 1 {
		c.Errorf("the exporter's images: %q", stages)
	}
}

// packedZeros is a gzip file of 64 MiB of zeros. They pack to less than the
// fixture asks for: an extra field of the header (RFC 1952, 2.3.1.1), which
// readers skip, makes up the rest.
func packedZeros(extra int) ([]byte, error) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if extra > 0 {
		z.Extra = make([]byte, extra)
	}
	var all error
	for range 64 {
		_, err := z.Write(make([]byte, mib))
		all = errors.Join(all, err)
	}
	all = errors.Join(all, z.Close())
	return packed.Bytes(), all
}
