//go:build !linux || !amd64

package main

// The seccomp tables and the step interpreter exist for this platform only; a
// build for another one must stop here and not at a missing symbol.
const _ = nsbox_builds_for_linux_amd64_only
