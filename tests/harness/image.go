package harness

import (
	"archive/tar"
	"compress/gzip"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/stream"
)

// Image writes the tree at root as the one layer of an image into the new OCI
// layout directory out, readable for all, and returns the manifest's digest.
func Image(root, out string) (string, error) {
	r, w := io.Pipe()
	go func() { w.CloseWithError(archive(root, w)) }()
	img, err := mutate.AppendLayers(empty.Image, stream.NewLayer(r, stream.WithCompressionLevel(gzip.BestSpeed)))
	if err != nil {
		return "", err
	}
	p, err := layout.Write(out, empty.Index)
	if err == nil {
		err = p.AppendImage(img)
	}
	if err != nil {
		return "", err
	}
	h, err := img.Digest()
	if err != nil {
		return "", err
	}
	return h.String(), filepath.WalkDir(out, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			err = os.Chmod(p, 0o755)
		} else if err == nil {
			err = os.Chmod(p, 0o644)
		}
		return err
	})
}

// archive is a plain tar of root, with hard links as copies.
func archive(root string, w io.Writer) error {
	t := tar.NewWriter(w)
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		link := ""
		if fi.Mode()&fs.ModeSymlink != 0 {
			if link, err = os.Readlink(p); err != nil {
				return err
			}
		}
		h, err := tar.FileInfoHeader(fi, link)
		if err != nil {
			return err
		}
		if h.Name, err = filepath.Rel(root, p); err != nil {
			return err
		}
		if err := t.WriteHeader(h); err != nil || !fi.Mode().IsRegular() {
			return err
		}
		f, err := os.Open(p)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(t, f)
		return err
	})
	if err != nil {
		return err
	}
	return t.Close()
}
