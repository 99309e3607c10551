package caps

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// The kernel's other account of the same sets is /proc/self/status.
func TestSelfAgreesWithProc(t *testing.T) {
	got, err := Self()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]uint64{}
	for line := range strings.Lines(string(data)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.HasPrefix(k, "Cap") {
			if want[k], err = strconv.ParseUint(strings.TrimSpace(v), 16, 64); err != nil {
				t.Fatal(err)
			}
		}
	}
	for k, v := range map[string]uint64{"CapEff": got.Effective, "CapPrm": got.Permitted, "CapInh": got.Inheritable, "CapBnd": got.Bounding, "CapAmb": got.Ambient} {
		if w, ok := want[k]; !ok || v != w {
			t.Errorf("%s is %#x, /proc/self/status says %#x", k, v, w)
		}
	}
}
