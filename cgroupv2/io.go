package cgroupv2

// IOBlocked is the attestation row of a write rate in bytes per second. io.max
// is never written: it acts on block devices, and everything the workload can
// write to is tmpfs. A value there would read back well and limit nothing.
func IOBlocked(bytesPerSecond string) Applied {
	return Applied{Leaf: "work", File: "io.max", Wanted: bytesPerSecond, Shown: "BLOCKED",
		Why: "tmpfs has no block device, so the io controller does not see its writes"}
}
