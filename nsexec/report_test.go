package nsexec

import (
	"encoding/binary"
	"reflect"
	"slices"
	"testing"
)

// reportOf is the message of a child that answers with these bytes.
func reportOf(t testing.TB) (msg []byte, fields []field) {
	t.Helper()
	s := workloadSpec()
	_, fields, err := compile(s, fixedFDs(s))
	if err != nil {
		t.Fatal(err)
	}
	msg = make([]byte, reportSize)
	msg[0] = reportTag
	put := func(name string, b []byte) {
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
		if i < 0 {
			t.Fatalf("no field %s", name)
		}
		copy(msg[fields[i].off:][:fields[i].len], b)
	}
	words := func(v ...uint32) (b []byte) {
		for _, w := range v {
			b = binary.NativeEndian.AppendUint32(b, w)
		}
		return b
	}
	put("resuid", words(1, 2, 3))
	put("resgid", words(4, 5, 6))
	put("groups", words(7, 0))
	put("caps", words(1, 2, 3, 1, 0, 0))
	put("sid", words(2, 0))
	put("keyring", words(99, 0))
	put("cwd", []byte("/scratch\x00rest"))
	names := make([]byte, utsFields*utsField)
	copy(names[utsField:], "nsbox")
	copy(names[5*utsField:], NoDomain)
	put("uname", names)
	put("max_inotify_instances", []byte("8\n"))
	put("max_inotify_watches", []byte("1024\n"))
	put("cgroup", []byte("0::/\n\x00rest"))
	list := slices.Concat(dent("."), dent(".."), dent("10"), dent("2"))
	put("fds", list)
	put("fdslen", words(uint32(len(list)), 0))
	return msg, fields
}

// dent is one struct linux_dirent64.
func dent(name string) []byte {
	b := make([]byte, (19+len(name)+1+7)&^7)
	binary.NativeEndian.PutUint16(b[16:], uint16(len(b)))
	copy(b[19:], name)
	return b
}

func TestParseReport(t *testing.T) {
	msg, fields := reportOf(t)
	r, err := parseReport(msg, fields)
	if err != nil {
		t.Fatal(err)
	}
	want := &Report{UIDs: [3]uint32{1, 2, 3}, GIDs: [3]uint32{4, 5, 6}, Groups: 7, Caps: [3]uint64{1 | 1<<32, 2, 3}, Session: 2, Keyring: 99, Dir: "/scratch", Hostname: "nsbox", Domainname: NoDomain, Inotify: [2]string{"8", "1024"}, Cgroup: "0::/\n", Descriptors: []int{2, 10}}
	if !reflect.DeepEqual(r, want) {
		t.Errorf("got %+v, want %+v", r, want)
	}
	for n := range len(msg) {
		if _, err := parseReport(msg[:n], fields); err == nil {
			t.Fatalf("a report cut to %d of %d bytes passes", n, len(msg))
		}
	}
	other := slices.Clone(msg)
	other[0] = msgStreams
	if _, err := parseReport(other, fields); err == nil {
		t.Error("a report with another tag passes")
	}
	if _, err := parseReport(msg, nil); err == nil {
		t.Error("a report without fields passes")
	}
}

func TestParseDents(t *testing.T) {
	huge, short := dent("5"), dent("5")
	binary.NativeEndian.PutUint16(huge[16:], 4096)
	binary.NativeEndian.PutUint16(short[16:], 18)
	rows := map[string]struct {
		in   []byte
		want []int
	}{
		"nothing":               {nil, []int{}},
		"dots only":             {slices.Concat(dent("."), dent("..")), []int{}},
		"sorted":                {slices.Concat(dent("11"), dent("3")), []int{3, 11}},
		"not a number":          {dent("self"), nil},
		"a sign":                {dent("-1"), nil},
		"no name":               {dent(""), nil},
		"past any descriptor":   {dent("99999999999999999999"), nil},
		"longer than the rest":  {huge, nil},
		"shorter than an entry": {short, nil},
		"trailing bytes":        {append(dent("3"), 1, 2, 3), nil},
	}
	for name, r := range rows {
		got, err := parseDents(r.in)
		if (err != nil) != (r.want == nil) || err == nil && !slices.Equal(got, r.want) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// Whatever a child sends, reading it neither panics nor makes numbers up.
func FuzzParseReport(f *testing.F) {
	msg, fields := reportOf(f)
	f.Add(msg, uint16(len(msg)))
	f.Add(msg, uint16(300))
	f.Fuzz(func(t *testing.T, data []byte, cut uint16) {
		buf := slices.Clone(msg)
		copy(buf[1:], data)
		r, err := parseReport(buf[:min(int(cut), len(buf))], fields)
		if err == nil && (len(r.Dir) > 256 || len(r.Descriptors) > 1024/20) {
			t.Errorf("more than was sent: %+v", r)
		}
		parseReport(data, fields)
	})
}

func FuzzParseDents(f *testing.F) {
	f.Add(slices.Concat(dent("."), dent("10")))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := parseDents(data)
		if err == nil && len(list) > len(data)/19 {
			t.Errorf("%d descriptors out of %d bytes", len(list), len(data))
		}
	})
}
