package outslot

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

const table = `42 26 0:38 / /srv/out/0 rw,nosuid,nodev,noexec,relatime shared:7 - tmpfs nsbox-out rw,size=8192k,nr_inodes=64,mode=700,uid=100001,gid=200001
43 26 0:39 / /srv/out/1 rw,nosuid,nodev,noexec,relatime - tmpfs nsbox-out rw,size=8192k,nr_inodes=64,mode=700,uid=100005,gid=200005
44 43 0:40 / /srv/out/1 rw,relatime - tmpfs other rw
45 26 0:38 /below /srv/part rw,relatime - tmpfs nsbox-out rw
46 26 0:41 / /srv/fuse rw,relatime - fuse.tmpfs nsbox-out rw
47 26 0:42 / /tmp rw,relatime - tmpfs tmpfs rw
`

func TestOf(t *testing.T) {
	all, err := mountinfo.GetMountsFromReader(strings.NewReader(table), nil)
	if err != nil {
		t.Fatal(err)
	}
	got := Of(all)
	want := Mount{"/srv/out/0", "rw,nosuid,nodev,noexec,relatime", "rw,size=8192k,nr_inodes=64,mode=700,uid=100001,gid=200001", "0:38"}
	// 1 is mounted over, part is no whole file system, fuse is no tmpfs, /tmp has another source.
	if len(got) != 1 || got[0] != want {
		t.Errorf("%+v", got)
	}
}

func TestDiffers(t *testing.T) {
	page := int64(os.Getpagesize())
	m := Mount{Path: "/srv/out/0", Options: "rw,nosuid,nodev,noexec,relatime", Dev: "0:38"}
	w := Want{Bytes: 8*page - 1, Inodes: 64, UID: 100001, GID: 200001} // tmpfs rounds up to pages
	s := Seen{TmpFS: true, Bytes: 8 * page, Inodes: 64, UID: 100001, GID: 200001, Mode: Mode, Dev: "0:38"}
	if d := m.Differs(s, w); d != "" {
		t.Fatalf("control: %s", d)
	}
	if l := s.Left(); l != "" {
		t.Fatalf("control: %s", l)
	}
	for name, change := range map[string]func(m *Mount, s *Seen){
		"another kind":     func(_ *Mount, s *Seen) { s.TmpFS = false },
		"mounted over":     func(_ *Mount, s *Seen) { s.Dev = "0:40" },
		"larger":           func(_ *Mount, s *Seen) { s.Bytes += page },
		"smaller":          func(_ *Mount, s *Seen) { s.Bytes -= page },
		"unbounded":        func(_ *Mount, s *Seen) { s.Bytes = 0 },
		"inodes":           func(_ *Mount, s *Seen) { s.Inodes = 0 },
		"another's":        func(_ *Mount, s *Seen) { s.UID++ },
		"another group's":  func(_ *Mount, s *Seen) { s.GID++ },
		"read-only":        func(m *Mount, _ *Seen) { m.Options = "ro,nosuid,nodev,noexec" },
		"set-uid programs": func(m *Mount, _ *Seen) { m.Options = "rw,nodev,noexec" },
		"devices":          func(m *Mount, _ *Seen) { m.Options = "rw,nosuid,noexec" },
		"executables":      func(m *Mount, _ *Seen) { m.Options = "rw,nosuid,nodev" },
	} {
		m, s := m, s
		change(&m, &s)
		if m.Differs(s, w) == "" {
			t.Errorf("%s: taken as it was asked for", name)
		}
	}
	for name, change := range map[string]func(s *Seen){
		"an entry":  func(s *Seen) { s.Used = 1 },
		"pages":     func(s *Seen) { s.Blocks = 1 },
		"sealed":    func(s *Seen) { s.Mode = 0o555 },
		"attribute": func(s *Seen) { s.Attributes = []string{"system.posix_acl_default"} },
	} {
		s := s
		change(&s)
		if s.Left() == "" || m.Differs(s, w) != "" {
			t.Errorf("%s: left %q, differs %q", name, s.Left(), m.Differs(s, w))
		}
	}
}

func TestLifetime(t *testing.T) {
	m := Mount{Dev: "0:38"}
	for r, known := range map[Record]bool{{"b", "0:38"}: true, {"a", "0:38"}: false, {"b", "0:39"}: false, {}: false, {"", "0:38"}: false} {
		if why := m.Lifetime(r, "b"); (why == "") != known {
			t.Errorf("%+v: %q", r, why)
		}
	}
	if m.Lifetime(Record{Dev: "0:38"}, "") == "" {
		t.Error("an unknown boot counts as this one")
	}
}

// TestRecord: what anybody but root could have written is no record.
func TestRecord(t *testing.T) {
	want := Record{"c01d26c2-d1d5-479d-b1a6-118b3a4013fa", "0:38"}
	write := func(text string, mode os.FileMode) string {
		slot := t.TempDir() + "/0"
		if err := os.WriteFile(RecordPath(slot), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(RecordPath(slot), mode); err != nil {
			t.Fatal(err)
		}
		return slot
	}
	if os.Geteuid() != 0 {
		t.Fatal("a record is root's: this test runs as root, as make test does")
	}
	if got, err := ReadRecord(write(want.String()+"\n", 0o640)); err != nil || got != want {
		t.Fatalf("control: %+v, %v", got, err)
	}
	link := t.TempDir() + "/0"
	if err := os.Symlink(RecordPath(write(want.String(), 0o644)), RecordPath(link)); err != nil {
		t.Fatal(err)
	}
	theirs := write(want.String(), 0o644)
	if err := os.Chown(RecordPath(theirs), 65533, 65533); err != nil {
		t.Fatal(err)
	}
	fifo := t.TempDir() + "/0"
	if err := unix.Mkfifo(RecordPath(fifo), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, slot := range map[string]string{
		"missing": t.TempDir() + "/0", "a link": link, "another's": theirs, "a pipe": fifo, "group's": write(want.String(), 0o660), "everybody's": write(want.String(), 0o606),
		"empty": write("", 0o640), "half": write("boot x", 0o640), "other words": write("dev 0:38 boot x", 0o640),
	} {
		if got, err := ReadRecord(slot); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestLook reads a real one, as its owner's stranger and without opening it.
func TestLook(t *testing.T) {
	dir := t.TempDir()
	const bytes, inodes, owner = 64 << 10, 16, 1879048202
	if err := unix.Mount(Source, dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, fmt.Sprintf("size=%d,nr_inodes=%d,mode=0700,uid=%d,gid=%d", bytes, inodes, owner, owner)); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(dir, 0)
	mounts, err := Mounts()
	var m *Mount
	for i := range mounts {
		if mounts[i].Path == dir {
			m = &mounts[i]
		}
	}
	if err != nil || m == nil {
		t.Fatalf("not in the table: %+v, %v", mounts, err)
	}
	s, err := Look(dir)
	if d := m.Differs(s, Want{bytes, inodes, owner, owner}); err != nil || d != "" || s.Left() != "" {
		t.Fatalf("%+v: %s, %s, %v", s, d, s.Left(), err)
	}
	if err := os.WriteFile(dir+"/x", []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err = Look(dir); err != nil || s.Left() != "1 entries and 1 pages" {
		t.Errorf("%+v, %v", s, err)
	}
	if err := os.Remove(dir + "/x"); err != nil {
		t.Fatal(err)
	}
	acl := []byte{2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 4, 0, 0, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255}
	if err := unix.Setxattr(dir, "system.posix_acl_default", acl, 0); err != nil {
		t.Fatal(err)
	}
	if s, err = Look(dir); err != nil || !strings.Contains(s.Left(), "posix_acl_default") {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := Look(dir + "/none"); err == nil {
		t.Error("a missing one was seen")
	}
}
