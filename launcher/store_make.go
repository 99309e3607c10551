package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"nsbox/exporter/wipe"
	"nsbox/launcher/probe"
	"nsbox/launcher/reason"
	"nsbox/launcher/stage"
	"nsbox/launcher/store"
	"nsbox/launcher/unpack/request"
	"nsbox/nsexec"
)

const (
	unpackWall   = 10 * time.Minute
	unpackMemory = 512 << 20
	helperLog    = 1 << 20
)

// helperEnv keeps the collector on: these stages hold what they read for longer
// than a start.
func helperEnv() []string { return []string{"GOMAXPROCS=2", "GOMEMLIMIT=256MiB"} }

// storeNode is where a helper writes to.
func storeNode(source string) nsexec.Node {
	return nsexec.Node{Path: request.StoreDir, Kind: nsexec.Storage, Source: source, Access: nsexec.Read | nsexec.List | nsexec.Write}
}

// unpackImage brings the image into the store and returns its tree's digest.
func (s *state) unpackImage(ctx context.Context, f Facts, layout, digest string) (string, error) {
	st, err := s.store()
	if err != nil {
		return "", err
	}
	lock, err := st.Lock()
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if tree, err := st.Ref("images", digest); err == nil {
		return tree, nil // somebody else was faster
	}
	source, err := filepath.EvalSymlinks(layout)
	if err != nil {
		return "", reason.Wrap(reason.ImageRefused, layout, "cannot be opened as an image layout", "correct rootfs.oci.layout", err)
	}
	h, err := s.openHelpers(ctx, f, "unpack")
	if err != nil {
		return "", err
	}
	defer h.close(true)
	dir, err := st.NewDir("new")
	if err != nil {
		return "", err
	}
	rep, err := h.unpacker(ctx, request.Request{Op: request.OpUnpack, Digest: digest, Bounds: request.DefaultBounds()}, "the image "+digest,
		nsexec.Node{Path: request.ImageDir, Kind: nsexec.BindDir, Source: source, NoExec: true, Access: nsexec.Read | nsexec.List}, dir)
	if err == nil && !rep.OK {
		err = reason.New(reason.ImageRefused, layout+" "+digest, quoted(rep.Code+": "+rep.What), "get the image from where it comes from again; nothing of it was kept")
	}
	if err != nil {
		return "", errors.Join(err, h.discard(ctx, st, dir))
	}
	m, err := h.adopt(ctx, st, dir, store.Meta{Kind: store.KindImage, Source: digest, Left: notable(rep.Counts), UID: int(h.ids.Exporter.UID), GID: int(h.ids.Exporter.GID)})
	if err != nil {
		return "", err
	}
	return m.Digest, st.SetRef("images", digest, m.Digest)
}

// notable is what of an image was changed or left out.
func notable(counts map[string]int) map[string]int {
	delete(counts, "entries")
	return counts
}

// unpacker runs the stage that reads strangers' formats; dir is where it writes,
// "" for nowhere.
func (h *helpers) unpacker(ctx context.Context, req request.Request, what string, source nsexec.Node, dir string) (request.Report, error) {
	var rep request.Report
	self, err := stage.OpenUnpacker(h.state.cache())
	if err != nil {
		return rep, reason.Wrap(reason.LauncherExeUnreadable, "nsbox's unpacker", "cannot be opened", "build nsbox with make; check the free space of "+h.state.cache(), err)
	}
	defer unix.Close(self)
	argument, err := json.Marshal(req)
	if err != nil {
		return rep, err
	}
	x := helper{what: what, nodes: []nsexec.Node{{Path: "/", Kind: nsexec.Dir, Mode: 0o755}, source}, self: self, wall: unpackWall, bytes: req.Bounds.Bytes, memory: unpackMemory, log: helperLog,
		command: nsexec.Command{Self: true, Argv: []string{request.StageName, string(argument)}, Env: helperEnv(), Dir: "/"}}
	if dir != "" {
		// Open to the box's id while it works; nobody else can come to it.
		if err := os.Chmod(dir, 0o777); err != nil {
			return rep, err
		}
		defer os.Chmod(dir, 0o700)
		x.nodes = append(x.nodes, storeNode(dir))
	}
	got, err := h.run(ctx, x)
	if err != nil {
		return rep, err
	}
	if rep, err = request.DecodeReport(got.out); err != nil || got.status != 0 {
		return rep, reason.Wrap(reason.HelperFailed, what, fmt.Sprintf("its box ended with status %d and no report: %s", got.status, quoted(textOf(got.log, false))), "report this as a fault of nsbox", err)
	}
	return rep, nil
}

// adopt makes what a helper wrote an entry of the store.
func (h *helpers) adopt(ctx context.Context, st *store.Store, dir string, m store.Meta) (store.Meta, error) {
	err := os.Chmod(dir, 0o700)
	if names, e := os.ReadDir(dir); err == nil && e == nil && (len(names) != 1 || names[0].Name() != request.TreeName || !names[0].IsDir()) {
		err = reason.New(reason.HelperFailed, dir, "holds something else than the tree that was asked for", "report this as a fault of nsbox")
	}
	made := false
	if err == nil {
		m, made, err = st.Adopt(dir, m)
	}
	if err != nil || !made {
		err = errors.Join(err, h.discard(ctx, st, dir))
	}
	return m, err
}

// discard removes a directory of the store whose trees belong to ids of a box.
func (h *helpers) discard(ctx context.Context, st *store.Store, dir string) error {
	trash, err := st.NewDir("trash")
	if err == nil {
		err = os.Rename(dir, trash+"/it")
	}
	if err == nil {
		err = h.empty(ctx, trash)
	}
	if err != nil {
		return reason.Wrap(reason.StoreUnusable, dir, "could not be removed", "nsbox store gc", err)
	}
	return nil
}

// empty removes a directory of trash/ whose trees belong to an id of a box: each
// tree by a box under that id, the rest, which is the launcher's own, by hand.
func (h *helpers) empty(ctx context.Context, trash string) error {
	trees, err := foreign(trash, 3)
	if err != nil {
		return err
	}
	for _, t := range trees {
		x := helper{what: "removing " + t.path, self: h.self, wall: unpackWall, memory: unpackMemory, log: helperLog, owner: t.owner,
			nodes: []nsexec.Node{{Path: "/", Kind: nsexec.Dir, Mode: 0o755},
				{Path: wipe.At, Kind: nsexec.Storage, Source: t.path, Access: nsexec.Read | nsexec.List | nsexec.Write}},
			command: nsexec.Command{Self: true, Argv: []string{wipe.StageName}, Env: nsexec.StageEnv(), Dir: "/"}}
		got, err := h.run(ctx, x)
		if err == nil && got.status != 0 {
			err = fmt.Errorf("%s: status %d: %s", x.what, got.status, textOf(got.log, false))
		}
		if err != nil {
			return err
		}
	}
	// What is left is the launcher's own: empty directories, meta, manifest.
	return os.RemoveAll(trash)
}

type foreignTree struct {
	path  string
	owner probe.HostID
}

// foreign finds directories of other owners below dir, which is the launcher's
// own as far as depth reaches.
func foreign(dir string, depth int) ([]foreignTree, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []foreignTree
	for _, e := range entries {
		at := filepath.Join(dir, e.Name())
		var s unix.Stat_t
		if err := unix.Lstat(at, &s); err != nil {
			return nil, err
		}
		switch {
		case s.Mode&unix.S_IFMT != unix.S_IFDIR:
		case int(s.Uid) != os.Geteuid():
			all = append(all, foreignTree{at, probe.HostID{UID: int64(s.Uid), GID: int64(s.Gid)}})
		case depth > 1:
			below, err := foreign(at, depth-1)
			if err != nil {
				return nil, err
			}
			all = append(all, below...)
		}
	}
	return all, nil
}
