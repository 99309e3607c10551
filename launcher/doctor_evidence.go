package launcher

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"nsbox/launcher/probe"
	"nsbox/launcher/reason"
	"nsbox/seccompgen"
)

// EvidenceSchema names the document of `nsbox doctor --evidence`.
const EvidenceSchema = "nsbox.evidence/1"

// Evidence is what was found on one host with one binary as one account: what
// a person needs to approve a pilot, and what a policy's CONFIRMED rests on. Its
// digest shows that it is whole; who may write the file decides who may confirm.
type Evidence struct {
	Schema  string    `json:"schema"`
	Digest  string    `json:"digest"` // of the file with this value empty
	Made    time.Time `json:"made"`
	Version string    `json:"nsbox_version"`
	Binding Binding   `json:"binding"`
	Points  []Point   `json:"points"`

	Host     HostEvidence    `json:"host"`
	Findings json.RawMessage `json:"findings"` // for people; what follows from them stands in Points
	Box      json.RawMessage `json:"box"`
	Runs     []TestRun       `json:"runs"`
	Blockers []Blocker       `json:"blockers"`
}

// Binding is what the evidence speaks of. Another one makes it stale. A reboot
// does not: what it might change, each run's attestation shows again.
type Binding struct {
	Kernel string `json:"kernel"`
	Arch   string `json:"arch"`
	Binary string `json:"binary_sha256"`
	UID    int    `json:"uid"`
}

func (b Binding) differs(now Binding) string {
	switch {
	case b.Kernel != now.Kernel:
		return fmt.Sprintf("it was made on kernel %q, this is %q", b.Kernel, now.Kernel)
	case b.Arch != now.Arch:
		return fmt.Sprintf("it was made on %q, this is %q", b.Arch, now.Arch)
	case b.Binary != now.Binary:
		return "it was made with another binary of nsbox"
	case b.UID != now.UID:
		return fmt.Sprintf("it was made by uid %d, this is uid %d", b.UID, now.UID)
	}
	return ""
}

// HostEvidence is the list that the pilot approval asks for.
type HostEvidence struct {
	OS             string          `json:"os"`
	Facts          json.RawMessage `json:"facts"` // probe.Host
	Identity       probe.Identity  `json:"identity"`
	CgroupMode     string          `json:"cgroup_mode"`
	CgroupRoot     string          `json:"cgroup_root"` // where groups can be made; empty: nowhere
	SeccompDigest  string          `json:"seccomp_digest"`
	SeccompProgram string          `json:"seccomp_program"` // base64 of struct sock_filter, native order
	SeccompText    string          `json:"seccomp_text"`
	Out            string          `json:"out_mount"`
}

// bindingOf reads this process's own binary through the kernel's link, so that a
// file replaced since then is not mistaken for it.
func bindingOf(h *probe.Host) (Binding, error) {
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		return Binding{}, reason.Wrap(reason.LauncherExeUnreadable, "nsbox's own binary", "cannot be read", "chmod a+rx "+h.SelfExe.Path, err)
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return Binding{}, reason.Wrap(reason.LauncherExeUnreadable, "nsbox's own binary", "cannot be read", "", err)
	}
	return Binding{Kernel: h.Kernel, Arch: h.Arch, Binary: hex.EncodeToString(sum.Sum(nil)), UID: h.UID}, nil
}

// Evidence makes the document of an examination and its runs.
func (x *Examination) Evidence(runs []TestRun, version string, now time.Time) ([]byte, error) {
	h := x.facts.Host
	if h == nil {
		return nil, reason.New(reason.HostFactsUnreadable, "/proc", "this host could not be looked at", "run nsbox where /proc is mounted")
	}
	x.Blockers = blockers(x, runs)
	e := Evidence{Schema: EvidenceSchema, Made: now.UTC(), Version: version, Runs: runs, Blockers: x.Blockers, Points: pointsOf(x.Box, runs)}
	var err error
	if e.Binding, err = bindingOf(h); err != nil {
		return nil, err
	}
	for _, part := range []struct {
		to   *json.RawMessage
		from any
	}{{&e.Findings, x.Findings}, {&e.Box, x.Box}, {&e.Host.Facts, h}} {
		if *part.to, err = json.Marshal(part.from); err != nil {
			return nil, err
		}
	}
	profile := seccompgen.Workload(seccompgen.Options{})
	program, err := seccompgen.Compile(profile)
	if err != nil {
		return nil, reason.Wrap(reason.FilterCompile, "the system call filter", "could not be compiled", "report this as a fault of nsbox", err)
	}
	e.Host.OS, e.Host.Identity, e.Host.CgroupRoot = osName(), x.facts.Identity, x.cgroupRoot
	e.Host.CgroupMode = cgroupMode(h)
	e.Host.SeccompDigest, e.Host.SeccompProgram, e.Host.SeccompText = program.Digest(), base64.StdEncoding.EncodeToString(program), seccompgen.Explain(profile)
	e.Host.Out = x.find("provisioned-out").Shown
	for _, r := range x.Box {
		if r.Restriction == "mount /out" {
			e.Host.Out += "; " + r.Shown
		}
	}
	text, err := indented(e)
	if err != nil {
		return nil, err
	}
	return sealed(text)
}

func cgroupMode(h *probe.Host) string {
	switch {
	case h.CgroupV2.Mount == "":
		return "version 1 only"
	case len(h.CgroupV2.V1Controllers) > 0:
		return "hybrid: " + strings.Join(h.CgroupV2.V1Controllers, ", ") + " on version 1, version 2 at " + h.CgroupV2.Mount
	}
	return "unified at " + h.CgroupV2.Mount + ", controllers " + strings.Join(h.CgroupV2.Controllers, " ")
}

func osName() string {
	data, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(data)) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
			return strings.Trim(v, `"`)
		}
	}
	return "unknown"
}

func indented(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// digestLine is where a document names its own digest: the third line.
const digestLine = "{\n  \"schema\": \"" + EvidenceSchema + "\",\n  \"digest\": \""

func sealed(text []byte) ([]byte, error) {
	empty := []byte(digestLine + "\"")
	if !bytes.HasPrefix(text, empty) {
		return nil, reason.New(reason.Internal, "the evidence", "does not begin as it should", "report this as a fault of nsbox")
	}
	sum := sha256.Sum256(text)
	return append([]byte(digestLine+"sha256:"+hex.EncodeToString(sum[:])+"\""), text[len(empty):]...), nil
}

// ReadEvidence takes back what Evidence wrote: a whole file of the caller's or
// root's that nobody else can write, with the digest that it names.
func ReadEvidence(path string) (*Evidence, error) {
	bad := func(why string, err error) (*Evidence, error) {
		return nil, reason.Wrap(reason.EvidenceInvalid, path, why, "make it with nsbox doctor --evidence FILE", err)
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return bad("cannot be opened", err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return bad("cannot be examined", err)
	}
	const maxEvidence = 4 << 20
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return bad("is not a regular file", nil)
	case int(st.Uid) != os.Geteuid() && st.Uid != 0:
		return bad(fmt.Sprintf("belongs to uid %d, neither the caller nor root", st.Uid), nil)
	case st.Mode&0o022 != 0:
		return bad(fmt.Sprintf("can be written by others than its owner (mode %04o)", st.Mode&0o7777), nil)
	case st.Size > maxEvidence:
		return bad("is too large", nil)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxEvidence))
	if err != nil {
		return bad("cannot be read", err)
	}
	return parseEvidence(path, text)
}

func parseEvidence(path string, text []byte) (*Evidence, error) {
	bad := func(why string) (*Evidence, error) {
		return nil, reason.New(reason.EvidenceInvalid, path, why, "make it with nsbox doctor --evidence FILE")
	}
	m := regexp.MustCompile(`^` + regexp.QuoteMeta(digestLine) + `(sha256:[0-9a-f]{64})"`).FindSubmatch(text)
	if m == nil {
		return bad("does not begin as evidence of nsbox does")
	}
	sum := sha256.Sum256(append([]byte(digestLine+"\""), text[len(m[0]):]...))
	if string(m[1]) != "sha256:"+hex.EncodeToString(sum[:]) {
		return bad("does not have the digest that it names: it was changed or cut")
	}
	var e Evidence
	if err := json.Unmarshal(text, &e); err != nil {
		return bad("cannot be read back: " + err.Error())
	}
	return &e, nil
}
