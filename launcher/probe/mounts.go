package probe

import (
	"path"
	"slices"

	"github.com/moby/sys/mountinfo"
)

// emptyByDesign are directories of proc that the kernel makes to be mounted on
// and that hide nothing; a mount there does not make a fresh proc revealing.
var emptyByDesign = []string{"sys/fs/binfmt_misc", "fs/nfsd"}

// procMasks mirrors the kernel's rule for mounting proc in a new user
// namespace: somewhere in the caller's mounts there must be a whole proc with
// nothing mounted over its parts. It returns what is in the way of the proc at
// /proc, or nil if a whole one exists. "/proc" itself in the answer means that
// there is no whole proc to begin with.
func procMasks(mounts []*mountinfo.Info) []string {
	over := map[int][]string{} // mount id → mounts on it that hide something
	byID := map[int]*mountinfo.Info{}
	for _, m := range mounts {
		byID[m.ID] = m
	}
	for _, m := range mounts {
		p := byID[m.Parent]
		if p == nil || p == m || p.FSType != "proc" {
			continue
		}
		harmless := slices.ContainsFunc(emptyByDesign, func(d string) bool {
			return m.Mountpoint == path.Join(p.Mountpoint, d)
		})
		if !harmless {
			over[p.ID] = append(over[p.ID], m.Mountpoint)
		}
	}
	masks := []string{"/proc"}
	for _, m := range mounts {
		if m.FSType != "proc" || m.Root != "/" {
			continue
		}
		if len(over[m.ID]) == 0 {
			return nil
		}
		if m.Mountpoint == "/proc" || len(masks) == 1 && masks[0] == "/proc" {
			masks = over[m.ID]
		}
	}
	return masks
}
