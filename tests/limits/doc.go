// Package limits shows that the kernel holds the limits of a job, with the
// numbers of the specification's test profiles, by the evidence of the kernel's
// own counters: the built nsbox is started by an ordinary user, and nothing but
// the storage of /out may be degraded.
//
// That takes a delegated cgroup on a unified hierarchy, so the tests run in the
// guests of tests/vm, which says so by NSBOX_VM_TIER. Elsewhere only
// TestRefusedElsewhere means something.
//
// A guest is emulated and slow, and so is everything that is bounded by the
// clock of the wall: package harness makes those bounds of a profile longer.
// What is counted in cpu time, bytes and tasks is the profile's own number.
// NSBOX_TEST_ALL makes the series as long as the specification asks for.
package limits
