// Package harness runs the built nsbox as a subprocess and looks at what it
// left behind. Tests state what is forbidden, try it inside a box, and then ask
// the host, not nsbox's messages, whether it happened.
//
// The binary is the one named by NSBOX_BIN, else bin/nsbox below the folder of
// go.mod. It is copied once per test process to a directory that everybody may
// enter, since a checkout often lies below a private folder.
//
// Who starts nsbox matters, so Callers lists the identities a test has to cover:
// started by root that is root itself and the plain user nsbox-test, which
// tests/setup.sh makes together with its range of subordinate ids; started by
// anybody else it is that account alone.
//
// A Site is one state directory with everything a test puts beside it. All of it
// belongs to the caller, and its random Marker is part of every command line, so
// that processes left over can be told from anybody else's. A Job is one
// command; Site.Run starts it, bounds its time, and returns a Run with the exit
// status, the streams and the decoded result.
//
// Policies start from the preset as `nsbox policy show` prints it; Profile and
// Set change single values. Every run names all dimensions that this version
// can weaken, which is harmless where they hold; NotShown says in the test's log
// which limit was degraded and is therefore not shown by that test.
//
//	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
//		target := s.File("target", "before")
//		before := harness.Fingerprint(t, target)
//		s.Run(harness.Job{Code: "..."}).WantOK()
//		if harness.Fingerprint(t, target) != before { ... }
//	})
//
// TestExample is this, whole: go test -run TestExample ./tests/harness
//
// The harness asks of a test only what T names, so that nsbox verify can run the
// same code outside any Go test.
package harness
