//go:build !cgo

package seccompgen

// Filters come from libseccomp; a build without cgo could only refuse every run.
const _ = nsbox_needs_CGO_ENABLED_1_and_libseccomp_headers
