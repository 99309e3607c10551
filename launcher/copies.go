package launcher

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"nsbox/exporter"
)

// copies are the files of the attempt's directory that the exporter writes to,
// one for each file that may leave. Their names are nsbox's: which of them holds
// which file is known from the exporter's report only.
type copies []string

// manifestName is the list of several accepted files; one file needs none.
const manifestName = "manifest.json"

func copiesIn(dir string, slots int) copies {
	c := copies{dir + "/artifact"}
	for i := 1; i < slots; i++ {
		c = append(c, fmt.Sprintf("%s/artifact-%d", dir, i+1))
	}
	return c
}

// several says whether the policy lets more than one file leave, whatever the
// program left.
func (c copies) several() bool { return len(c) > 1 }

func (c copies) dir() string { return filepath.Dir(c[0]) }

// delivery says where the accepted files are: published as path, or still here.
func (c copies) delivery(path string, a ArtifactResult) DeliveryResult {
	d := DeliveryResult{Outcome: Delivered, Path: path}
	if !c.several() {
		return d
	}
	if path == c[0] {
		d.Path, d.Paths = c.dir(), slices.Clone(c[:len(a.Files)])
		return d
	}
	for _, f := range a.Files {
		d.Paths = append(d.Paths, filepath.Join(path, f.Name))
	}
	return d
}

// create makes the files, empty, and opens them for writing. The caller closes
// those that it returns, also with an error.
func (c copies) create() ([]*os.File, error) {
	var files []*os.File
	for _, path := range c {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return files, err
		}
		files = append(files, f)
	}
	return files, nil
}

// beyond lists what must not be left where the first keep files are kept.
func (c copies) beyond(keep int) []string {
	paths := slices.Clone(c[min(keep, len(c)):])
	if keep == 0 && c.several() {
		paths = append(paths, c.dir()+"/"+manifestName)
	}
	return paths
}

// remove removes what is beyond.
func (c copies) remove(keep int) error {
	var errs []error
	for _, path := range c.beyond(keep) {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// errUnverified: a copy is not what the exporter reported.
var errUnverified = errors.New("the launcher's own digest of the copy is not what the exporter reported")

// verify reads each reported file's copy and makes it read-only. The error names
// the copy, and wraps errUnverified if its bytes are others.
func (c copies) verify(reported []exporter.File) ([]ArtifactFile, error) {
	files := make([]ArtifactFile, 0, len(reported))
	for i, f := range reported {
		bytes, digest, err := hashFile(c[i])
		if err == nil && (bytes != f.Bytes || digest != f.SHA256) {
			err = errUnverified
		}
		if err == nil {
			err = os.Chmod(c[i], 0o400)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c[i], err)
		}
		files = append(files, ArtifactFile{Name: f.Name, Type: f.Type, Bytes: bytes, Rows: f.Rows, SHA256: digest})
	}
	return files, nil
}

// manifest is what manifest.json holds.
type manifest struct {
	Files []ArtifactFile `json:"files"` // in the order of allowed_names
}

// writeManifest leaves the list in the attempt's directory, and returns its digest,
// which stands for all of them.
func writeManifest(dir string, files []ArtifactFile) (string, error) {
	data, err := json.Marshal(manifest{files})
	if err == nil {
		err = renameio.WriteFile(dir+"/"+manifestName, data, 0o400, renameio.WithTempDir(dir))
	}
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:]), err
}

// readManifest reads it back, if it has that digest.
func readManifest(dir, digest string) (manifest, error) {
	const most = 64 << 10 // seven names of 255 bytes, escaped
	var m manifest
	data, err := readRegular(dir+"/"+manifestName, most)
	if err != nil {
		return m, err
	}
	if sum := sha256.Sum256(data); "sha256:"+hex.EncodeToString(sum[:]) != digest {
		return m, errUnverified
	}
	return m, json.Unmarshal(data, &m)
}
