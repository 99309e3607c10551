package seccompgen

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	seccomp "github.com/seccomp/libseccomp-golang"
	"pgregory.net/rapid"
)

// profiles returns every profile the package can give.
func profiles() map[string]Profile {
	return map[string]Profile{
		"workload":                Workload(Options{}),
		"workload, affinity":      Workload(Options{DenyAffinity: true}),
		"workload, shared memory": Workload(Options{DenySharedMemory: true}),
		"workload, tcp":           Workload(Options{Sockets: TCPSockets}),
		"workload, any socket":    Workload(Options{DenySharedMemory: true, Sockets: AnySocket}),
		"workload, no connect":    Workload(Options{DenySocketFiles: true}),
		"workload, tcp, no files": Workload(Options{Sockets: TCPSockets, DenySocketFiles: true}),
		"workload, both":          Workload(Options{DenyAffinity: true, DenySharedMemory: true}),
		"init":                    Init(),
		"exporter":                Exporter(),
		"wipe":                    Wipe(),
	}
}

func TestEveryRuleHasAReason(t *testing.T) {
	for name, p := range profiles() {
		for _, r := range p.Rules {
			if len(strings.Fields(r.Why)) < 2 {
				t.Errorf("%s: class %s: reason %q", name, r.Class, r.Why)
			}
			if r.Else == Deny && r.ElseIs == "" {
				t.Errorf("%s: class %s denies something without a name", name, r.Class)
			}
		}
		if err := p.check(numbers()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCheckRefuses(t *testing.T) {
	good := Rule{Class: "c", Why: "a reason", Verdict: Allow, Syscalls: []string{"read"}}
	mask := &When{Arg: 1, What: "x is", Mask: 0xf, In: []Value{{"one", 1}}}
	with := func(change func(*Rule)) []Rule { r := good; change(&r); return []Rule{r} }
	for _, tc := range []struct {
		want  string // "" is the positive control
		rules []Rule
	}{
		{"", []Rule{good}},
		{"", with(func(r *Rule) { r.When = mask; r.Else = Deny })},
		{"needs a class and a reason", with(func(r *Rule) { r.Why = " " })},
		{"needs a class and a reason", with(func(r *Rule) { r.Class = "" })},
		{"names no system call", with(func(r *Rule) { r.Syscalls = nil })},
		{"unknown system call", with(func(r *Rule) { r.Syscalls = []string{"frobnicate"} })},
		{"unknown verdict", with(func(r *Rule) { r.Verdict = "" })},
		{"unknown verdict", with(func(r *Rule) { r.When = mask; r.Else = "maybe" })},
		{"else without a condition", with(func(r *Rule) { r.Else = Deny })},
		{"impossible condition", with(func(r *Rule) { r.When = &When{Arg: 6, Mask: 1, In: mask.In} })},
		{"impossible condition", with(func(r *Rule) { r.When = &When{Mask: 0, In: []Value{{"zero", 0}}} })},
		{"impossible condition", with(func(r *Rule) { r.When = &When{Mask: 1} })},
		{"outside the mask", with(func(r *Rule) { r.When = &When{Mask: 1, In: []Value{{"two", 2}}} })},
		{"already has a verdict", []Rule{good, good}},
		{"already has a verdict", append(with(func(r *Rule) { r.When = mask; r.Else = Deny }), with(func(r *Rule) { r.When = mask })...)},
		{"already has a verdict", append(with(func(r *Rule) { r.When = mask }), with(func(r *Rule) { r.When = mask })...)},
	} {
		p := Profile{Name: "t", Rules: tc.rules}
		err := p.check(numbers())
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%+v: error %v, want %q", tc.rules, err, tc.want)
		}
		if _, cerr := Compile(p); (cerr == nil) != (err == nil) {
			t.Errorf("%+v: Compile says %v, check says %v", tc.rules, cerr, err)
		}
	}
}

func TestDigestAndBytesAreDeterministic(t *testing.T) {
	digests := map[string]string{}
	for name, p := range profiles() {
		first, err := Compile(p)
		if err != nil {
			t.Fatal(err)
		}
		second, err := Compile(profiles()[name])
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(first, second) {
			t.Errorf("%s: two compilations differ", name)
		}
		d := p.Digest()
		if again := profiles()[name].Digest(); again != d {
			t.Errorf("%s: digest %s, then %s", name, d, again)
		}
		if other, ok := digests[d]; ok {
			t.Errorf("%s and %s share a digest", name, other)
		}
		digests[d] = name
	}
}

func TestDigestSeesWhatDecidesBytes(t *testing.T) {
	base := func() Profile {
		return Profile{Name: "t", Rules: []Rule{
			{Class: "c", Why: "a reason", Verdict: Allow, Syscalls: []string{"read", "write"}},
			{Class: "d", Why: "a reason", Verdict: Allow, Else: Deny, Syscalls: []string{"clone"},
				When: &When{Arg: 0, Mask: 3, In: []Value{{"a", 1}, {"b", 2}}}},
		}}
	}
	want := base().Digest()
	for name, change := range map[string]func(*Profile){
		"name":     func(p *Profile) { p.Name = "u" },
		"verdict":  func(p *Profile) { p.Rules[0].Verdict = Deny },
		"call":     func(p *Profile) { p.Rules[0].Syscalls[1] = "open" },
		"order":    func(p *Profile) { slices.Reverse(p.Rules) },
		"argument": func(p *Profile) { p.Rules[1].When.Arg = 1 },
		"mask":     func(p *Profile) { p.Rules[1].When.Mask = 7 },
		"value":    func(p *Profile) { p.Rules[1].When.In[1].N = 3 },
		"else":     func(p *Profile) { p.Rules[1].Else = "" },
	} {
		p := base()
		change(&p)
		if p.Digest() == want {
			t.Errorf("changing the %s does not change the digest", name)
		}
	}
	p := base()
	p.Rules[0].Why, p.Rules[0].Class = "another reason", "e"
	if p.Digest() != want {
		t.Error("a reason or class name changes the digest although the bytes stay the same")
	}
}

// The numbers are ours; libseccomp is the second witness.
func TestNumbersAgreeWithLibseccomp(t *testing.T) {
	agreed := 0
	for name, nr := range numbers() {
		got, err := seccomp.GetSyscallFromName(name)
		if err != nil || got < 0 {
			continue // newer than this libseccomp
		}
		if int(got) != nr {
			t.Errorf("%s: number %d, libseccomp says %d", name, nr, got)
		}
		agreed++
	}
	if agreed < 350 {
		t.Errorf("only %d names could be compared", agreed)
	}
}

func TestOutsideIsTheComplement(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mask := rapid.Uint32().Draw(t, "mask") | 1
		var in []Value
		for _, n := range rapid.SliceOfN(rapid.Uint32(), 0, 5).Draw(t, "in") {
			in = append(in, Value{N: n & mask})
		}
		cubes := outside(mask, in)
		words := rapid.SliceOfN(rapid.Uint32(), 1, 20).Draw(t, "words")
		for _, v := range in {
			words = append(words, v.N, v.N|^mask, v.N^1)
		}
		for _, w := range words {
			hits := 0
			for _, c := range cubes {
				if w&c.mask == c.value {
					hits++
				}
			}
			want := 1
			if slices.ContainsFunc(in, func(v Value) bool { return v.N == w&mask }) {
				want = 0
			}
			if hits != want {
				t.Fatalf("word %#x lies in %d cubes, want %d", w, hits, want)
			}
		}
	})
}
