package journal

import (
	"fmt"
	"slices"
)

// Event is what a record says has been decided ("…_intent") or has happened.
type Event string

// The events, in the order of an attempt that goes well.
const (
	Attempt          Event = "attempt"       // the attempt exists; Data names it, its policy and the boot
	CgroupIntent     Event = "cgroup_intent" // a job cgroup is about to be made
	CgroupMade       Event = "cgroup_made"   //
	StagingIntent    Event = "staging_intent"
	StagingMade      Event = "staging_made" // the inputs are copied and hashed
	BoxIntent        Event = "box_intent"
	BoxUp            Event = "box_up" // init and child answered, everything is attested
	Go               Event = "go"     // the program is about to be let run
	Terminal         Event = "terminal"
	StopIntent       Event = "stop_intent" // may repeat
	StopProved       Event = "stop_proved"
	SealIntent       Event = "seal_intent"
	Sealed           Event = "sealed"
	CopyIntent       Event = "copy_intent" // the staging file for the artifact is about to be made
	ExporterIntent   Event = "exporter_intent"
	ExporterUp       Event = "exporter_up"
	ExportIntent     Event = "export_intent" // the exporter is about to be let run
	Exported         Event = "exported"      // Data has its verdict
	ExporterStopped  Event = "exporter_stopped"
	CopyVerified     Event = "copy_verified"     // the launcher's own digest agrees, or there is nothing to copy
	CredentialsEmpty Event = "credentials_empty" // no credential was ever handed in, so none is left to revoke; Data says what was looked at
	DestroyIntent    Event = "destroy_intent"    // may repeat
	Destroyed        Event = "destroyed"
	CleanupVerified  Event = "cleanup_verified"
	Quarantined      Event = "quarantined" // in place of cleanup_verified
	Outcome          Event = "outcome"
	DeliverIntent    Event = "deliver_intent"
	Delivered        Event = "delivered"
	DeliverAbandoned Event = "deliver_abandoned" // in place of delivered
	ReconcileIntent  Event = "reconcile_intent"  // the operator had a quarantined attempt cleaned; may repeat
	Reconciled       Event = "reconciled"        // nothing of it is left but its record
)

// rule says when an event may stand: after all of after, after one of either,
// before all of before, and only when every intent in settled that stands is
// completed. Unless repeats, an event stands once.
type rule struct {
	event                          Event
	after, either, before, settled []Event
	repeats                        bool
}

// rules is the state machine. What creates something is barred by Terminal: the
// first terminal event must also end the set-up. Records of completion are not
// barred, for what happened stays true. A state is a set of places in this table.
var rules = []rule{
	{event: Attempt},
	{event: CgroupIntent, after: []Event{Attempt}, before: []Event{Terminal}},
	{event: CgroupMade, after: []Event{CgroupIntent}},
	{event: StagingIntent, after: []Event{Attempt}, before: []Event{Terminal}},
	{event: StagingMade, after: []Event{StagingIntent}},
	{event: BoxIntent, after: []Event{Attempt}, before: []Event{Terminal}},
	{event: BoxUp, after: []Event{BoxIntent}},
	{event: Go, after: []Event{BoxUp}, before: []Event{Terminal}, settled: []Event{CgroupIntent, StagingIntent}},
	{event: Terminal, after: []Event{Attempt}},
	{event: StopIntent, after: []Event{Terminal}, before: []Event{StopProved}, repeats: true},
	{event: StopProved, after: []Event{StopIntent}},
	{event: SealIntent, after: []Event{StopProved, Go}, before: []Event{DestroyIntent, Quarantined}},
	{event: Sealed, after: []Event{SealIntent}},
	{event: CopyIntent, after: []Event{StopProved, Go}, before: []Event{DestroyIntent, Quarantined}},
	{event: ExporterIntent, after: []Event{StopProved, Go}, before: []Event{DestroyIntent, Quarantined}},
	{event: ExporterUp, after: []Event{ExporterIntent}},
	{event: ExportIntent, after: []Event{Sealed, CopyIntent, ExporterUp}, before: []Event{ExporterStopped, DestroyIntent, Quarantined}},
	{event: Exported, after: []Event{ExportIntent}},
	{event: ExporterStopped, after: []Event{ExporterIntent}},
	{event: CopyVerified, after: []Event{CopyIntent, Exported}, settled: []Event{ExporterIntent}},
	{event: CredentialsEmpty, after: []Event{StopProved}, before: []Event{DestroyIntent}},
	{event: DestroyIntent, after: []Event{StopProved, CredentialsEmpty}, before: []Event{Destroyed}, settled: []Event{ExporterIntent}, repeats: true},
	{event: Destroyed, after: []Event{DestroyIntent}},
	{event: CleanupVerified, after: []Event{Destroyed}, before: []Event{Quarantined}},
	{event: Quarantined, after: []Event{Terminal}, before: []Event{CleanupVerified}},
	{event: Outcome, after: []Event{Terminal}, either: []Event{CleanupVerified, Quarantined}},
	{event: DeliverIntent, after: []Event{Outcome, CleanupVerified, CopyVerified}},
	{event: Delivered, after: []Event{DeliverIntent}, before: []Event{DeliverAbandoned}},
	{event: DeliverAbandoned, after: []Event{DeliverIntent}, before: []Event{Delivered}},
	{event: ReconcileIntent, after: []Event{Quarantined, StopProved, Outcome}, before: []Event{Reconciled}, settled: []Event{ExporterIntent}, repeats: true},
	{event: Reconciled, after: []Event{ReconcileIntent}},
}

// pairs is every intent and what completes it; what was to make something is
// completed by the destruction too, the launcher's own or the operator's.
var pairs = []struct {
	intent Event
	done   []Event
}{
	{CgroupIntent, []Event{CgroupMade, Destroyed, Reconciled}},
	{StagingIntent, []Event{StagingMade, Destroyed, Reconciled}},
	{BoxIntent, []Event{BoxUp, Destroyed, Reconciled}},
	{StopIntent, []Event{StopProved}},
	{SealIntent, []Event{Sealed, Destroyed, Reconciled}},
	{CopyIntent, []Event{CopyVerified, Destroyed, Reconciled}},
	{ExporterIntent, []Event{ExporterStopped}},
	{ExportIntent, []Event{Exported, ExporterStopped}},
	{DestroyIntent, []Event{Destroyed, Reconciled}},
	{DeliverIntent, []Event{Delivered, DeliverAbandoned}},
	{ReconcileIntent, []Event{Reconciled}},
}

// State is what the events so far amount to. Its zero value is a journal without
// a record.
type State struct {
	stands  uint64 // bit n: rules[n].event
	outcome string
}

// Has reports whether e stands.
func (s State) Has(e Event) bool {
	n := place(e)
	return n >= 0 && s.stands&(1<<n) != 0
}

func place(e Event) int {
	return slices.IndexFunc(rules, func(r rule) bool { return r.event == e })
}

// Outcome returns the outcome word of the terminal event, "" before it.
func (s State) Outcome() string { return s.outcome }

// Open returns the intents that stand without completion, in the order of an
// attempt: what they were to do may or may not have happened. What was made and
// not yet destroyed is not among them.
func (s State) Open() []Event {
	var open []Event
	for _, p := range pairs {
		if s.Has(p.intent) && !s.hasAny(p.done) {
			open = append(open, p.intent)
		}
	}
	return open
}

func (s State) hasAny(events []Event) bool { return slices.ContainsFunc(events, s.Has) }

// Next returns the state after rec, or an ErrOrder that names what is missing or
// in the way.
func Next(s State, rec Record) (State, error) {
	refuse := func(why string, other Event) (State, error) {
		return s, fmt.Errorf("%w: %s %s %s", ErrOrder, rec.Event, why, other)
	}
	n := place(rec.Event)
	if n < 0 {
		return s, fmt.Errorf("%w: unknown event %q", ErrOrder, rec.Event)
	}
	r := rules[n]
	if s.Has(rec.Event) && !r.repeats {
		return refuse("stands already, as", rec.Event)
	}
	for _, e := range r.after {
		if !s.Has(e) {
			return refuse("needs", e)
		}
	}
	if len(r.either) > 0 && !s.hasAny(r.either) {
		return refuse("needs", r.either[0])
	}
	for _, e := range r.before {
		if s.Has(e) {
			return refuse("cannot follow", e)
		}
	}
	for _, e := range r.settled {
		if slices.Contains(s.Open(), e) {
			return refuse("needs the completion of", e)
		}
	}
	next := State{stands: s.stands | 1<<n, outcome: s.outcome}
	if rec.Event == Terminal {
		next.outcome = rec.Data[outcomeKey]
	}
	return next, nil
}

// Replay folds Next over the records of a journal.
func Replay(recs []Record) (State, error) {
	var s State
	for _, rec := range recs {
		next, err := Next(s, rec)
		if err != nil {
			return s, fmt.Errorf("record %d: %w", rec.Seq, err)
		}
		s = next
	}
	return s, nil
}
