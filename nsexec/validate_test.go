package nsexec

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestValidateAcceptsTheBoxesWeMake(t *testing.T) {
	for name, s := range boxSpecs() {
		if err := s.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Each row makes one thing wrong in an otherwise valid Spec.
func TestValidateRefuses(t *testing.T) {
	node := func(n Node) func(*Spec) { return func(s *Spec) { s.Root = append(s.Root, n) } }
	many := make([]byte, 8*65537) // 65537 instructions: sock_fprog's 16-bit count would say 1
	rows := map[string]func(*Spec){
		"relative node":              node(Node{Path: "x", Kind: Dir}),
		"unclean node":               node(Node{Path: "/x/../y", Kind: Dir}),
		"trailing slash":             node(Node{Path: "/x/", Kind: Dir}),
		"NUL in a node":              node(Node{Path: "/x\x00y", Kind: Dir}),
		"node twice":                 node(Node{Path: "/dev", Kind: Dir}),
		"node before its parent":     node(Node{Path: "/none/x", Kind: Dir}),
		"node below a file":          node(Node{Path: "/etc/passwd/x", Kind: Dir}),
		"node below a link":          node(Node{Path: "/bin/x", Kind: File}),
		"unknown kind":               node(Node{Path: "/x", Kind: "fifo"}),
		"no kind":                    node(Node{Path: "/x"}),
		"storage without source":     func(s *Spec) { s.Root[0] = Node{Path: "/o", Kind: Storage, Bytes: 1, Inodes: 1} },
		"storage with half a bound":  func(s *Spec) { s.Root[0] = Node{Path: "/o", Kind: Storage, Source: "/s", Bytes: 1} },
		"root of another kind":       func(s *Spec) { s.Root[0].Kind = Tmpfs },
		"tmpfs without size":         node(Node{Path: "/t", Kind: Tmpfs, Inodes: 1}),
		"tmpfs without inodes":       node(Node{Path: "/t", Kind: Tmpfs, Bytes: 1}),
		"tmpfs of an unmapped owner": node(Node{Path: "/t", Kind: Tmpfs, Bytes: 1, Inodes: 1, UID: -1}),
		"bind without source":        node(Node{Path: "/x", Kind: BindDir}),
		"bind of a relative source":  node(Node{Path: "/x", Kind: BindFile, Source: "etc/passwd"}),
		"device without source":      node(Node{Path: "/x", Kind: Device}),
		"NUL in a source":            node(Node{Path: "/x", Kind: BindDir, Source: "/home/\x00ok"}),
		"link to nothing":            node(Node{Path: "/x", Kind: Symlink}),
		"NUL in a link":              node(Node{Path: "/x", Kind: Symlink, Source: "a\x00b"}),
		"mode with set-uid":          node(Node{Path: "/x", Kind: File, Mode: 0o4755}),
		"unknown access":             node(Node{Path: "/x", Kind: Dir, Access: 32}),
		"uid 0":                      func(s *Spec) { s.UID = 0 },
		"gid 0":                      func(s *Spec) { s.GID = 0 },
		"uid 2^32, which is 0":       func(s *Spec) { s.UID = 1 << 32 },
		"gid 2^32, which is 0":       func(s *Spec) { s.GID = 1 << 32 },
		"uid that is not mapped":     func(s *Spec) { s.UID = 30000 },
		"gid that is not mapped":     func(s *Spec) { s.GID = 30000 },
		"no map":                     func(s *Spec) { s.Identity.UIDs, s.Identity.GIDs = nil, nil },
		"host uid 0":                 func(s *Spec) { s.Identity.UIDs = []MapEntry{{0, 0, 1}, {10001, 1000, 1}} },
		"host gid 0":                 func(s *Spec) { s.Identity.GIDs = []MapEntry{{0, 0, 1}, {10001, 1000, 1}} },
		"map of nothing":             func(s *Spec) { s.Identity.UIDs = []MapEntry{{0, 1, 0}, {10001, 1000, 1}} },
		"map past the last id":       func(s *Spec) { s.Identity.UIDs = []MapEntry{{0, 1<<32 - 2, 3}, {10001, 1000, 1}} },
		"map below zero":             func(s *Spec) { s.Identity.UIDs = []MapEntry{{0, 1, 1}, {-1, 1000, 20000}} },
		"no program":                 func(s *Spec) { s.Command.Path = "" },
		"two programs":               func(s *Spec) { s.Command.Self = true },
		"no argv":                    func(s *Spec) { s.Command.Argv = nil },
		"relative program":           func(s *Spec) { s.Command.Path = "bin/true" },
		"NUL in argv":                func(s *Spec) { s.Command.Argv = []string{"true", "a\x00b"} },
		"NUL in the environment":     func(s *Spec) { s.Command.Env = []string{"A=\x00"} },
		"environment without name":   func(s *Spec) { s.Command.Env = []string{"=x"} },
		"NUL in the directory":       func(s *Spec) { s.Command.Dir = "/\x00" },
		"relative directory":         func(s *Spec) { s.Command.Dir = "scratch" },
		"NUL in the program":         func(s *Spec) { s.Command.Path = "/bin/tr\x00ue" },
		"NUL in the hostname":        func(s *Spec) { s.Hostname = "a\x00b" },
		"hostname of 65 bytes":       func(s *Spec) { s.Hostname = string(many[:0]) + string(make65()) },
		"relative staging point":     func(s *Spec) { s.StagingPoint = "tmp" },
		"relative held directory":    func(s *Spec) { s.Hold = "out" },
		"mask outside of proc":       func(s *Spec) { s.MaskProc = []string{"../dev/null"} },
		"absolute mask":              func(s *Spec) { s.MaskProc = []string{"/keys"} },
		"mask twice":                 func(s *Spec) { s.MaskProc = []string{"keys", "keys"} },
		"empty mask":                 func(s *Spec) { s.MaskProc = []string{""} },
		"no filter":                  func(s *Spec) { s.Filter = nil },
		"no filter of init":          func(s *Spec) { s.InitFilter = nil },
		"filter too long":            func(s *Spec) { s.Filter = many },
		"half an instruction":        func(s *Spec) { s.Filter = append(testFilter(), 0) },
		"capabilities too few":       func(s *Spec) { s.CapLast = 36 },
		"capabilities too many":      func(s *Spec) { s.CapLast = 64 },
		"cpu past the mask":          func(s *Spec) { s.Affinity = 1024 },
		"rlimit twice":               func(s *Spec) { s.Rlimits = append(s.Rlimits, s.Rlimits[0]) },
		"rlimit without a name":      func(s *Spec) { s.Rlimits = []Rlimit{{"", unix.RLIMIT_CPU, 1, 1}} },
		"soft above hard":            func(s *Spec) { s.Rlimits = []Rlimit{{"cpu", unix.RLIMIT_CPU, 2, 1}} },
		"umask with set-uid":         func(s *Spec) { s.Umask = 0o4000 },
		"name with a slash":          func(s *Spec) { s.Open = []OpenBelow{{Dir: 3, Name: "a/b", To: 5}} },
		"name that is a parent":      func(s *Spec) { s.Open = []OpenBelow{{Dir: 3, Name: "..", To: 5}} },
		"NUL in a name":              func(s *Spec) { s.Open = []OpenBelow{{Dir: 3, Name: "a\x00", To: 5}} },
	}
	for name, change := range rows {
		s := workloadSpec()
		change(s)
		if err := s.Validate(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func make65() []byte {
	b := make([]byte, 65)
	for i := range b {
		b[i] = 'x'
	}
	return b
}

// Descriptor numbers are known only when the box is made; compile refuses what
// would overwrite a stream or a private number, or open below nothing.
func TestCompileRefusesDescriptors(t *testing.T) {
	rows := map[string]func(*Spec, *fds){
		"onto stdout":               func(_ *Spec, f *fds) { f.pass[0].To = 1 },
		"onto the go socket":        func(_ *Spec, f *fds) { f.pass[0].To = fdChildGo },
		"onto a number in between":  func(_ *Spec, f *fds) { f.pass[1].To = fdLift },
		"twice the same":            func(_ *Spec, f *fds) { f.pass[1].To = f.pass[0].To },
		"a name onto a passed one":  func(s *Spec, f *fds) { s.Open[0].To = f.pass[0].To },
		"a name onto the image":     func(s *Spec, _ *fds) { s.Open[0].To = fdChildSelf },
		"a name below nothing":      func(s *Spec, _ *fds) { s.Open[0].Dir = 9 },
		"a listable nothing":        func(s *Spec, _ *fds) { s.Listable = 9 },
		"a name below a passed one": func(s *Spec, f *fds) { s.Open[0].To, f.pass[1].To = 5, 6 },
		"nine passed":               func(_ *Spec, f *fds) { f.pass = append(f.pass, make([]Pass, maxPass)...) },
		"a low launcher number":     func(_ *Spec, f *fds) { f.control = 5 },
	}
	for name, change := range rows {
		s := exporterSpec()
		f := fixedFDs(s)
		change(s, &f)
		if _, _, err := compile(s, f); err == nil {
			t.Errorf("%s: compiled", name)
		}
	}
	s := exporterSpec()
	if _, _, err := compile(s, fixedFDs(s)); err != nil { // the control
		t.Error(err)
	}
}
