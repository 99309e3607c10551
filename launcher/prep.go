package launcher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"nsbox/launcher/lockfile"
	"nsbox/launcher/policy"
	"nsbox/launcher/probe"
	"nsbox/launcher/reason"
	"nsbox/launcher/rootfs"
	"nsbox/launcher/store"
	"nsbox/launcher/unpack/request"
	"nsbox/nsexec"
)

// PrepRequest is what nsbox prep is asked for.
type PrepRequest struct {
	Lock, Wheels string // file, directory
	Root         policy.RootSource
	Name         string
	StateDir     string
}

// Prepared is what it made.
type Prepared struct {
	Name   string `json:"name"`
	Digest string `json:"digest"`
	Python string `json:"python"`
	Wheels int    `json:"wheels"`
	Files  int    `json:"entries"`
	Bytes  int64  `json:"bytes"`
	New    bool   `json:"new"` // false: the store had the same content already
}

const (
	prepWall    = 5 * time.Minute
	prepMemory  = 1 << 30
	prepScratch = 64 << 20
	maxWheels   = 4 << 30 // bytes of all wheels
	lockInBox   = "/etc/nsbox-lock.txt"
)

// Prep installs wheels offline: those that the lock pins and no other, by the
// root's own pip, in a box without a network, into the store. Whatever goes
// wrong, nothing is installed; material and log are then kept in quarantine. The
// error is a *reason.Error.
func Prep(ctx context.Context, req PrepRequest) (Prepared, error) {
	out := Prepared{Name: req.Name}
	if !policy.ValidName(req.Name) {
		return out, reason.New(reason.Usage, "--name "+quoted(req.Name), "is no name of prepared packages", "write 1 to 64 of a-z, 0-9, dot, dash and underscore, first a letter or digit")
	}
	text, err := readRegular(req.Lock, 1<<20)
	if err != nil {
		return out, reason.Wrap(reason.LockInvalid, req.Lock, "cannot be read", "name a requirements file with hashes", err)
	}
	pins, err := lockfile.Parse(req.Lock, text)
	if err != nil {
		return out, err
	}
	state, err := openState(req.StateDir)
	if err != nil {
		return out, err
	}
	st, err := state.store()
	if err != nil {
		return out, err
	}
	f, err := helperFacts()
	if err != nil {
		return out, err
	}
	r := &root{state: state, facts: f, make: true}
	defer r.close()
	closure, err := r.installer(ctx, req.Root)
	if err != nil {
		return out, err
	}
	lock, err := st.Lock()
	if err != nil {
		return out, err
	}
	defer lock.Close()
	h, err := state.openHelpers(ctx, f, "prep")
	if err != nil {
		return out, err
	}
	defer h.close(true)
	p := &prep{helpers: h, store: st, closure: closure, pins: pins}
	return p.run(ctx, req, out)
}

// installer is the closure of the root's own interpreter with its pip.
func (r *root) installer(ctx context.Context, source policy.RootSource) (*rootfs.Closure, error) {
	at := rootfs.Root{Packages: true}
	var err error
	switch s := source.(type) {
	case policy.DirectoryRoot:
		at, err = r.directory(s, false)
	case policy.OCIRoot:
		at, err = r.image(ctx, s, false)
	}
	if err != nil {
		return nil, err
	}
	c, _, err := at.Cached(r.state.cache(), "python3", nil)
	return c, err
}

// helperFacts is what boxes of nsbox's own need to know of the host.
func helperFacts() (Facts, error) {
	var f Facts
	var err error
	if f.Host, err = probe.Survey(); err != nil {
		return f, err
	}
	if stands := probe.Check(f.Host); len(stands) > 0 {
		return f, stands[0]
	}
	if f.Identity, err = probe.ChooseIdentity(f.Host); err != nil {
		return f, err
	}
	f.CapLast, f.CPU = capLast(), firstCPU()
	return f, nil
}

// prep is one preparation in the making.
type prep struct {
	helpers  *helpers
	store    *store.Store
	closure  *rootfs.Closure
	pins     []lockfile.Pin
	material string // the private copy of the wheels
	log      []byte // of the installer
}

func (p *prep) run(ctx context.Context, req PrepRequest, out Prepared) (Prepared, error) {
	dir, err := p.store.NewDir("new")
	if err != nil {
		return out, err
	}
	p.material = filepath.Join(p.store.Dir, "new", filepath.Base(dir)+"-wheels")
	err = p.install(ctx, req, dir)
	if err != nil {
		kept, e := p.quarantine(req, err)
		if e == nil && reason.Of(err) != nil {
			full := *reason.Of(err)
			full.Next = strings.TrimSpace(full.Next + "; the material and the log are in " + kept)
			err = &full
		}
		return out, errors.Join(err, e, p.helpers.discard(ctx, p.store, dir))
	}
	if err := rootfs.RemoveStaged(p.material); err != nil {
		return out, err
	}
	before, _ := p.store.Ref("names", req.Name)
	m, err := p.helpers.adopt(ctx, p.store, dir, store.Meta{Kind: store.KindPrepared, Source: store.DigestOf(lockfile.Text(p.pins)), Python: p.closure.Python,
		UID: int(p.helpers.ids.Exporter.UID), GID: int(p.helpers.ids.Exporter.GID)})
	if err != nil {
		return out, err
	}
	out.Digest, out.Python, out.Wheels, out.Files, out.Bytes, out.New = m.Digest, p.closure.Python, len(p.pins), m.Entries, m.Bytes, before != m.Digest
	return out, p.store.SetRef("names", req.Name, m.Digest)
}

// install checks the wheels by hash, then by form, then lets pip at them.
func (p *prep) install(ctx context.Context, req PrepRequest, dir string) error {
	staged, err := rootfs.Stage(ctx, p.material, []rootfs.Input{{Path: req.Wheels}}, maxWheels)
	if err != nil {
		return err
	}
	var files []lockfile.File
	for _, s := range staged {
		files = append(files, lockfile.File{Name: s.Name, SHA256: s.SHA256})
	}
	if err := lockfile.Match(p.pins, files); err != nil {
		return err
	}
	rep, err := p.helpers.unpacker(ctx, request.Request{Op: request.OpWheels, Bounds: request.DefaultBounds()}, "the wheels of "+req.Wheels,
		nsexec.Node{Path: request.WheelsDir, Kind: nsexec.BindDir, Source: p.material, NoExec: true, Access: nsexec.Read | nsexec.List}, "")
	if err != nil {
		return err
	}
	if !rep.OK {
		return reason.New(reason.WheelRefused, quoted(rep.What), "is malformed or hostile: "+rep.Code, "get the wheel from where it comes from again")
	}
	return p.pip(ctx, dir)
}

func (p *prep) pip(ctx context.Context, dir string) error {
	nodes, err := rootfs.Layout(p.closure, rootfs.Options{StagedIn: p.material, ScratchBytes: prepScratch, ScratchInodes: 4096, OutBytes: 1 << 20, OutInodes: 16,
		WorkloadUID: 10001, WorkloadGID: 10001, ExporterUID: helperUser})
	if err != nil {
		return err
	}
	for i := range nodes {
		switch {
		case nodes[i].Path == "/in":
			nodes[i].NoExec = true
		case nodes[i].Kind == nsexec.Tmpfs:
			nodes[i].UID, nodes[i].GID = helperUser, helperUser
		}
	}
	nodes = append(nodes, storeNode(dir), nsexec.Node{Path: lockInBox, Kind: nsexec.File, Data: lockfile.Text(p.pins), Mode: 0o444, Access: nsexec.Read})
	tmp := dir + "/tmp"
	if err = os.Mkdir(tmp, 0o700); err == nil {
		err = errors.Join(os.Chmod(tmp, 0o777), os.Chmod(dir, 0o777))
	}
	if err != nil {
		return err
	}
	defer os.Chmod(dir, 0o700)
	got, err := p.helpers.run(ctx, helper{what: "pip", nodes: nodes, self: p.helpers.self, wall: prepWall, bytes: maxWheels, memory: prepMemory, log: helperLog,
		command: nsexec.Command{Path: p.closure.Program, Dir: "/scratch",
			Env: []string{"PATH=/usr/bin:/bin", "HOME=/scratch", "TMPDIR=" + request.StoreDir + "/tmp", "LC_ALL=C.UTF-8", "PYTHONDONTWRITEBYTECODE=1"},
			Argv: []string{"python3", "-I", "-m", "pip", "--isolated", "install", "--no-index", "--find-links", "/in", "--require-hashes", "--only-binary", ":all:",
				"--no-compile", "--no-cache-dir", "--no-input", "--disable-pip-version-check", "--no-warn-script-location", "--progress-bar", "off",
				"--target", request.StoreDir + "/" + request.TreeName, "-r", lockInBox}}})
	p.log = append(append([]byte{}, got.out...), got.log...)
	if err != nil {
		return err
	}
	if got.status != 0 {
		if strings.Contains(string(got.log), "No module named pip") {
			return reason.New(reason.PrepNoInstaller, p.closure.Program, "has no pip in this root", "install it there (Debian: python3-pip), or name a root that has it with --rootfs")
		}
		return reason.New(reason.PrepFailed, "pip", fmt.Sprintf("ended with status %d: %s", got.status, quoted(lastLine(got.log))), "read its log")
	}
	return os.Remove(tmp) // pip has to have cleared it
}

func lastLine(log []byte) string {
	lines := strings.Split(strings.TrimSpace(textOf(log, false)), "\n")
	if last := lines[len(lines)-1]; len(last) < 300 {
		return last
	}
	return "see the log"
}

// quarantine keeps what was refused and why; the name stays free.
func (p *prep) quarantine(req PrepRequest, why error) (string, error) {
	dir, err := p.store.NewDir("quarantine")
	if err != nil {
		return "", err
	}
	if err := os.Rename(p.material, dir+"/material"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return dir, err
	}
	text := fmt.Sprintf("%s\nname %s, lock %s, wheels %s\n\n%s", why, req.Name, req.Lock, req.Wheels, p.log)
	return dir, os.WriteFile(dir+"/log", []byte(text), 0o600)
}
