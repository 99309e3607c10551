package launcher

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"nsbox/launcher/attest"
	"nsbox/launcher/policy"
	"nsbox/launcher/probe"
	"nsbox/launcher/reason"
)

// wholeBox is the rows of a box in which every point is shown.
func wholeBox() []attest.Row {
	var rows []attest.Row
	for _, r := range pointRules() {
		for _, name := range r.rows {
			grade := attest.KernelRead
			if r.id == "EP3" {
				grade = attest.Launcher
			}
			if !slices.ContainsFunc(rows, func(x attest.Row) bool { return x.Restriction == name }) {
				rows = append(rows, attest.Row{Restriction: name, Grade: grade, Status: attest.Enforced})
			}
		}
	}
	return rows
}

func allRuns() []TestRun {
	var runs []TestRun
	for _, c := range runCases() {
		runs = append(runs, TestRun{Name: c.name, Point: c.point, Passed: true})
	}
	return runs
}

// claiming is the preset with every point and the backend called CONFIRMED, as
// it would be after a confirmation. Decode refuses such a document without evidence.
func claiming(t testing.TB, points ...string) *policy.Policy {
	t.Helper()
	p, _ := goodPolicy(t)
	doc := *p
	doc.EnforcementPoints = slices.Clone(p.EnforcementPoints)
	for i := range doc.EnforcementPoints {
		if slices.Contains(points, doc.EnforcementPoints[i].ID) {
			doc.EnforcementPoints[i].ImplementationStatus = Confirmed
		}
	}
	return &doc
}

func point(t testing.TB, points []Point, id string) Point {
	t.Helper()
	i := slices.IndexFunc(points, func(p Point) bool { return p.ID == id })
	if i < 0 {
		t.Fatalf("no point %s", id)
	}
	return points[i]
}

// TestEveryPointHasARule: the policy's own list is the measure.
func TestEveryPointHasARule(t *testing.T) {
	p, _ := goodPolicy(t)
	for _, e := range p.EnforcementPoints {
		if n := len(slices.DeleteFunc(pointRules(), func(r pointRule) bool { return r.id != e.ID })); n != 1 {
			t.Errorf("%s has %d rules", e.ID, n)
		}
	}
	for _, r := range pointRules() {
		if r.never == "" && len(r.rows)+len(r.runs) == 0 {
			t.Errorf("%s rests on nothing", r.id)
		}
		for _, run := range r.runs {
			if findRun(allRuns(), run).Name == "" {
				t.Errorf("%s rests on a run %s that nobody makes", r.id, run)
			}
		}
	}
}

// TestAPointFallsWithEachThingItRestsOn takes away, spoils or weakens each row
// and each run in turn. The control is the whole box.
func TestAPointFallsWithEachThingItRestsOn(t *testing.T) {
	for _, r := range pointRules() {
		if got := point(t, pointsOf(wholeBox(), allRuns()), r.id); got.Confirmed != (r.never == "") {
			t.Errorf("control: %s: %+v", r.id, got)
		}
		p := claiming(t, r.id)
		if rows := confirmedRows(p, wholeBox()); (attest.Check(rows) == nil) != (r.never == "") || len(rows) != 1 {
			t.Errorf("control: %s in a run: %+v", r.id, rows)
		}
		fall := func(what string, rows []attest.Row) {
			if point(t, pointsOf(rows, allRuns()), r.id).Confirmed {
				t.Errorf("%s stands %s", r.id, what)
			}
			if attest.Check(confirmedRows(p, rows)) == nil {
				t.Errorf("a run stands %s, though %s is called CONFIRMED", what, r.id)
			}
			if other := confirmedRows(claiming(t), rows); len(other) != 0 {
				t.Errorf("a policy that claims nothing is held to %+v", other)
			}
		}
		for _, name := range r.rows {
			at := func(rows []attest.Row) int {
				return slices.IndexFunc(rows, func(x attest.Row) bool { return x.Restriction == name })
			}
			rows := wholeBox()
			fall("without "+name, slices.Delete(rows, at(rows), at(rows)+1))
			for _, s := range []attest.Status{attest.Mismatch, attest.Degraded, attest.Blocked, "", "unknown"} {
				rows := wholeBox()
				rows[at(rows)].Status = s
				fall("with "+name+" "+string(s), rows)
			}
		}
		for _, name := range r.whole {
			fall("with "+name+" degraded", append(wholeBox(), attest.Row{Restriction: name, Status: attest.Degraded, Grade: attest.None}))
		}
		if r.id == "EP2" {
			rows := wholeBox()
			for i := range rows {
				rows[i].Grade = attest.Launcher
			}
			fall("by the launcher's word", rows)
		}
		for _, name := range r.runs {
			for what, runs := range map[string][]TestRun{
				"without run " + name:     slices.DeleteFunc(allRuns(), func(x TestRun) bool { return x.Name == name }),
				"with failed run " + name: append([]TestRun{{Name: name}}, allRuns()...),
				"without any run":         nil,
			} {
				if point(t, pointsOf(wholeBox(), runs), r.id).Confirmed {
					t.Errorf("%s stands %s", r.id, what)
				}
			}
		}
	}
}

// evidenceText is a document as doctor writes it, over a host of literals.
func evidenceText(t testing.TB, rows []attest.Row, runs []TestRun) []byte {
	t.Helper()
	x := &Examination{Schema: ExaminationSchema, Box: rows, facts: wholeFacts(t)}
	text, err := x.Evidence(runs, "test", time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestEvidenceIsReadBackWholeOrNotAtAll(t *testing.T) {
	text := evidenceText(t, wholeBox(), allRuns())
	e, err := parseEvidence("f", text)
	if err != nil || len(e.Points) != 9 || e.Binding.Kernel != goodHost().Kernel || len(e.Blockers) != 13 {
		t.Fatalf("control: %v %+v", err, e)
	}
	refused := func(what string, text []byte) {
		if _, err := parseEvidence("f", text); reason.Of(err) == nil || reason.Of(err).ID != reason.EvidenceInvalid {
			t.Errorf("%s: %v", what, err)
		}
	}
	for i := 0; i < len(text); i += max(1, len(text)/500) {
		other := bytes.Clone(text)
		other[i] ^= 1
		refused("a changed byte", other)
		refused("cut", text[:i])
	}
	refused("more behind it", append(bytes.Clone(text), '\n'))
	refused("another schema", bytes.Replace(text, []byte("evidence/1"), []byte("evidence/2"), 1))
	refused("confirmed by hand", bytes.Replace(text, []byte(`"confirmed": false`), []byte(`"confirmed": true `), 1))
}

func TestEvidenceBelongsToWhoMayConfirm(t *testing.T) {
	path := t.TempDir() + "/e.json"
	if err := os.WriteFile(path, evidenceText(t, wholeBox(), allRuns()), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadEvidence(path); err != nil {
		t.Fatalf("control: %v", err)
	}
	for _, mode := range []os.FileMode{0o664, 0o646} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadEvidence(path); reason.Of(err) == nil || reason.Of(err).ID != reason.EvidenceInvalid {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
	for _, other := range []string{t.TempDir(), "/dev/null", path + "-none"} {
		if _, err := ReadEvidence(other); err == nil {
			t.Errorf("%s passes", other)
		}
	}
}

func TestClaimsNeedTheEvidenceOfThisRun(t *testing.T) {
	e, err := parseEvidence("f", evidenceText(t, wholeBox(), allRuns()))
	if err != nil {
		t.Fatal(err)
	}
	now := e.Binding
	if err := checkClaims([]string{"EP1", "EP8"}, e, now); err != nil {
		t.Fatalf("control: %v", err)
	}
	for name, change := range map[string]func(*Binding){
		"kernel": func(b *Binding) { b.Kernel += "x" }, "arch": func(b *Binding) { b.Arch = "arm64" },
		"binary": func(b *Binding) { b.Binary = "" }, "account": func(b *Binding) { b.UID++ },
	} {
		other := now
		change(&other)
		if e := reason.Of(checkClaims([]string{"EP1"}, e, other)); e == nil || e.ID != reason.EvidenceStale {
			t.Errorf("%s: %v", name, e)
		}
	}
	for _, id := range []string{"EP9", "EP10", ""} {
		if e := reason.Of(checkClaims([]string{"EP1", id}, e, now)); e == nil || e.ID != reason.EvidenceInsufficient {
			t.Errorf("%q: %v", id, e)
		}
	}
}

func TestConfirmWritesWhatIsShownAndNothingElse(t *testing.T) {
	for name, tc := range map[string]struct {
		rows      []attest.Row
		confirmed int // points
		backend   string
	}{
		"all":     {wholeBox(), 8, BackendName + " CONFIRMED"},
		"nothing": {nil, 2, "rootless_container_runtime_UNVERIFIED PROPOSED"}, // EP6 and EP7 rest on runs only
	} {
		e, err := parseEvidence("f", evidenceText(t, tc.rows, allRuns()))
		if err != nil {
			t.Fatal(err)
		}
		p := claiming(t, "EP9", "EP1") // claims that the evidence has to take back, or may keep
		text, err := ConfirmPolicy(p, e, "/srv/e.json")
		if err != nil {
			t.Fatal(err)
		}
		var doc struct {
			Backend  struct{ Name, Status string }                `json:"isolation_backend"`
			Points   []struct{ ID, Implementation_Status string } `json:"enforcement_points"`
			Evidence struct{ File, Digest string }
		}
		if err := json.Unmarshal(text, &doc); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), `"implementation_status": "CONFIRMED"`); n != tc.confirmed || doc.Backend.Name+" "+doc.Backend.Status != tc.backend {
			t.Errorf("%s: %d confirmed, backend %+v", name, n, doc.Backend)
		}
		if doc.Points[8].Implementation_Status != "UNVERIFIED" {
			t.Errorf("%s: EP9 is %s", name, doc.Points[8].Implementation_Status)
		}
		if doc.Evidence.File != "/srv/e.json" || doc.Evidence.Digest != e.Digest {
			t.Errorf("%s: %+v", name, doc.Evidence)
		}
		if p.EnforcementPoints[8].ImplementationStatus != Confirmed {
			t.Errorf("%s: the policy that was handed in was changed", name)
		}
	}
}

func TestBlockersAreAllThere(t *testing.T) {
	p, _ := goodPolicy(t)
	x := &Examination{}
	for _, name := range []string{"release", "delegation", "controller-memory", "controller-pids", "controller-cpu", "account", "range", "limit", "sysctl",
		"apparmor", "user", "nested-refused", "seccomp", "landlock-effect", "provisioned-out", "stop-proof", "pidfd"} {
		x.add(Finding{Name: name, Answer: probe.Yes})
	}
	good := blockers(x, allRuns())
	if len(good) != len(p.Blockers) {
		t.Fatalf("%d rows for %d blockers", len(good), len(p.Blockers))
	}
	for i, b := range good {
		if id, _, _ := strings.Cut(p.Blockers[i], " "); b.ID != id || b.By == "" {
			t.Errorf("row %d: %+v for %q", i, b, p.Blockers[i])
		}
		want := Answered
		switch b.ID {
		case "B6", "B7", "B10", "B13":
			want = Operator
		case "B8":
			want = Open
		}
		if b.State != want {
			t.Errorf("%s: %s, want %s", b.ID, b.State, want)
		}
	}
	// No finding, no run: nothing is answered.
	for _, b := range blockers(&Examination{}, nil) {
		if b.State == Answered {
			t.Errorf("%s is answered by nothing", b.ID)
		}
	}
	for i := range x.Findings {
		was := x.Findings[i].Answer
		x.Findings[i].Answer = probe.Unknown
		fewer := slices.DeleteFunc(blockers(x, allRuns()), func(b Blocker) bool { return b.State != Answered })
		if len(fewer) >= 8 {
			t.Errorf("an unknown %s is taken for a yes", x.Findings[i].Name)
		}
		x.Findings[i].Answer = was
	}
}
