package launcher

import (
	"context"
	"os"

	"golang.org/x/sys/unix"

	"nsbox/launcher/probe"
)

// nobodyNested waits until no process of the caller's lives in a user namespace of
// nsbox's nested shape: one that maps a single id, the caller's. With such ids
// nothing tells the boxes of two attempts apart, so this is a proof only while no
// other box of the account runs; until then an attempt whose launcher died stays
// quarantined.
func nobodyNested(ctx context.Context, ids probe.Slot, exe fileID) error {
	since, who := bootTicks(), idSet(ids)
	who.exe, who.alone = exe, ownNamespace()
	return awaitGone(ctx, dyingGrace, func() ([]holder, error) { return holders(who, since) })
}

// ownNamespace is the user namespace of this process: whoever shares it is in no
// box, however its map may look.
func ownNamespace() fileID {
	var st unix.Stat_t
	if unix.Stat("/proc/self/ns/user", &st) != nil {
		return fileID{Dev: 1} // nobody's
	}
	return fileID{Dev: st.Dev, Ino: st.Ino}
}

// nestedHolder tells a process by its namespace's map, given that the caller is
// one of its ids.
func (h hostIDs) nestedHolder(dir string, uidMap []byte) bool {
	var st unix.Stat_t
	if unix.Stat(dir+"/ns/user", &st) == nil && h.alone == (fileID{Dev: st.Dev, Ino: st.Ino}) {
		return false
	}
	lines := parseMap(uidMap)
	return len(lines) == 1 && mapsOne(uidMap, map[int64]bool{int64(os.Getuid()): true})
}
