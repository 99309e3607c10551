// Package crash kills the launcher at every system call with which it changes
// something outside of its memory, lets its journal fail at every write, and
// looks at what the next commands make of it.
//
// The built nsbox runs under a tracer (trace.go) that sees the launcher's own
// threads and, since it does not follow processes, nothing of the box. A point
// is such a system call at its entry: killing there is killing after the effect
// before it and before its own. A run is recorded once to know how many points
// it has; then one run is made for each. After each:
//
//   - nothing of the box lives on;
//   - the next exec runs, and the attempt is in a defined state;
//   - what was published was published after stop and clean-up were proven, whole;
//   - reconcile brings everything to closed, with nothing left but the record.
//
// Every caller has its own matrix: root, whose boxes have a job cgroup, and the
// plain user, whose boxes are told by their ids alone.
//
// The default run takes a sample of the points that every journal write is part
// of; -long takes all. The size of the matrix is printed.
package crash
