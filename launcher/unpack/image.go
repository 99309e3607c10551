package unpack

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"nsbox/launcher/unpack/request"
)

const (
	maxLayers = 128
	maxJSON   = 4 << 20 // of a manifest or configuration, bytes
)

// image unpacks the image of the layout at dir with the manifest digest into
// store/root.
func image(dir, store, digest string, b request.Bounds, rep *request.Report) error {
	h, err := v1.NewHash(digest)
	if err != nil || h.Algorithm != "sha256" {
		return refuse("bad_digest", digest)
	}
	root, err := layout.FromPath(dir)
	if err != nil {
		return refuse("no_layout", err.Error())
	}
	if err := small(root, h); err != nil {
		return err
	}
	img, err := root.Image(h)
	if err != nil {
		return refuse("no_image", err.Error())
	}
	manifest, err := img.Manifest()
	if err != nil {
		return refuse("bad_manifest", err.Error())
	}
	if t := manifest.MediaType; t.IsIndex() {
		return refuse("is_an_index", "name the digest of one image of it")
	}
	if err := small(root, manifest.Config.Digest); err != nil {
		return err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return refuse("bad_config", err.Error())
	}
	layers, err := img.Layers()
	if err != nil {
		return refuse("bad_manifest", err.Error())
	}
	if len(layers) == 0 || len(layers) > maxLayers || len(layers) != len(config.RootFS.DiffIDs) || len(layers) != len(manifest.Layers) {
		return refuse("bad_manifest", fmt.Sprintf("%d layers, %d of them in the configuration", len(layers), len(config.RootFS.DiffIDs)))
	}
	t, err := newTree(store, b, rep)
	if err != nil {
		return err
	}
	defer t.close()
	for i, l := range layers {
		if err := t.layer(l, manifest.Layers[i], config.RootFS.DiffIDs[i]); err != nil {
			return fmt.Errorf("layer %d: %w", i+1, err)
		}
	}
	return t.finish()
}

// small holds a JSON blob to its size and digest before anything parses it.
func small(root layout.Path, h v1.Hash) error {
	r, err := root.Blob(h)
	if err != nil {
		return refuse("no_blob", err.Error())
	}
	defer r.Close()
	sum := sha256.New()
	n, err := io.Copy(sum, io.LimitReader(r, maxJSON+1))
	switch {
	case err != nil:
		return err
	case n > maxJSON:
		return refuse("blob_too_large", h.String())
	case hex.EncodeToString(sum.Sum(nil)) != h.Hex:
		return refuse("digest_mismatch", h.String())
	}
	return nil
}

// checked is a layer whose compressed bytes are hashed and counted on the way.
type checked struct {
	v1.Layer
	seen *counted
}

func (c *checked) Compressed() (io.ReadCloser, error) {
	r, err := c.Layer.Compressed()
	if err != nil {
		return nil, err
	}
	c.seen = &counted{from: r, sum: sha256.New()}
	return c.seen, nil
}

type counted struct {
	from io.ReadCloser
	sum  hash.Hash
	n    int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.sum.Write(p[:n])
	c.n += int64(n)
	return n, err
}

func (c *counted) Close() error { return c.from.Close() }

// plain counts uncompressed bytes and ends a stream that is out of proportion.
type plain struct {
	from   io.Reader
	packed *counted
	bounds request.Bounds
	sum    hash.Hash
	n      int64
}

func (p *plain) Read(b []byte) (int, error) {
	n, err := p.from.Read(b)
	p.n += int64(n)
	p.sum.Write(b[:n])
	if p.n > request.RatioFrom && p.n/max(p.packed.n, 1) > p.bounds.Ratio {
		return n, refuse("compression_ratio", fmt.Sprintf("more than %d bytes for each compressed one", p.bounds.Ratio))
	}
	if p.n > 2*p.bounds.Bytes {
		return n, refuse("too_many_bytes", "the layer's archive")
	}
	return n, err
}

// layer applies one layer and holds it to all its digests.
func (t *tree) layer(l v1.Layer, d v1.Descriptor, diffID v1.Hash) error {
	if d.Digest.Algorithm != "sha256" || diffID.Algorithm != "sha256" {
		return refuse("bad_digest", d.Digest.String())
	}
	if !d.MediaType.IsLayer() || d.MediaType == types.DockerForeignLayer {
		return refuse("layer_type", string(d.MediaType))
	}
	c := &checked{Layer: l}
	whole, err := partial.CompressedToLayer(c)
	if err != nil {
		return refuse("bad_layer", err.Error())
	}
	r, err := whole.Uncompressed()
	if err != nil {
		return refuse("bad_layer", err.Error())
	}
	defer r.Close()
	p := &plain{from: r, packed: c.seen, bounds: t.bounds, sum: sha256.New()}
	if err := t.apply(p); err != nil {
		return err
	}
	// What stands behind the archive's end is hashed too.
	if _, err := io.Copy(io.Discard, p); err != nil {
		return archiveFault(err)
	}
	if _, err := io.Copy(io.Discard, c.seen); err != nil {
		return err
	}
	switch {
	case hex.EncodeToString(c.seen.sum.Sum(nil)) != d.Digest.Hex || c.seen.n != d.Size:
		return refuse("digest_mismatch", d.Digest.String())
	case hex.EncodeToString(p.sum.Sum(nil)) != diffID.Hex:
		return refuse("digest_mismatch", "uncompressed: "+diffID.String())
	}
	return nil
}

// archiveFault tells a broken archive from a failing machine.
func archiveFault(err error) error {
	var f *fault
	var p *os.PathError
	if errors.As(err, &f) || errors.As(err, &p) {
		return err
	}
	return refuse("bad_archive", strings.TrimSpace(err.Error()))
}
