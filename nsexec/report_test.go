package nsexec

import (
	"encoding/binary"
	"reflect"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
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
	put("setupcaps", words(4, 5, 6, 0, 0, 1))
	put("deathsignal", words(9, 0))
	for i, name := range []string{"oldnumber", "gocloses", "nested", "filter", "filtered"} {
		put(name, words(uint32(20+i), 0))
	}
	put("landlock", words(25, 0, 26, 0))
	for n := range 3 {
		st := make([]byte, statSize)
		binary.NativeEndian.PutUint64(st, uint64(30+n))
		binary.NativeEndian.PutUint64(st[8:], uint64(40+n))
		binary.NativeEndian.PutUint32(st[24:], unix.S_IFIFO|0o600)
		binary.NativeEndian.PutUint64(st[40:], uint64(50+n))
		put(statField(n), st)
	}
	put("sid", words(2, 0))
	put("keyring", words(99, 0))
	put("personality", words(8, 0))
	put("policy", words(3, 0))
	put("nice", words(21, 0)) // as the kernel answers: 20 less the value
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
	want := &Report{UIDs: [3]uint32{1, 2, 3}, GIDs: [3]uint32{4, 5, 6}, Groups: 7, Caps: [3]uint64{1 | 1<<32, 2, 3}, Session: 2, Keyring: 99, Personality: 8, Policy: 3, Nice: -1, Dir: "/scratch", Hostname: "nsbox", Domainname: NoDomain, Inotify: [2]string{"8", "1024"}, Cgroup: "0::/\n", Descriptors: []int{2, 10},
		SetUpCaps: [3]uint64{4, 5, 6 | 1<<32}, DeathSignal: 9, OldNumber: 20, CloseOnExec: []int64{21}, NestedUserNS: 22, Filter: 23, Filtered: 24, Landlock: &Tried{25, []int64{26}},
		Files: map[int]FileID{0: {30, 40, 50, unix.S_IFIFO}, 1: {31, 41, 51, unix.S_IFIFO}, 2: {32, 42, 52, unix.S_IFIFO}}}
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

// Without a /proc the descriptors are those that poll(2) did not call invalid;
// what nobody answered is no answer.
func TestParsePolled(t *testing.T) {
	s := exporterSpec()
	p, fields, err := compile(s, fixedFDs(s))
	if err != nil {
		t.Fatal(err)
	}
	msg := slices.Clone(p.Steps[positions(p, "ready")[0]].Args[1].ref.Slot.Init)
	if r, err := parseReport(msg, fields); err != nil || r.Descriptors != nil || len(r.Names) != 1 || r.Names[0] >= 0 || r.Groups == 0 || r.Caps[0] == 0 || r.Landlock.Control >= -4096 || r.Landlock.Forbidden[0] >= -4096 || len(r.CloseOnExec) != 2 {
		t.Errorf("a report that no step has filled: %+v, %v", r, err)
	}
	at := func(name string) []byte {
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
		return msg[fields[i].off:][:fields[i].len]
	}
	for n := range polled {
		v := uint16(unix.POLLNVAL)
		if n == 2 || n == 61 {
			v = unix.POLLIN
		}
		binary.NativeEndian.PutUint16(at("polled")[8*n+6:], v)
	}
	binary.NativeEndian.PutUint64(at("answered"), polled-2)
	if r, err := parseReport(msg, fields); err != nil || !slices.Equal(r.Descriptors, []int{2, 61}) {
		t.Errorf("%v, %v", r.Descriptors, err)
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
