package launcher

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"nsbox/launcher/policy"
	"nsbox/launcher/reason"
	"nsbox/launcher/rootfs"
	"nsbox/launcher/store"
)

// root finds the program in the root that the policy names, and what of that
// root the box needs. Every source comes down to a Closure: the nodes of the
// box, the program's path inside, and what both rest on.
type root struct {
	state *state
	facts Facts // Host and Identity are read where something has to be unpacked
	make  bool  // unpack an image that is not in the store yet
	used  []*os.File
}

func (r *root) find(ctx context.Context, req Request, p *policy.Policy) (*rootfs.Closure, error) {
	var at rootfs.Root
	if _, host := p.Root().(policy.HostRoot); !host {
		if _, err := r.state.binds(req, p, ""); err != nil {
			return nil, err
		}
	}
	var err error
	switch s := p.Root().(type) {
	case policy.ClosureRoot:
	case policy.HostRoot:
		if p.Prepared() != nil {
			return nil, reason.New(reason.PreparedNotUsable, "rootfs.prepared", "cannot stand beside rootfs.host, whose directories are bound whole", "take one of the two out of the policy")
		}
		return r.state.hostRoot(req, p, s)
	case policy.DirectoryRoot:
		at, err = r.directory(s, p.VerifyBeforeStart())
	case policy.OCIRoot:
		at, err = r.image(ctx, s, p.VerifyBeforeStart())
	default:
		err = reason.New(reason.Internal, fmt.Sprintf("%T", s), "is no source of a root", "report this as a fault of nsbox")
	}
	if err == nil && p.Prepared() != nil {
		err = r.prepared(&at, *p.Prepared(), p.VerifyBeforeStart())
	}
	if err != nil {
		return nil, err
	}
	at.Whole = p.AnyProgram()
	c, _, err := at.Cached(r.state.cache(), req.Argv[0], nil)
	return c, err
}

// slow reports whether a root is found in the store or by reading a tree, which
// needs to know the host first and may take long.
func (r *root) slow(p *policy.Policy) bool {
	switch p.Root().(type) {
	case policy.DirectoryRoot, policy.OCIRoot:
		return true
	}
	return p.Prepared() != nil
}

// close lets go of the entries of the store that were found.
func (r *root) close() {
	for _, f := range r.used {
		f.Close()
	}
}

func (s *state) store() (*store.Store, error) { return store.Open(s.storeDir()) }

func (s *state) storeDir() string { return s.dir + "/store" }

// directory holds the tree to its digest. Reading it all takes as long as it is
// large, so what was found is kept together with the identity of every entry.
func (r *root) directory(d policy.DirectoryRoot, always bool) (rootfs.Root, error) {
	at, err := filepath.EvalSymlinks(d.Path)
	if err != nil {
		return rootfs.Root{}, reason.Wrap(reason.StoreBadTree, d.Path, "cannot be opened as a root", "correct rootfs.directory.path", err)
	}
	kept := r.state.cache() + "/tree-" + strings.TrimPrefix(store.DigestOf([]byte(at)), "sha256:")[:32]
	before, err := store.Fingerprint(at)
	if err != nil {
		return rootfs.Root{}, err
	}
	text := d.Digest + " " + before + "\n"
	if known, err := readRegular(kept, 4096); err == nil && string(known) == text && !always {
		return rootfs.Root{Dir: at, Pin: d.Digest}, nil
	}
	begun := time.Now()
	t, err := store.Read(at)
	if err != nil {
		return rootfs.Root{}, err
	}
	if t.Digest != d.Digest {
		return rootfs.Root{}, reason.New(reason.RootfsDigest, at, "has the digest "+t.Digest+", and the policy names "+d.Digest, "find out what changed; nsbox store digest shows the present one")
	}
	after, err := store.Fingerprint(at)
	if err != nil {
		return rootfs.Root{}, err
	}
	if after != before {
		return rootfs.Root{}, reason.New(reason.RootfsSourceChanged, at, "changed while it was read for its digest", "run again when nobody writes there")
	}
	// A change within the clock's tick of the newest entry would not be seen.
	if store.Settled(before, begun) {
		_ = os.WriteFile(kept, []byte(text), 0o600) // torn or missing, it is read again
	}
	return rootfs.Root{Dir: at, Pin: d.Digest}, nil
}

// image finds an unpacked image, or unpacks it.
func (r *root) image(ctx context.Context, i policy.OCIRoot, verify bool) (rootfs.Root, error) {
	s, err := r.state.store()
	if err != nil {
		return rootfs.Root{}, err
	}
	tree, err := s.Ref("images", i.Digest)
	if reason.Of(err) != nil && reason.Of(err).ID == reason.StoreMissing {
		if !r.make {
			return rootfs.Root{}, reason.New(reason.ImageNotUnpacked, "the image "+i.Digest, "is not in the store yet", "nsbox store add "+i.Layout+" "+i.Digest+", or let exec do it")
		}
		tree, err = r.state.unpackImage(ctx, r.facts, i.Layout, i.Digest)
	}
	if err != nil {
		return rootfs.Root{}, err
	}
	if err := r.use(s, tree, store.KindImage, verify); err != nil {
		return rootfs.Root{}, err
	}
	s.Touch("images", i.Digest)
	return rootfs.Root{Dir: s.Root(tree), Pin: tree}, nil
}

func (r *root) prepared(at *rootfs.Root, p policy.Prepared, verify bool) error {
	s, err := r.state.store()
	if err != nil {
		return err
	}
	tree, err := s.Ref("names", p.Name)
	if err != nil {
		return err
	}
	if tree != p.Digest {
		return reason.New(reason.RootfsDigest, "prepared packages "+p.Name, "are "+tree+" in the store, and the policy names "+p.Digest, "find out which are meant: nsbox store list")
	}
	if err := r.use(s, tree, store.KindPrepared, verify); err != nil {
		return err
	}
	m, err := s.Meta(tree)
	if err != nil {
		return err
	}
	at.Prepared, at.PreparedFor, at.Pin = s.Root(tree), m.Python, at.Pin+" "+tree
	return nil
}

// use keeps an entry while the attempt runs, and reads it all again if asked to.
func (r *root) use(s *store.Store, tree, kind string, verify bool) error {
	f, err := s.Use(tree)
	if err != nil {
		return err
	}
	r.used = append(r.used, f)
	if verify {
		if err := s.Verify(tree); err != nil {
			return err
		}
	}
	m, err := s.Meta(tree)
	if err == nil && m.Kind != kind {
		err = reason.New(reason.StoreDamaged, tree, "is of kind "+m.Kind+" in the store, not "+kind, "nsbox store list")
	}
	return err
}
