package exporter

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// A number that the set-up left closed is a name that could not be opened, and
// whether it exists decides between EMPTY and a rejection.
func TestMissingMarksClosedDescriptors(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/there", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	handed, err := unix.FcntlInt(d.Fd(), unix.F_DUPFD, 3) // like one that came over an exec
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(handed)
	names := []Handle{{Name: "there", FD: 900}, {Name: "absent", FD: 901}, {Name: "open", FD: handed}, {Name: "absent too", FD: int(d.Fd())}}
	missing(int(d.Fd()), names)
	if names[0].FD != -1 || names[0].Errno != int(unix.EACCES) {
		t.Errorf("an entry that is there and not open: %+v", names[0])
	}
	if names[1].FD != -1 || names[1].Errno != int(unix.ENOENT) {
		t.Errorf("an entry that is not there: %+v", names[1])
	}
	if names[2].FD != handed || names[2].Errno != 0 {
		t.Errorf("an open descriptor was changed: %+v", names[2])
	}
	if names[3].FD != -1 || names[3].Errno != int(unix.ENOENT) {
		t.Errorf("a descriptor of the runtime's own was taken for a file: %+v", names[3])
	}
}
