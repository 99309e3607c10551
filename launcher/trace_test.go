package launcher

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"

	"nsbox/launcher/journal"
	"nsbox/launcher/reason"
)

// canonical drops from a trace what no two runs share.
func canonical(t testing.TB, trace []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	for line := range bytes.Lines(trace) {
		var e map[string]any
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		delete(e, "time")
		if e["plan"] != "" {
			e["plan"] = "DIGEST" // TestDecidingIsPure and TestTraceOrderAndLabels hold it
		}
		if data := e["data"].(map[string]any); data["attempt"] != nil && data["attempt"] != "" {
			data["attempt"] = "ATTEMPT"
		}
		text, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(append(text, '\n'))
	}
	return out.Bytes()
}

// traced plays one decision to its end and returns the trace.
func traced(t testing.TB, b Backend, d *Decision, req Request) []byte {
	t.Helper()
	var out bytes.Buffer
	tr := NewTrace(&out, d)
	tr.Result(Start(t.Context(), b, d, req, Streams{}))
	if err := tr.Err(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestTraceGolden: allowed and denied, byte for byte after canonicalisation.
func TestTraceGolden(t *testing.T) {
	p, src := goodPolicy(t)
	sim, err := BackendByName("simulated", nil)
	if err != nil {
		t.Fatal(err)
	}
	simReq := Request{Argv: []string{"python3", "/in/x.py"}}
	simFacts, err := sim.survey(simReq, p)
	if err != nil {
		t.Fatal(err)
	}
	b := newFake(t)
	for name, trace := range map[string][]byte{
		"trace-allowed.jsonl":           traced(t, b, decided(t, b, goodRequest()), goodRequest()),
		"trace-denied.jsonl":            traced(t, b, decided(t, b, goodRequest(), "other.example.invalid:443", "A.Example.Invalid.:443"), goodRequest()),
		"trace-simulated.jsonl":         traced(t, sim, decide(sim, simReq, p, src, simFacts, nil, nil), simReq),
		"trace-simulated-denied.jsonl":  traced(t, sim, decide(sim, simReq, p, src, simFacts, nil, endpoints(t, "other.example.invalid:443")), simReq),
		"trace-degraded-refused.jsonl":  traced(t, b, decided(t, b, Request{Argv: []string{"python3"}}), goodRequest()),
		"trace-program-not-found.jsonl": traced(t, b, decided(t, withoutProgram(b), goodRequest()), goodRequest()),
	} {
		goldenFile(t, name, canonical(t, trace))
	}
}

func withoutProgram(b fake) fake {
	b.facts.Closure, b.err = nil, reason.New(reason.ProgramNotFound, "python3", "is not here", "install it")
	return b
}

// TestTraceOrderAndLabels: sequence numbers without a gap, the decisions first,
// the result last, backend and plan on every line.
func TestTraceOrderAndLabels(t *testing.T) {
	sim, _ := BackendByName("simulated", nil)
	b := newFake(t)
	p, src := goodPolicy(t)
	facts, _ := sim.survey(goodRequest(), p)
	for name, tc := range map[string]struct {
		b Backend
		d *Decision
	}{"fake": {b, decided(t, b, goodRequest())}, SimulatedName: {sim, decide(sim, goodRequest(), p, src, facts, nil, nil)}} {
		var order []string
		seq := 0
		for line := range bytes.Lines(traced(t, tc.b, tc.d, goodRequest())) {
			var e TraceEvent
			if err := json.Unmarshal(line, &e); err != nil {
				t.Fatal(err)
			}
			seq++
			if e.Seq != seq || e.Backend != name || e.Plan != tc.d.Digest || e.Plan == "" || e.Time.IsZero() != (name == SimulatedName) {
				t.Errorf("%s: line %d: %s", name, seq, line)
			}
			order = append(order, e.Event)
		}
		if got := strings.Join(order, " "); got != "approval.decision sandbox.configure network.decision tool.result" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestTraceHoldsNoSecret: what a caller may have put a secret into does not
// appear, and two argument lists are told apart all the same.
func TestTraceHoldsNoSecret(t *testing.T) {
	const secret = "hunter2"
	b := newFake(t)
	req := goodRequest()
	req.Argv = []string{"python3", "/in/x.py", "https://example.org/?token=" + secret, "--password=" + secret}
	trace := traced(t, b, decided(t, b, req), req)
	if bytes.Contains(trace, []byte(secret)) || bytes.Contains(trace, []byte("example.org")) {
		t.Errorf("the trace repeats an argument:\n%s", trace)
	}
	digest := func(argv ...string) string {
		r := goodRequest()
		r.Argv = argv
		_, rest, _ := strings.Cut(string(traced(t, b, decided(t, b, r), r)), `"argv_sha256":"`)
		return rest[:64]
	}
	first, again := digest("python3", "a"), digest("python3", "a")
	if digest("python3", "ab", "c") == digest("python3", "a", "bc") || first != again {
		t.Error("the digest of the arguments does not tell them apart")
	}
}

// TestTraceTellsTheJournal: events as they are recorded, and nothing of their data.
func TestTraceTellsTheJournal(t *testing.T) {
	var out bytes.Buffer
	b := newFake(t)
	tr := NewTrace(&out, decided(t, b, goodRequest()))
	tr.Observe(journal.Record{Event: journal.Attempt, Data: map[string]string{"boot": "secret-of-the-journal"}})
	if !strings.Contains(out.String(), `"seq":4,"event":"lifecycle"`) || !strings.Contains(out.String(), `{"journal":"attempt"}`) || strings.Contains(out.String(), "secret-of") {
		t.Errorf("%s", out.String())
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				tr.Observe(journal.Record{Event: journal.Go})
			}
		})
	}
	wg.Wait()
	seq := 0
	for line := range bytes.Lines(out.Bytes()) {
		var e TraceEvent
		if seq++; json.Unmarshal(line, &e) != nil || e.Seq != seq {
			t.Fatalf("line %d: %s", seq, line)
		}
	}
	if seq != 4+8*20 {
		t.Errorf("%d lines", seq)
	}
}

type full struct{ left int }

func (f *full) Write(p []byte) (int, error) {
	if f.left--; f.left < 0 {
		return 0, errors.New("no space")
	}
	return len(p), nil
}

func TestTraceKeepsItsFirstError(t *testing.T) {
	b := newFake(t)
	for n := range 5 {
		tr := NewTrace(&full{n}, decided(t, b, goodRequest()))
		tr.Result(newResult())
		e := reason.Of(tr.Err())
		if (e != nil) != (n < 4) || e != nil && e.ID != reason.TraceFile {
			t.Errorf("after %d lines: %v", n, tr.Err())
		}
	}
}
