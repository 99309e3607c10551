// Package vm is the tier of tests that need a kernel, a cgroup tree and a login
// session of their own: they run in an emulated machine.
//
// run.sh boots a guest, runs a payload in it and brings the results out; the
// tests here make the payloads, boot and judge. There are two guests. The quick
// one is busybox with a suite's own libc, python3 and newuidmap on a tmpfs, under
// that suite's kernel, 6.1 or 6.12: a unified hierarchy with a subtree delegated
// to uid 1000, who has subordinate ids, seconds to boot. The systemd one is a trixie root with
// a user session for u, subordinate ids, and the whole delegation or the
// distribution's own.
//
// The pieces are made from the packages of the archive this machine's apt
// already uses, and kept outside of the repository, each under a digest of its
// recipe:
//
//	kernel.sh   kernel, modules, and the quick tier's root as a tar
//	initrd.sh   guest/init and guest/runner; starts both tiers
//	image.sh    the systemd root, an ext4 image
//
// A guest has no network. It is given three disks (root, payload, results), of
// which it can change only the last, and two serial ports: the console, and one
// for the marker. The marker holds a number drawn for this run and the exit
// statuses; a run without it has failed, whatever else came out. The guest's
// clock counts its own instructions, so that a busy host makes it no slower in its
// own eyes: budgets of processor time mean the same in every run.
//
// What a guest is for: the main job with every limit held by the kernel, for an
// ordinary user; the refusals, each forced alone by root with the same job as
// control; the AppArmor profiles that provision installs, with the refusal they
// cure; a policy confirmed by evidence that was taken there; and whole packages'
// tests, of which tests/limits is the longest and
// tests/e2e runs with nothing degraded but the storage of /out. The budgets of
// the wall are longer there than the preset's, no other number is.
//
// A guest that does not get as far as its payload is booted once more; a payload
// that fails is never run again.
//
// The tests run only where NSBOX_VM=1 says so. `make test` does and boots the
// least that shows each thing once: the quick guest under 6.1 with the refusals
// and the limits, and the systemd one with the distribution's delegation, where
// the main job, the limits and the bombs are an ordinary user's in a login
// session. `make test-vm` sets NSBOX_TEST_ALL=1 as well: the other kernel and
// delegation, the long series, and nsbox verify.
package vm
