// Package seccompgen turns named profiles into seccomp programs.
//
// # How it works
//
// A Profile is plain data: a list of rules, each a class of system calls with one
// verdict and one reason. Compile resolves the names, lets libseccomp build the
// program and returns it as bytes; nothing is loaded into this process. The bytes
// cross into the box as data and are installed there by code that knows neither
// this package nor cgo. Because libseccomp needs milliseconds, Cached keeps each
// program in a file named by the digest of the profile's canonical text.
//
// Every profile shares these verdicts:
//
//   - a call listed as allowed reaches the kernel, which still applies
//     capabilities, Landlock, namespaces and limits to it;
//   - a call known to be dangerous fails with EPERM;
//   - every other call, also one that a newer kernel adds, fails with ENOSYS, so
//     that a C library falls back to an older one instead of giving up. clone3 is
//     here for the same reason: its flags lie behind a pointer no filter can read;
//   - a call made through another architecture's entry (int 0x80, x32) kills the
//     process: such numbers mean other calls, and nothing in a box needs them.
//
// An argument is always compared on its low 32 bits, because that is what the
// kernel reads of the int arguments concerned: a compare on 64 bits could be
// passed by setting a bit the kernel ignores. libseccomp has no "otherwise" for a
// condition, so the complement of the wanted values is written as the fewest
// masked compares that cover it (cover.go).
//
// Workload is the profile of the untrusted program. Init and Exporter are the
// profiles of nsbox's own two stages, which are Go programs: what the runtime, the
// static C library and the package inits need, descriptors they were handed, and
// one execve, since the filter is installed before that exec.
//
// # What a filter can and cannot promise
//
// It promises that a refused call's code in the kernel is not reached, from the
// instruction after its installation until the process ends, in every child.
//
// It reads registers, never memory. It cannot see paths, the flags of openat2 or
// clone3, socket addresses, or what a descriptor refers to: those are the business
// of mounts, Landlock and the empty network namespace. It is no protection against
// a fault inside an allowed call. It does not count or limit. It does not say which
// code may run: mmap and execve are allowed. A read of the vdso (time) is no call
// and is not seen. Where the kernel already refuses (mount without capability), the
// filter is the second layer, and an EPERM does not tell which of the two spoke.
//
// # Ground
//
// amd64 only; other architectures, and builds without cgo, fail to compile. This is
// the only package of the project that uses cgo.
package seccompgen
