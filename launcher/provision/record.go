package provision

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"nsbox/launcher/probe"
	"nsbox/launcher/reason"
)

const schema = "nsbox.provision/1"

// record is what was made, in order. Making is the step that was begun last and
// not seen done yet: it may have had effects.
type record struct {
	Schema string      `json:"schema"`
	Config Config      `json:"config"`
	IDs    probe.Range `json:"ids"` // subordinate ids, of users and groups alike
	Made   []string    `json:"made"`
	Making string      `json:"making,omitempty"`
}

// ours reports whether a step was begun by this provisioning.
func (r *record) ours(step string) bool { return r.Making == step || slices.Contains(r.Made, step) }

func foreign(what, why, next string) error {
	return reason.New(reason.ProvisionForeign, what, why, next)
}

// readRecord returns nil where there is none. One that anybody but root could
// have written is no record.
func readRecord(path string) (*record, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, reason.Wrap(reason.ProvisionForeign, path, "cannot be opened", "run nsbox provision as root", err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Uid != 0 || st.Mode&0o022 != 0 {
		return nil, foreign(path, fmt.Sprintf("is not a file that root alone may write (uid %d, mode %04o)", st.Uid, st.Mode&0o7777), "find out who made it; nsbox leaves it alone")
	}
	text, err := io.ReadAll(io.LimitReader(f, 1<<16))
	if err != nil {
		return nil, reason.Wrap(reason.ProvisionForeign, path, "cannot be read", "", err)
	}
	var r record
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil || r.Schema != schema {
		return nil, reason.Wrap(reason.ProvisionForeign, path, "is no record of nsbox provision", "find out who made it; nsbox leaves it alone", err)
	}
	if err := r.Config.validate(); err != nil {
		return nil, err
	}
	return &r, nil
}

// write replaces the record, whole and durable.
func (r *record) write() error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	path := r.Config.recordPath()
	if err := renameio.WriteFile(path, append(text, '\n'), 0o644); err != nil {
		return reason.Wrap(reason.ProvisionStep, path, "cannot be written, and nothing is made that stands in no record", "free space there", err)
	}
	return nil
}
