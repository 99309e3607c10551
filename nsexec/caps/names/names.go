// Package names names capabilities. No stage may link it: the library opens a
// file when it starts, and each call of a stage that the scheduler knows of may
// cost it a thread more than the policy gives the exporter.
package names

import "github.com/syndtr/gocapability/capability"

// Of is the lower-case name of capability n without the cap_ prefix, or "unknown".
func Of(n int) string { return capability.Cap(n).String() }
