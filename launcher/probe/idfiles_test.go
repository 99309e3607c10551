package probe

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParsePasswd(t *testing.T) {
	names := parsePasswd("root:x:0:0:root:/root:/bin/sh\ntoor:x:0:0::/:/bin/sh\n#bob:x:7:7::/:/\n+nis:x:8:8::/:/\n" +
		"alice:x:1000:1000:A:/home/alice:/bin/sh\r\nalice:x:1001:1001::/:/\nshort:x\nneg:x:-1:0::/:/\nbig:x:4294967295:0::/:/\n:x:5:5::/:/\n\nnoend:x:9")
	wantName := map[int64]string{0: "root", 1000: "alice", 1001: "alice"}
	if d := cmp.Diff(wantName, names); d != "" {
		t.Error(d)
	}
}

func TestParseGroup(t *testing.T) {
	g := parseGroup("root:x:0:\nsudo:x:27:alice, bob\r\ndocker:x:999\nbad:x:y:alice\n#wheel:x:10:alice\n")
	if d := cmp.Diff(map[int64]string{0: "root", 27: "sudo", 999: "docker"}, g.name); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(map[string][]string{"sudo": {"alice", "bob"}}, g.members); d != "" {
		t.Error(d)
	}
}

func TestParseSubIDs(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []subID
		problem    string // part of the only problem; empty: none
	}{
		{"plain", "alice:100000:65536\n", []subID{{"alice", Range{100000, 65536}}}, ""},
		{"numeric owner, no newline", "1000:100000:65536", []subID{{"1000", Range{100000, 65536}}}, ""},
		{"comment and blank lines", "# alice:1:2\n\n  \nalice:100000:4\n", []subID{{"alice", Range{100000, 4}}}, ""},
		{"carriage return", "alice:100000:65536\r\n", nil, "carriage return"},
		{"two fields", "alice:100000\n", nil, "f:1: not OWNER"},
		{"four fields", "alice:1:2:3\n", nil, "not OWNER"},
		{"no owner", ":100000:65536\n", nil, "not OWNER"},
		{"blank before a number", "alice: 100000:65536\n", nil, "no number"},
		{"negative", "alice:-5:65536\n", nil, "no number"},
		{"plus sign", "alice:+5:65536\n", nil, "no number"},
		{"hex", "alice:0x10:65536\n", nil, "no number"},
		{"empty range", "alice:100000:0\n", nil, "empty"},
		{"up to the last id", "alice:4294967290:5\n", []subID{{"alice", Range{4294967290, 5}}}, ""},
		{"one beyond", "alice:4294967290:6\n", nil, "beyond"},
		{"overflow of 32 bits", "alice:4294967290:4294967290\n", nil, "beyond"},
		{"overflow of 64 bits", "alice:18446744073709551615:2\n", nil, "no number"},
		{"good after bad", "x\nalice:100000:65536\n", []subID{{"alice", Range{100000, 65536}}}, "f:1:"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var bad problems
			got := parseSubIDs("f", c.text, &bad)
			if d := cmp.Diff(c.want, got, cmp.AllowUnexported(subID{})); d != "" {
				t.Error(d)
			}
			if c.problem == "" && len(bad) > 0 || c.problem != "" && (len(bad) != 1 || !strings.Contains(bad[0], c.problem)) {
				t.Errorf("problems %q, want one with %q", bad, c.problem)
			}
		})
	}
}

func TestProblemsAreBounded(t *testing.T) {
	var bad problems
	parseSubIDs("f", strings.Repeat("x\n", 1000), &bad)
	if len(bad) != maxProblems {
		t.Errorf("%d problems", len(bad))
	}
}

func TestUsable(t *testing.T) {
	for _, c := range []struct {
		name, text string
		taken      []int64
		want       []Range
		problem    string
	}{
		{"by name", "alice:100000:65536\nbob:165536:65536\n", nil, []Range{{100000, 65536}}, ""},
		{"by number", "1000:100000:65536\n1001:165536:65536\n", nil, []Range{{100000, 65536}}, ""},
		{"largest first", "alice:100000:10\nalice:200000:65536\n1000:300000:100\n", nil, []Range{{200000, 65536}, {300000, 100}, {100000, 10}}, ""},
		{"twice the same", "alice:100000:65536\n1000:100000:65536\n", nil, []Range{{100000, 65536}}, ""},
		{"own overlap is no harm", "alice:100000:100\nalice:100050:100\n", nil, []Range{{100000, 100}, {100050, 100}}, ""},
		{"overlap with another", "alice:100000:65536\nbob:165535:10\n", nil, nil, "overlaps one of bob"},
		{"neighbour is no overlap", "alice:100000:65536\nbob:165536:10\n", nil, []Range{{100000, 65536}}, ""},
		{"root's id is cut out", "alice:0:5\n", nil, []Range{{1, 4}}, ""},
		{"the caller's id is cut out", "alice:990:20\n", nil, []Range{{990, 10}, {1001, 9}}, ""},
		{"nobody is cut out", "alice:65500:100\n", nil, []Range{{65536, 64}, {65500, 34}}, ""},
		{"an account inside", "alice:100000:10\n", []int64{100004}, []Range{{100005, 5}, {100000, 4}}, ""},
		{"too many accounts inside", "alice:100000:7\n", []int64{100003}, nil, "no 4 consecutive"},
		{"only the caller's own id", "alice:1000:1\n", nil, nil, "no 4 consecutive"},
		{"three ids", "alice:100000:3\n", nil, nil, "no 4 consecutive"},
		{"four ids", "alice:100000:4\n", nil, []Range{{100000, 4}}, ""},
		{"others only", "bob:100000:65536\n", nil, nil, ""},
		{"name that looks like a prefix", "alic:100000:65536\nalice2:200000:65536\n", nil, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var bad problems
			all := parseSubIDs("f", c.text, &bad)
			got := usable("f", all, "alice", 1000, c.taken, &bad)
			if !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
			if c.problem == "" && len(bad) > 0 || c.problem != "" && (len(bad) != 1 || !strings.Contains(bad[0], c.problem)) {
				t.Errorf("problems %q, want one with %q", bad, c.problem)
			}
		})
	}
	if got := usable("f", []subID{{"", Range{100000, 10}}}, "", 1000, nil, new(problems)); got != nil {
		t.Errorf("a user without a name got the range of an empty owner: %v", got)
	}
}

func TestFree(t *testing.T) {
	list := func(r ...Range) (out []subID) {
		for _, x := range r {
			out = append(out, subID{"x", x})
		}
		return out
	}
	for _, c := range []struct {
		name  string
		taken []int64
		a, b  []subID
		want  int64
	}{
		{"nothing", nil, nil, nil, 100000},
		{"one user", nil, list(Range{100000, 65536}), list(Range{100000, 65536}), 165536},
		{"a gap that is too small", nil, list(Range{100000, 10}, Range{110000, 10}), nil, 110010},
		{"a gap in one list only", nil, list(Range{300000, 10}), list(Range{100000, 65536}), 165536},
		{"an account", []int64{0, 100001}, nil, nil, 100002},
		{"full", nil, list(Range{1, 700000000}), nil, 0},
	} {
		got := freeStart(c.taken, c.a, c.b)
		if got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
		if got != 0 && !free(Range{got, subCount}, c.taken, c.a, c.b) {
			t.Errorf("%s: %d is not free", c.name, got)
		}
		if r := (Range{100000, 5}); len(c.taken)+len(c.a)+len(c.b) > 0 && c.name != "a gap in one list only" && free(r, c.taken, c.a, c.b) {
			t.Errorf("%s: %v is called free", c.name, r)
		}
	}
}

func FuzzAccounts(f *testing.F) {
	f.Add("alice:100000:65536\nbob:1:4\n", "alice:x:1000:1000::/:/\n", "sudo:x:27:alice\n")
	f.Add("1000:4294967290:5\r\n#\n", "a:x:4294967294:1::/\n", "a:x:0:,,\n")
	f.Fuzz(func(t *testing.T, sub, passwd, group string) {
		var bad problems
		users := parsePasswd(passwd)
		parseGroup(group)
		var taken []int64
		for id := range users {
			taken = append(taken, id)
		}
		all := parseSubIDs("f", sub, &bad)
		for _, r := range usable("f", all, "alice", 1000, taken, &bad) {
			if r.Count < IDsPerSlot || r.Start < 1 || r.end()-1 > maxID {
				t.Fatalf("unusable range %v", r)
			}
			for _, id := range append(taken, 0, 1000, overflowID, noID16) {
				if r.overlaps(Range{id, 1}) {
					t.Fatalf("range %v holds id %d", r, id)
				}
			}
		}
		if s := freeStart(taken, all); s != 0 && !free(Range{s, subCount}, taken, all) {
			t.Fatalf("start %d is not free", s)
		}
		if len(bad) > maxProblems {
			t.Fatalf("%d problems", len(bad))
		}
	})
}
