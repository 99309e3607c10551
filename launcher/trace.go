package launcher

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"strconv"
	"sync"
	"time"

	"nsbox/launcher/attest"
	"nsbox/launcher/broker"
	"nsbox/launcher/endpoint"
	"nsbox/launcher/journal"
	"nsbox/launcher/reason"
)

// TraceEvent is one line of a trace. Seq counts from 1 without a gap. Time is
// missing where nothing happened. What a trace may hold is closed: names,
// digests, outcomes and normalised endpoints. Arguments, environment values and
// output never enter it, since a secret may stand in them.
type TraceEvent struct {
	Seq     int       `json:"seq"`
	Event   string    `json:"event"`
	Backend string    `json:"backend"`
	Plan    string    `json:"plan"` // digest; empty if the plan was refused
	Time    time.Time `json:"time,omitzero"`
	Data    any       `json:"data"`
}

// Trace writes events in order, each as one JSON line in one write. The first
// failed write is kept and ends the trace.
type Trace struct {
	mu      sync.Mutex // records come from several goroutines of a run
	to      io.Writer
	backend string
	plan    string
	seq     int
	err     error
}

// NewTrace begins a trace of what d decides.
func NewTrace(to io.Writer, d *Decision) *Trace {
	t := &Trace{to: to, backend: d.Backend, plan: d.Digest}
	t.decision(d)
	return t
}

// Err is the first failed write, as a *reason.Error, or nil.
func (t *Trace) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil {
		return nil
	}
	return reason.Wrap(reason.TraceFile, "the trace", "could not be written", "free space where it stands, or name another file", t.err)
}

func (t *Trace) event(name string, at time.Time, data any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		return
	}
	t.seq++
	if t.backend == SimulatedName {
		at = time.Time{}
	}
	var line bytes.Buffer
	e := json.NewEncoder(&line)
	e.SetEscapeHTML(false)
	if t.err = e.Encode(TraceEvent{t.seq, name, t.backend, t.plan, at, data}); t.err == nil {
		_, t.err = t.to.Write(line.Bytes())
	}
}

type approvalData struct {
	Decision     string      `json:"decision"`
	Policy       PolicyRef   `json:"policy"`
	PolicyDigest string      `json:"policy_digest"`
	Executable   string      `json:"executable"`
	Arguments    int         `json:"arguments"`
	ArgvDigest   string      `json:"argv_sha256"`
	Denied       []Grant     `json:"denied"`
	Reasons      []reason.ID `json:"reasons"`
}

type configureData struct {
	Restrictions []configuredRow `json:"restrictions"`
	Degraded     []string        `json:"degraded"`
}

type configuredRow struct {
	Name   string        `json:"name"`
	Want   Want          `json:"want"`
	Status attest.Status `json:"status"`
}

type networkData struct {
	Default   string              `json:"default"`
	Requested []endpoint.Endpoint `json:"requested"`
	Allowed   []endpoint.Endpoint `json:"allowed"`
	Denied    []endpoint.Endpoint `json:"denied"`
}

// decision writes the three events that stand before any effect.
func (t *Trace) decision(d *Decision) {
	now := time.Now().UTC()
	a := approvalData{Decision: d.Verdict, Policy: d.Policy, PolicyDigest: d.PolicyDigest, Executable: d.Request.Executable, Arguments: len(d.Request.Argv),
		Denied: []Grant{}, Reasons: []reason.ID{}}
	sum := sha256.New()
	for _, arg := range d.Request.Argv {
		sum.Write(strconv.AppendQuote(nil, arg)) // quoted, so that the cuts between arguments count
	}
	a.ArgvDigest = hex.EncodeToString(sum.Sum(nil))
	n := networkData{Default: "deny", Requested: d.Request.Destinations, Allowed: []endpoint.Endpoint{}, Denied: []endpoint.Endpoint{}}
	for _, g := range d.Grants {
		if !g.Allowed {
			a.Denied = append(a.Denied, g)
		}
		if g.Capability != "connect" {
			continue
		}
		e, err := endpoint.Parse(g.Requested)
		switch {
		case err != nil: // grants hold endpoints in their one spelling
			t.err = err
		case g.Allowed:
			n.Allowed = append(n.Allowed, e)
		default:
			n.Denied = append(n.Denied, e)
		}
	}
	for _, r := range d.Reasons {
		a.Reasons = append(a.Reasons, r.ID)
	}
	c := configureData{Restrictions: []configuredRow{}, Degraded: []string{}}
	for _, r := range d.Rows {
		c.Restrictions = append(c.Restrictions, configuredRow{r.Name, r.Want, r.Status})
	}
	for _, x := range d.Degraded {
		c.Degraded = append(c.Degraded, x.Dimension)
	}
	t.event("approval.decision", now, a)
	t.event("sandbox.configure", now, c)
	t.event("network.decision", now, n)
}

// Connection is Request.Connection of a traced run.
func (t *Trace) Connection(e broker.Event) {
	t.event("network.connection", time.Now().UTC(), e)
}

type lifecycleData struct {
	Journal journal.Event `json:"journal"`
}

// Observe is Request.Observe of a traced run: each journaled record becomes an
// event at once, without its data. A trace that cannot be written any more is
// found at the end.
func (t *Trace) Observe(r journal.Record) {
	t.event("lifecycle", time.Now().UTC(), lifecycleData{r.Event})
}

type resultData struct {
	Attempt    string    `json:"attempt"`
	Workload   string    `json:"workload"`
	ExitCode   *int      `json:"exit_code"`
	Signal     *int      `json:"signal"`
	Artifact   string    `json:"artifact"`
	Cleanup    string    `json:"cleanup"`
	Delivery   string    `json:"delivery"`
	ExitStatus int       `json:"exit_status"`
	Reason     reason.ID `json:"reason,omitempty"`
	Simulated  bool      `json:"simulated"`
	Untrusted  string    `json:"untrusted"`
}

// Result writes the last event.
func (t *Trace) Result(res Result) {
	d := resultData{Attempt: res.Attempt, Workload: res.Workload.Outcome, ExitCode: res.Workload.ExitCode, Signal: res.Workload.Signal, Artifact: res.Artifact.Outcome,
		Cleanup: res.Cleanup.Outcome, Delivery: res.Delivery.Outcome, ExitStatus: res.ExitStatus, Simulated: res.Backend == SimulatedName,
		Untrusted: "what the program wrote is not part of a trace"}
	if res.Reason != nil {
		d.Reason = res.Reason.ID
	}
	t.event("tool.result", time.Now().UTC(), d)
}
