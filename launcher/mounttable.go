package launcher

import (
	"os"
	"path"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"

	"nsbox/launcher/attest"
	"nsbox/launcher/outslot"
	"nsbox/nsexec"
)

// mounts compares the box's mount table with the list that made it: nothing
// missing, nothing more, each with the flags it must have.
func (in *inspection) mounts() {
	const where = "/proc/PID/mountinfo of the workload"
	shown := map[string]*mountinfo.Info{}
	for _, m := range in.seen.mounts {
		if shown[m.Mountpoint] != nil {
			in.row("mount "+m.Mountpoint, "once", "twice", where, attest.KernelRead)
		}
		shown[m.Mountpoint] = m
	}
	want := wantedMounts(in.spec, in.seen.maskable)
	for _, p := range sortedKeys(want) {
		w, m := want[p], shown[p]
		switch {
		case m != nil:
			in.row("mount "+p, w.String(), w.shownBy(m), where, attest.KernelRead)
		case !w.optional:
			in.row("mount "+p, w.String(), "absent", where, attest.KernelRead)
		}
	}
	for _, p := range sortedKeys(shown) {
		if _, ok := want[p]; ok {
			continue
		}
		m := shown[p]
		if w, ok := coveringBind(in.spec, want, p); ok {
			in.row("mount "+p, w.String(), w.shownBy(m), where, attest.KernelRead)
			continue
		}
		in.row("mount "+p, "absent", m.FSType+" "+m.Options, where, attest.KernelRead)
	}
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

// coveringBind finds the recursive bind that brought a submount of its source
// along. The staged inputs are a directory of the launcher's own and have none.
func coveringBind(s *nsexec.Spec, want map[string]wantedMount, p string) (wantedMount, bool) {
	for up := path.Dir(p); up != "/"; up = path.Dir(up) {
		for _, n := range s.Root {
			if n.Path == up && n.Kind == nsexec.BindDir && n.Path != "/in" {
				return want[up], true
			}
		}
	}
	return wantedMount{}, false
}

// wantedMount is what the kernel must show of one mount.
type wantedMount struct {
	flags    []string // of the mount itself
	super    []string // of the file system
	source   string   // of the mount; empty: any
	fstype   string   // empty: whatever the source is on
	optional bool     // this kernel has nothing to cover there
}

func (w wantedMount) String() string {
	s := strings.Join(w.flags, ",")
	for _, word := range []string{w.source, w.fstype} {
		if word != "" {
			s = word + " " + s
		}
	}
	if len(w.super) > 0 {
		s += " " + strings.Join(w.super, ",")
	}
	return s + " private"
}

// shownBy renders what m shows of what w asks, so that equal means held.
func (w wantedMount) shownBy(m *mountinfo.Info) string {
	among := func(wanted []string, list string) (out []string) {
		have := strings.Split(list, ",")
		for _, f := range wanted {
			if slices.Contains(have, f) {
				out = append(out, f)
			}
		}
		return out
	}
	got := wantedMount{flags: among(w.flags, m.Options), super: among(w.super, m.VFSOptions)}
	if w.fstype != "" {
		got.fstype = m.FSType
	}
	if w.source != "" {
		got.source = m.Source
	}
	s := got.String()
	if m.Optional != "" {
		s = strings.TrimSuffix(s, "private") + m.Optional
	}
	return s
}

// wantedMounts is the table a Spec must lead to. maskable says which of
// Spec.MaskProc exist here: those must be covered, the others cannot be.
func wantedMounts(s *nsexec.Spec, maskable map[string]bool) map[string]wantedMount {
	out := map[string]wantedMount{"/": {fstype: "tmpfs", flags: []string{"ro", "nosuid", "nodev"}}}
	for _, n := range s.Root {
		switch n.Kind {
		case nsexec.BindDir, nsexec.BindFile:
			w := wantedMount{flags: []string{"ro", "nosuid", "nodev"}}
			if n.NoExec {
				w.flags = append(w.flags, "noexec")
			}
			out[n.Path] = w
		case nsexec.Device:
			out[n.Path] = wantedMount{flags: []string{"ro", "nosuid", "noexec"}}
		case nsexec.Proc:
			out[n.Path] = wantedMount{fstype: "proc", flags: []string{"ro", "nosuid", "nodev", "noexec"}, super: []string{"hidepid=invisible"}}
			for _, m := range s.MaskProc {
				out[n.Path+"/"+m] = wantedMount{flags: []string{"ro", "nosuid", "noexec"}, optional: !maskable[m]}
			}
			for _, m := range s.MaskDirs {
				out[n.Path+"/"+m] = wantedMount{fstype: "tmpfs", flags: []string{"ro", "nosuid", "nodev", "noexec"}, optional: !maskable[m]}
			}
		case nsexec.Tmpfs:
			out[n.Path] = wantedTmpfs(n)
		case nsexec.Devpts:
			out[n.Path] = wantedMount{fstype: "devpts", flags: []string{"rw", "nosuid", "noexec"}, super: []string{"mode=600", "ptmxmode=666", "max=" + nsexec.Terminals}}
		case nsexec.Part:
			for _, whole := range s.Root {
				if whole.Path == n.Source {
					out[n.Path] = wantedTmpfs(whole)
				}
			}
		case nsexec.Storage:
			if n.Bytes == 0 {
				out[n.Path] = wantedMount{flags: []string{"rw", "nosuid", "nodev", "noexec"}} // on whatever disk the store is
				continue
			}
			w := wantedTmpfs(n)
			w.source = outslot.Source
			out[n.Path] = w
		}
	}
	return out
}

func wantedTmpfs(n nsexec.Node) wantedMount {
	w := wantedMount{fstype: "tmpfs", flags: []string{"rw", "nosuid", "nodev"},
		super: []string{"size=" + kib(n.Bytes), "nr_inodes=" + strconv.FormatInt(n.Inodes, 10)}}
	if !n.Exec {
		w.flags = append(w.flags, "noexec")
	}
	return w
}

func hasProc(s *nsexec.Spec) bool {
	return slices.ContainsFunc(s.Root, func(n nsexec.Node) bool { return n.Kind == nsexec.Proc })
}

// kib is how tmpfs prints a size: whole pages, in KiB.
func kib(bytes int64) string {
	page := int64(os.Getpagesize())
	return strconv.FormatInt((bytes+page-1)/page*page/1024, 10) + "k"
}
