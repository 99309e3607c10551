// Package escape lets programs try to get out of the box, and looks at what
// they were after.
//
// Each attempt is one row of a table: the program in testdata that makes it,
// what it says of every single try, and a watch. The watch takes the state of
// the target on the host before the box starts and returns what to hold
// against it afterwards; a program that lies about its success is found by it.
// The entries "control" of a report are neighbours of the forbidden act that
// work, so that a refusal is not a program that does nothing. Where the same
// program can do the act harmlessly on the host, it does so as a control.
//
// The attempts come by what they are after: files_test.go the host's files,
// calls_test.go rights and foreign processes, reach_test.go sockets,
// outlive_test.go time after the end, talk_test.go the launcher and the reader
// of its output, out_test.go the exporter, host_test.go what a box could take
// from or learn of the host while it runs.
package escape
