// Package attested shows that a run without one of its restrictions does not
// start: what the launcher reads back before "go" is held against boxes that
// really lack something.
//
// leftout_test.go leaves one step of the set-up program out of real boxes, the
// workload's and the exporter's. The product has no place to ask for that: the
// test builds a second nsbox with a file of its own laid over nsexec/spawn.go.
//
// inject_test.go makes single system calls of the launcher and its boxes fail,
// with strace.
//
// In both, a run is either refused with nothing started, or the program in
// testdata/view.py, which looks around and tries what it may not do, reports
// exactly what it reports in a whole box.
package attested
