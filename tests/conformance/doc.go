// Package conformance is the specification's fixtures as a program: S1 to S17
// and A1a to A5b with their profiles, preconditions, positive controls, bounds
// and deadlines. `nsbox verify` runs them on the operator's own host, through
// the installed nsbox, as whoever calls it.
//
// A Fixture says what it attempts, what a PASS shows and what it cannot
// establish. Its Run gets a Case, which is a harness.T: what fails inside
// Case.Control is TEST_SETUP_FAILURE, what fails elsewhere is FAIL, and Case.Stop
// ends with INCONCLUSIVE, BLOCKED or NOT_APPLICABLE. A fixture whose control did
// not hold attempts nothing, so it can never be PASS. Around each stands HIC-1,
// the host integrity check: canaries, processes, mounts, cgroups, network
// namespaces, leftovers, inputs and root files before and after.
//
// Everything is synthetic and below one temporary directory; no fixture touches
// a network but namespaces it makes itself. Suite.Run writes a Bundle: one
// directory with each run's result document, the environment's evidence, a
// manifest of digests and one page that an approver can read offline.
package conformance
