package probe

import (
	"errors"
	"strings"
	"testing"

	"nsbox/launcher/reason"
)

// Only where the cause is a missing range, and nothing that gives power would
// stay with the program, is the caller's own id enough.
func TestChooseSingle(t *testing.T) {
	contained := []Extent{{0, 1000, 1}}
	for name, c := range map[string]struct {
		host *Host
		edit func(h *Host)
		uid  int64  // that all of a slot has
		why  string // part of the refusal; "": it may
	}{
		"no range":                      {plainHost(), func(h *Host) { h.SubUID = nil }, 1000, ""},
		"no helper":                     {plainHost(), func(h *Host) { h.UIDMapHelper.OK = false }, 1000, ""},
		"no_new_privs":                  {plainHost(), func(h *Host) { h.NoNewPrivs = true }, 1000, ""},
		"a container's user":            {plainHost(), func(h *Host) { h.SelfUIDMap = []Extent{{1000, 1000, 1}}; h.SelfGIDMap = h.SelfUIDMap }, 1000, ""},
		"a container's root":            {rootHost(), func(h *Host) { h.SelfUIDMap, h.SelfGIDMap = contained, contained }, 0, ""},
		"a group of the workplace":      {plainHost(), func(h *Host) { h.SubUID = nil; h.Groups = append(h.Groups, Group{2000, "staffers"}) }, 1000, ""},
		"a user without any name":       {plainHost(), func(h *Host) { h.SubUID = nil; h.User, h.Groups = "", []Group{{1000, ""}} }, 1000, ""},
		"the host's root":               {rootHost(), func(h *Host) { h.DefaultFree = false }, 0, "are in use"},
		"the host's root, without caps": {rootHost(), func(h *Host) { h.CapEff = 0 }, 0, "cannot write id maps"},
		"the host's group 0":            {plainHost(), func(h *Host) { h.SubUID = nil; h.GID, h.RealGID = 0, 0 }, 0, "no usable range"},
		"set-user-id":                   {plainHost(), func(h *Host) { h.UID = 0 }, 0, "not written to be set-uid"},
		"docker":                        {plainHost(), func(h *Host) { h.SubUID = nil; h.Groups = append(h.Groups, Group{999, "docker"}) }, 0, "the group docker"},
		"docker as first group":         {plainHost(), func(h *Host) { h.SubUID = nil; h.GID, h.RealGID = 999, 999; h.Groups = []Group{{999, "docker"}} }, 0, "the group docker"},
		"root's group":                  {plainHost(), func(h *Host) { h.SubUID = nil; h.Groups = append(h.Groups, Group{0, "root"}) }, 0, "the group root"},
		"a group without a name":        {plainHost(), func(h *Host) { h.SubUID = nil; h.Groups = append(h.Groups, Group{4711, ""}) }, 0, "unknown power, 4711"},
		"a group hidden by a namespace": {plainHost(), func(h *Host) { h.SubUID = nil; h.Groups = append(h.Groups, Group{65534, "nogroup"}) }, 0, "unknown power, 65534"},
	} {
		c.edit(c.host)
		_, cause := ChooseIdentity(c.host)
		if cause == nil {
			t.Errorf("%s: there is a range", name)
			continue
		}
		id, err := ChooseSingle(c.host, cause)
		if c.why == "" {
			slot, slotErr := id.Map(3)
			if err != nil || slotErr != nil || id.Kind != Single || id.Cause != reason.Of(cause) || slot.Workload.UID != c.uid || !slot.Shared() {
				t.Errorf("%s: %+v, %v, %+v", name, id, err, slot)
			}
			continue
		}
		if e := reason.Of(err); e == nil || e.ID != reason.Of(cause).ID || !strings.Contains(e.Why, c.why) || e.Next != reason.Of(cause).Next {
			t.Errorf("%s: %+v, %v", name, id, err)
		}
	}
	other := errors.New("anything else")
	if _, err := ChooseSingle(plainHost(), other); err != other {
		t.Errorf("another cause became %v", err)
	}
}
