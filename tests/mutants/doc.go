// Package mutants checks the fixtures of tests/conformance themselves: with each
// enforcement taken away in turn, at least one of them has to fail.
//
// A mutant is nsbox with one enforcement missing. All of them are one build, in
// which the test lays changed source over the product's own (go build -overlay);
// which one a copy of it is, stands in 128 bytes that the test writes into the
// copy. The product has no such place. The launcher's comparison of what the
// kernel shows is told to accept everything, else no mutant would start; its rows
// still say what was not as asked, and fixture B2 reads those too.
//
// What has two layers (a filter's rule beside an empty namespace) must be missed
// layer by layer: fixtures look at the state of each, not only at the effect.
// Left out are what the kernel itself demands before the next step
// (no_new_privs before the filter, the namespaces that the others need), what the
// exec of init does again (its capabilities, where the bounding set is empty), and the
// exporter's recheck, whose absence still delivers the original's own bytes; it
// has tests of its own in package exporter.
package mutants
