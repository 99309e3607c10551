package journal

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// goodAttempt is an attempt that ends with a delivery.
var goodAttempt = []Event{
	Attempt, CgroupIntent, CgroupMade, StagingIntent, BoxIntent, StagingMade, BoxUp, Go, Terminal,
	StopIntent, StopProved, SealIntent, Sealed, CopyIntent, ExporterIntent, ExporterUp, ExportIntent,
	Exported, ExporterStopped, CopyVerified, CredentialsEmpty, DestroyIntent, Destroyed, CleanupVerified, Outcome,
	DeliverIntent, Delivered,
}

func records(events []Event) []Record {
	recs := make([]Record, len(events))
	for i, e := range events {
		recs[i] = Record{Seq: uint64(i + 1), Event: e}
		if e == Terminal {
			recs[i].Data = map[string]string{outcomeKey: "EXITED"}
		}
	}
	return recs
}

func without(events []Event, drop ...Event) []Event {
	return slices.DeleteFunc(slices.Clone(events), func(e Event) bool { return slices.Contains(drop, e) })
}

func upTo(last Event) []Event {
	return slices.Clone(goodAttempt[:slices.Index(goodAttempt, last)+1])
}

func TestGoodAttemptReplays(t *testing.T) {
	s, err := Replay(records(goodAttempt))
	if err != nil {
		t.Fatal(err)
	}
	if s.Outcome() != "EXITED" || len(s.Open()) != 0 || !s.Has(Delivered) || s.Has(Quarantined) {
		t.Errorf("state is %+v, open %v", s, s.Open())
	}
}

func TestOtherEndsReplay(t *testing.T) {
	for name, events := range map[string][]Event{
		"cancelled during set-up": {Attempt, BoxIntent, Terminal, StopIntent, StopProved, CredentialsEmpty, DestroyIntent, Destroyed, CleanupVerified, Outcome},
		"box up after the cancel": {Attempt, BoxIntent, Terminal, BoxUp, StopIntent, StopProved, CredentialsEmpty, DestroyIntent, Destroyed, CleanupVerified, Outcome},
		"stop not proven":         append(upTo(Terminal), StopIntent, StopIntent, Quarantined, Outcome),
		"cleanup fails":           append(upTo(CredentialsEmpty), DestroyIntent, DestroyIntent, DestroyIntent, Quarantined, Outcome),
		"exporter dies":           append(upTo(ExportIntent), ExporterStopped, CredentialsEmpty, DestroyIntent, Destroyed, CleanupVerified, Outcome),
		"delivery fails":          append(upTo(DeliverIntent), DeliverAbandoned),
		"reconciled":              append(upTo(CredentialsEmpty), DestroyIntent, Quarantined, Outcome, ReconcileIntent, ReconcileIntent, Reconciled),
		"stop proven later":       append(upTo(Terminal), StopIntent, Quarantined, Outcome, StopIntent, StopProved, ReconcileIntent, Reconciled),
	} {
		if _, err := Replay(records(events)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOrderIsRefused(t *testing.T) {
	for name, events := range map[string][]Event{
		"unknown event":                  {"made_up"},
		"nothing before the attempt":     {BoxIntent},
		"two attempts":                   {Attempt, Attempt},
		"credentials after destruction":  append(upTo(DestroyIntent), CredentialsEmpty),
		"destruction without that":       append(upTo(CopyVerified), DestroyIntent),
		"credentials while it may run":   append(upTo(StopIntent), CredentialsEmpty),
		"reconcile without quarantine":   append(upTo(Outcome), ReconcileIntent),
		"reconcile without stop proof":   append(upTo(Terminal), StopIntent, Quarantined, Outcome, ReconcileIntent),
		"reconcile beside an exporter":   append(upTo(ExporterUp), Quarantined, Outcome, ReconcileIntent),
		"delivery of a reconciled one":   append(upTo(CopyVerified), Quarantined, Outcome, ReconcileIntent, Reconciled, DeliverIntent),
		"reconciled twice":               append(upTo(CopyVerified), Quarantined, Outcome, ReconcileIntent, Reconciled, ReconcileIntent),
		"two terminal events":            append(upTo(Terminal), Terminal),
		"go before the box is up":        {Attempt, BoxIntent, Go},
		"go before staging ends":         append(without(upTo(BoxUp), StagingMade), Go),
		"go after the terminal event":    append(without(upTo(Terminal), Go), Go),
		"box after the terminal event":   {Attempt, Terminal, BoxIntent},
		"stop without a terminal event":  append(upTo(Go), StopIntent),
		"stop proof without its intent":  append(upTo(Terminal), StopProved),
		"seal without stop proof":        append(upTo(StopIntent), SealIntent),
		"export box without stop proof":  append(upTo(StopIntent), ExporterIntent),
		"seal though nothing ran":        {Attempt, Terminal, StopIntent, StopProved, SealIntent},
		"export without a seal":          append(without(upTo(ExporterUp), Sealed), ExportIntent),
		"export after the exporter went": append(upTo(ExporterUp), ExporterStopped, ExportIntent),
		"copy verified, exporter alive":  append(without(upTo(Exported), ExporterStopped), CopyVerified),
		"destroyed with exporter alive":  append(upTo(Exported), DestroyIntent),
		"destroyed without stop proof":   append(upTo(StopIntent), DestroyIntent),
		"both verified and quarantined":  append(upTo(CleanupVerified), Quarantined),
		"both quarantined and verified":  append(upTo(Destroyed), Quarantined, CleanupVerified),
		"outcome before the cleanup":     append(upTo(Destroyed), Outcome),
		"delivery before the outcome":    append(upTo(CleanupVerified), DeliverIntent),
		"delivery from quarantine":       append(upTo(Destroyed), Quarantined, Outcome, DeliverIntent),
		"delivery of an unverified copy": append(without(upTo(Outcome), CopyVerified), DeliverIntent),
		"delivered without intent":       append(upTo(Outcome), Delivered),
		"delivered and abandoned":        append(upTo(Delivered), DeliverAbandoned),
	} {
		before := records(events[:len(events)-1])
		s, err := Replay(before)
		if err != nil {
			t.Errorf("%s: the events before: %v", name, err)
			continue
		}
		after, err := Next(s, Record{Event: events[len(events)-1]})
		if !errors.Is(err, ErrOrder) {
			t.Errorf("%s: error is %v", name, err)
		}
		if after != s {
			t.Errorf("%s: the refused event changed the state", name)
		}
	}
}

func TestOpenIntents(t *testing.T) {
	for last, want := range map[Event][]Event{
		Attempt:         nil,
		BoxIntent:       {StagingIntent, BoxIntent},
		Go:              nil,
		StopIntent:      {StopIntent},
		ExportIntent:    {CopyIntent, ExporterIntent, ExportIntent},
		ExporterStopped: {CopyIntent},
		DeliverIntent:   {DeliverIntent},
	} {
		s, err := Replay(records(upTo(last)))
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Open(); !slices.Equal(got, want) {
			t.Errorf("after %s: open are %v, want %v", last, got, want)
		}
	}
}

func TestTablesAgree(t *testing.T) {
	if len(rules) > 64 {
		t.Fatalf("%d events do not fit a state", len(rules))
	}
	known := map[Event]bool{}
	for _, r := range rules {
		if known[r.event] {
			t.Errorf("%s has two rules", r.event)
		}
		for _, e := range slices.Concat(r.after, r.either, r.settled) {
			// what must stand before stands earlier in the table: so every event can be reached
			if !known[e] {
				t.Errorf("%s: %s is not an earlier event", r.event, e)
			}
		}
		known[r.event] = true
	}
	paired := map[Event]bool{}
	for _, p := range pairs {
		paired[p.intent] = true
		for _, e := range append([]Event{p.intent}, p.done...) {
			if !known[e] {
				t.Errorf("pair of %s: %s is unknown", p.intent, e)
			}
		}
	}
	for e := range known {
		if strings.HasSuffix(string(e), "_intent") != paired[e] {
			t.Errorf("%s: its name and the pairs do not agree", e)
		}
	}
}

func TestRandomOrderKeepsThePromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s State
		terminals, delivered, quarantined := 0, false, false
		for range 200 {
			e := rules[rapid.IntRange(0, len(rules)-1).Draw(t, "event")].event
			ended := s.Has(Terminal)
			next, err := Next(s, Record{Event: e})
			if err != nil {
				continue
			}
			s = next
			switch e {
			case Terminal:
				terminals++
			case CgroupIntent, StagingIntent, BoxIntent, Go:
				if ended {
					t.Fatalf("%s after the terminal event", e)
				}
			case SealIntent, CopyIntent, ExporterIntent, DestroyIntent, ReconcileIntent:
				if !s.Has(StopProved) {
					t.Fatalf("%s without stop proof", e)
				}
			case Reconciled:
				if !s.Has(Quarantined) || len(slices.DeleteFunc(s.Open(), func(e Event) bool { return e == ExportIntent || e == StopIntent })) > 0 {
					t.Fatalf("reconciled with %v open", s.Open())
				}
			case Quarantined:
				quarantined = true
			case Delivered:
				delivered = true
			}
		}
		if terminals > 1 || delivered && quarantined {
			t.Fatalf("%d terminal events, delivered %v, quarantined %v", terminals, delivered, quarantined)
		}
	})
}

// TestEveryStateCanBeEnded: wherever a launcher dies, recovery can write a proven
// end behind it, and the operator's reconcile behind that.
func TestEveryStateCanBeEnded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s State
		step := func(e Event) bool {
			next, err := Next(s, Record{Event: e, Data: map[string]string{outcomeKey: "X"}})
			if err == nil {
				s = next
			}
			return err == nil
		}
		for range rapid.IntRange(1, 120).Draw(t, "length") {
			step(rules[rapid.IntRange(0, len(rules)-1).Draw(t, "event")].event)
		}
		end := []Event{Attempt, Terminal, StopIntent, StopProved}
		if s.Has(ExporterIntent) {
			end = append(end, ExporterStopped)
		}
		if !s.Has(CleanupVerified) {
			end = append(end, Quarantined)
		}
		end = append(end, Outcome)
		if s.Has(DeliverIntent) && !s.Has(Delivered) {
			end = append(end, DeliverAbandoned)
		}
		if s.Has(Quarantined) || !s.Has(CleanupVerified) {
			end = append(end, ReconcileIntent, Reconciled)
		}
		for _, e := range end {
			if !s.Has(e) && !(e == StopIntent && s.Has(StopProved)) && !step(e) {
				_, err := Next(s, Record{Event: e})
				t.Fatalf("%s cannot follow: %v", e, err)
			}
		}
		if slices.Contains(s.Open(), DeliverIntent) || !s.Has(StopProved) || !s.Has(Outcome) {
			t.Fatalf("the end leaves %v open", s.Open())
		}
	})
}
