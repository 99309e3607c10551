package probe

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/sys/mountinfo"
)

const goodStatus = "Name:\tx\nUid:\t1000\t1001\t1000\t1000\nGid:\t100\t101\t100\t100\nGroups:\t27 100 \nNSpid:\t5\n" +
	"CapEff:\t000001fffeffffff\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n"

func TestParseStatus(t *testing.T) {
	got, err := parseStatus(goodStatus)
	want := status{1000, 1001, 100, 101, []int{27, 100}, 0x1fffeffffff, true, 2}
	if err != nil || cmp.Diff(want, got, cmp.AllowUnexported(status{})) != "" {
		t.Errorf("%+v, %v", got, err)
	}
	if s, err := parseStatus(strings.Replace(goodStatus, "27 100 ", "", 1)); err != nil || len(s.groups) != 0 {
		t.Errorf("no groups: %+v, %v", s, err)
	}
	for name, edit := range map[string][2]string{
		"uid missing":      {"Uid:", "Xid:"},
		"groups missing":   {"Groups:", "Groupz:"},
		"caps missing":     {"CapEff:", "CapXff:"},
		"nnp missing":      {"NoNewPrivs:", "X:"},
		"seccomp missing":  {"Seccomp:", "X:"},
		"three uids":       {"1000\t1001\t1000\t1000", "1000\t1001\t1000"},
		"negative uid":     {"Uid:\t1000", "Uid:\t-1"},
		"uid not a number": {"Uid:\t1000", "Uid:\tx"},
		"no-id uid":        {"Uid:\t1000", "Uid:\t4294967295"},
		"caps not hex":     {"000001fffeffffff", "zz"},
		"nnp not a bit":    {"NoNewPrivs:\t1", "NoNewPrivs:\tmaybe"},
		"group not an id":  {"27 100", "27 x"},
	} {
		text := strings.Replace(goodStatus, edit[0], edit[1], 1)
		if text == goodStatus {
			t.Errorf("%s: nothing was edited", name)
		}
		if s, err := parseStatus(text); err == nil {
			t.Errorf("%s: accepted as %+v", name, s)
		}
	}
}

func TestParseIDMap(t *testing.T) {
	got, err := parseIDMap("         0          0 4294967295\n")
	if err != nil || !slices.Equal(got, []Extent{{0, 0, 4294967295}}) {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := parseIDMap("0 1000 1\n1 100000 65536\n"); err != nil || len(got) != 2 {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := parseIDMap(""); err != nil || got != nil {
		t.Errorf("an unwritten map: %v, %v", got, err)
	}
	for _, bad := range []string{"0 0\n", "0 0 1 2\n", "a 0 1\n", "0 0 0\n", "-1 0 1\n", "4294967295 0 2\n", "0 4294967295 2\n", "0 0 4294967296\n"} {
		if got, err := parseIDMap(bad); err == nil {
			t.Errorf("%q: accepted as %v", bad, got)
		}
	}
}

func TestMapped(t *testing.T) {
	all := []Extent{{0, 0, 4294967295}}
	for _, c := range []struct {
		r    Range
		m    []Extent
		want Range
	}{
		{Range{100000, 65536}, all, Range{100000, 65536}},
		{Range{100000, 65536}, []Extent{{0, 1000, 1}}, Range{}},
		{Range{100000, 65536}, []Extent{{0, 0, 100010}}, Range{100000, 10}},
		{Range{100000, 65536}, []Extent{{0, 0, 100010}, {100010, 900000, 200}}, Range{100010, 200}},
		{Range{100000, 65536}, []Extent{{165530, 0, 100}}, Range{165530, 6}},
		{Range{100000, 65536}, []Extent{{165536, 0, 100}}, Range{}},
		{Range{100000, 65536}, nil, Range{}},
	} {
		if got := mapped(c.r, c.m); got != c.want {
			t.Errorf("mapped(%v, %v) = %v, want %v", c.r, c.m, got, c.want)
		}
	}
}

func TestParseRelease(t *testing.T) {
	for s, want := range map[string][2]int{"6.18.44-fc-v782": {6, 18}, "5.14.0": {5, 14}, "6.1-rc3": {6, 1}, "10.0": {10, 0}} {
		if a, b, ok := parseRelease(s); !ok || a != want[0] || b != want[1] {
			t.Errorf("%q: %d.%d %v", s, a, b, ok)
		}
	}
	for _, s := range []string{"", "6", "6.", ".1", "x.1", "6.x", "-6.1", "99999999999.1"} {
		if a, b, ok := parseRelease(s); ok {
			t.Errorf("%q: accepted as %d.%d", s, a, b)
		}
	}
}

func TestV1Bound(t *testing.T) {
	for text, want := range map[string][]string{
		"8:pids:/\n4:memory:/a:b\n2:cpuacct:/\n1:cpu:/\n0::/\n": {"memory", "pids", "cpu"},
		"3:cpu,cpuacct:/\n0::/\n":                               {"cpu"},
		"9:name=systemd:/memory\n0::/pids\n":                    {},
		"2:cpuset:/\n0::/\n":                                    {},
		"":                                                      {},
	} {
		if got := v1Bound(text); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func mountsOf(t testing.TB, text string) []*mountinfo.Info {
	t.Helper()
	m, err := mountinfo.GetMountsFromReader(strings.NewReader(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestProcMasks(t *testing.T) {
	const proc = "22 27 0:21 / /proc rw - proc proc rw\n"
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"whole", proc, nil},
		{"masked file", proc + "50 22 0:5 /null /proc/kcore rw - devtmpfs devtmpfs rw\n", []string{"/proc/kcore"}},
		{"masked twice", proc + "50 22 0:5 /null /proc/kcore rw - devtmpfs d rw\n51 22 0:6 / /proc/acpi ro - tmpfs t ro\n", []string{"/proc/kcore", "/proc/acpi"}},
		{"read-only bind of itself", proc + "52 22 0:21 /sys /proc/sys ro - proc proc rw\n", []string{"/proc/sys"}},
		{"binfmt_misc as systemd mounts it", proc + "53 22 0:40 / /proc/sys/fs/binfmt_misc rw - autofs systemd-1 rw\n54 53 0:41 / /proc/sys/fs/binfmt_misc rw - binfmt_misc b rw\n", nil},
		{"nfsd", proc + "53 22 0:40 / /proc/fs/nfsd rw - nfsd nfsd rw\n", nil},
		{"a second whole one", proc + "50 22 0:5 /null /proc/kcore rw - devtmpfs d rw\n60 27 0:70 / /other/proc rw - proc proc rw\n", nil},
		{"a second one, masked too", "60 27 0:70 / /other/proc rw - proc proc rw\n61 60 0:5 /null /other/proc/kcore rw - devtmpfs d rw\n" + proc + "50 22 0:5 /null /proc/keys rw - devtmpfs d rw\n", []string{"/proc/keys"}},
		{"only part of a proc", "22 27 0:21 /sys /proc/sys rw - proc proc rw\n", []string{"/proc"}},
		{"none", "27 1 254:0 / / rw - ext4 /dev/vda rw\n", []string{"/proc"}},
	} {
		if got := procMasks(mountsOf(t, c.text)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func FuzzProcFiles(f *testing.F) {
	f.Add(goodStatus, "0 0 4294967295\n", "6.18.44", "8:pids:/\n0::/\n", "22 27 0:21 / /proc rw - proc proc rw\n")
	f.Fuzz(func(t *testing.T, st, idmap, release, cg, mounts string) {
		if s, err := parseStatus(st); err == nil && (s.euid < 0 || s.egid < 0 || s.ruid < 0 || s.rgid < 0) {
			t.Fatalf("negative id in %+v", s)
		}
		if m, err := parseIDMap(idmap); err == nil {
			r := Range{100000, 65536}
			if got := mapped(r, m); got.Count < 0 || got.Count > 0 && (got.Start < r.Start || got.end() > r.end()) {
				t.Fatalf("mapped %v is outside of %v", got, r)
			}
		}
		parseRelease(release)
		v1Bound(cg)
		if infos, err := mountinfo.GetMountsFromReader(strings.NewReader(mounts), nil); err == nil {
			procMasks(infos)
		}
	})
}
