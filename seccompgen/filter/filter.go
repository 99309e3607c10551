// Package filter holds a compiled seccomp program as plain bytes, so that code
// which runs near the workload can load a filter without libseccomp or cgo.
package filter

import (
	"crypto/sha256"
	"encoding/hex"
)

// Program is an array of struct sock_filter (8 bytes each, native endian), as
// seccomp(2) SECCOMP_SET_MODE_FILTER takes it.
type Program []byte

// Len returns the number of BPF instructions.
func (p Program) Len() int { return len(p) / 8 }

// Digest returns "sha256:" and the lower-case hex digest of the bytes.
func (p Program) Digest() string {
	s := sha256.Sum256(p)
	return "sha256:" + hex.EncodeToString(s[:])
}
