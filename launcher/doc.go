// Package launcher runs one attempt: it decides, makes a box, watches it, and
// ends it, and it alone says what the outcome was.
//
// # The story
//
// Run (run.go) is the whole of it, phase by phase; setup.go has what comes
// before "go", conclude.go what comes after the end:
//
//	decide     policy, host facts → Plan          nothing exists yet; a refusal leaves no trace
//	set up     journal, job cgroup, staged /in, box   each intent journaled before its effect
//	attest     what the kernel shows ↔ the Plan   a mismatch ends the attempt before "go"
//	supervise  go, streams, limits → ending        the first terminal event wins (monitor.go)
//	finish     stop proof → seal → export → destroy → verify → record → deliver (finalize.go)
//
// Deciding is pure: MakePlan (plan.go) and what it calls take request, policy
// and Facts and do no I/O, so every host can be put into a table test. Acting
// obeys the plan and decides nothing. Facts are gathered in one place (facts.go).
//
// # What is believed
//
// Outcomes come from the launcher's own acts and from the kernel's counters,
// never from what the program wrote, nor from its exit code alone. What the
// kernel shows of a box is read from outside (look.go), compared without I/O
// (inspect.go, mounttable.go), and stands in the result row by row.
//
// # The artifact
//
// The launcher opens nothing below /out. It holds the descriptor of its root,
// hands it into a second box (export.go), reads the copy that comes back from a
// file of its own, hashes it again, and publishes it only after the first box
// and all it used are proven gone (deliver.go). Where the policy lets several
// files leave, one rename publishes them together (deliver_several.go).
//
// # Degraded dimensions
//
// restrictions.go holds the table of what a host may lack. Each line names what
// holds instead and what that does not cover; without the operator's word the
// run is refused. Nothing else in this package weakens anything.
package launcher
