package launcher

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"nsbox/launcher/policy"
	"nsbox/launcher/reason"
	"nsbox/launcher/store"
)

// StoreItem is one line of nsbox store list.
type StoreItem struct {
	store.Meta
	Names  []string `json:"names"`
	Images []string `json:"images"`
	Note   string   `json:"note,omitempty"` // what is wrong with it
}

// StoreContent is everything in the store, and where it is.
type StoreContent struct {
	Dir        string      `json:"dir"`
	Items      []StoreItem `json:"items"`
	Quarantine []string    `json:"quarantine"`
}

func openStore(stateDir string) (*state, *store.Store, error) {
	s, err := openState(stateDir)
	if err != nil {
		return nil, nil, err
	}
	st, err := s.store()
	return s, st, err
}

// StoreList reads no tree.
func StoreList(stateDir string) (StoreContent, error) {
	c := StoreContent{Items: []StoreItem{}, Quarantine: []string{}}
	_, st, err := openStore(stateDir)
	if err != nil {
		return c, err
	}
	c.Dir = st.Dir
	digests, err := st.Entries()
	if err != nil {
		return c, err
	}
	refs, err := st.Refs()
	if err != nil {
		return c, err
	}
	for _, d := range digests {
		item := StoreItem{Names: []string{}, Images: []string{}}
		if item.Meta, err = st.Meta(d); err != nil {
			item.Digest, item.Note = d, err.Error()
		}
		for _, r := range refs {
			switch {
			case r.Tree == d && r.Kind == "names":
				item.Names = append(item.Names, r.Name)
			case r.Tree == d:
				item.Images = append(item.Images, "sha256:"+r.Name)
			}
		}
		c.Items = append(c.Items, item)
	}
	c.Quarantine, err = st.Below("quarantine")
	return c, err
}

// StoreVerified is what one check found.
type StoreVerified struct {
	What  string  `json:"what"`
	Fault *Reason `json:"fault"`
}

// StoreVerify reads every byte of the store again.
func StoreVerify(stateDir string) ([]StoreVerified, error) {
	_, st, err := openStore(stateDir)
	if err != nil {
		return nil, err
	}
	var all []StoreVerified
	check := func(what string, err error) {
		v := StoreVerified{What: what}
		if err != nil {
			v.Fault = asReason(toReason(err))
		}
		all = append(all, v)
	}
	digests, err := st.Entries()
	if err != nil {
		return nil, err
	}
	for _, d := range digests {
		check(d, st.Verify(d))
	}
	refs, err := st.Refs()
	if err != nil {
		return nil, err
	}
	for _, r := range refs {
		err := r.Err
		if err == nil {
			_, err = st.Meta(r.Tree)
		}
		check(r.Kind+"/"+r.Name, err)
	}
	return all, nil
}

// StoreDigest is the content digest of any directory, as rootfs.directory takes it.
func StoreDigest(dir string) (*store.Tree, error) { return store.Read(dir) }

// StoreAdd unpacks an image without running anything in it.
func StoreAdd(ctx context.Context, stateDir, layout, digest string) (store.Meta, error) {
	var m store.Meta
	if !policy.ValidDigest(digest) {
		return m, reason.New(reason.Usage, quoted(digest), "is no sha256 digest", "copy the manifest's digest from the layout's index.json")
	}
	s, st, err := openStore(stateDir)
	if err != nil {
		return m, err
	}
	f, err := helperFacts()
	if err != nil {
		return m, err
	}
	tree, err := s.unpackImage(ctx, f, layout, digest)
	if err != nil {
		return m, err
	}
	return st.Meta(tree)
}

// StoreRemove removes a name, or an entry with all that stands for it.
func StoreRemove(ctx context.Context, stateDir, what string) ([]string, error) {
	s, st, err := openStore(stateDir)
	if err != nil {
		return nil, err
	}
	lock, err := st.Lock()
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	digest := what
	if !policy.ValidDigest(what) {
		if digest, err = st.Ref("names", what); err != nil {
			return nil, err
		}
	} else if tree, err := st.Ref("images", what); err == nil {
		digest = tree
	}
	refs, err := st.Refs()
	if err != nil {
		return nil, err
	}
	named := strings.HasPrefix(what, "sha256:")
	removed := []string{what}
	others := false
	for _, r := range refs {
		if r.Tree != digest {
			continue
		}
		if !named && (r.Kind != "names" || r.Name != what) {
			others = true
		}
	}
	if !others {
		if err := s.removeEntry(ctx, st, digest); err != nil {
			return nil, err
		}
		if digest != what {
			removed = append(removed, digest)
		}
	}
	for _, r := range refs {
		if r.Tree == digest && (named || r.Kind == "names" && r.Name == what) {
			if err := st.DropRef(r.Kind, r.Name); err != nil {
				return removed, err
			}
		}
	}
	return removed, nil
}

// removeEntry moves an entry that nobody uses aside and empties it.
func (s *state) removeEntry(ctx context.Context, st *store.Store, digest string) error {
	dir, err := st.Release(digest)
	if err != nil {
		return err
	}
	return s.emptyTrees(ctx, []string{dir})
}

// emptyTrees removes directories of trash/.
func (s *state) emptyTrees(ctx context.Context, dirs []string) error {
	f, err := helperFacts()
	if err != nil {
		return err
	}
	h, err := s.openHelpers(ctx, f, "store")
	if err != nil {
		return err
	}
	defer h.close(true)
	var errs []error
	for _, d := range dirs {
		errs = append(errs, h.empty(ctx, d))
	}
	return errors.Join(errs...)
}

const storePatience = 14 * 24 * time.Hour

// StoreCollect removes what nobody asked for in two weeks: quarantine, unpacked
// images, entries that nothing stands for; and at once what makers that died
// have left.
func StoreCollect(ctx context.Context, stateDir string, now time.Time, dry bool) ([]string, error) {
	removed := []string{}
	s, st, err := openStore(stateDir)
	if err != nil {
		return removed, err
	}
	lock, err := st.Lock()
	if err != nil {
		return removed, err
	}
	defer lock.Close()
	refs, err := st.Refs()
	if err != nil {
		return removed, err
	}
	kept := map[string]bool{}
	for _, r := range refs {
		if r.Kind == "images" && now.Sub(r.Used) > storePatience {
			removed = append(removed, "images/"+r.Name)
			if !dry {
				if err := st.DropRef(r.Kind, r.Name); err != nil {
					return removed, err
				}
			}
			continue
		}
		kept[r.Tree] = true
	}
	digests, err := st.Entries()
	if err != nil {
		return removed, err
	}
	var trees []string
	for _, d := range digests {
		if kept[d] {
			continue
		}
		if dry {
			removed = append(removed, d)
			continue
		}
		dir, err := st.Release(d)
		if e := reason.Of(err); e != nil && e.ID == reason.StoreBusy {
			continue
		}
		if err != nil {
			return removed, err
		}
		removed, trees = append(removed, d), append(trees, dir)
	}
	for _, kind := range []string{"new", "trash", "quarantine"} {
		left, err := st.Below(kind)
		if err != nil {
			return removed, err
		}
		for _, name := range left {
			at := st.Dir + "/" + kind + "/" + name
			if kind == "quarantine" && !olderThan(at, now.Add(-storePatience)) || slices.Contains(trees, at) {
				continue
			}
			removed = append(removed, kind+"/"+name)
			if dry {
				continue
			}
			if kind != "trash" {
				if at, err = st.ToTrash(at); err != nil {
					return removed, err
				}
			}
			trees = append(trees, at)
		}
	}
	if dry || len(trees) == 0 {
		return removed, nil
	}
	return removed, s.emptyTrees(ctx, trees)
}

func olderThan(path string, t time.Time) bool {
	var st unix.Stat_t
	return unix.Lstat(path, &st) == nil && time.Unix(st.Mtim.Unix()).Before(t)
}
