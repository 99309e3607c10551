// Package provision sets up, once and as root, what an ordinary launcher cannot
// make for itself: an account of its own without further rights, a range of
// subordinate ids, slots of storage for /out that outlive it, and, where AppArmor
// keeps programs from user namespaces, the profile that lets nsbox have them.
//
// It is a table. Each step has a name, a reason, the commands that do it, the
// commands that undo it, and a check that asks the host. What nsbox provision
// prints is what --apply runs, command by command, so that an operator can read
// it, or run it by hand. A step counts as done when its check says so, before
// (then nothing is run) and after (or the step has failed).
//
// # What is whose
//
// The directory holds a record of what was made, written before each step and
// after it. A thing that is there and stands in no record is somebody else's: the
// step is refused. Undo takes the record backwards and takes nothing else, and
// not before nothing of it is in use and no slot keeps what an attempt left.
//
// # After a boot
//
// The slots are memory. Root's record of a slot names the boot and the device, so
// that a launcher does not trust a mount that merely looks right; hence entries of
// fstab or mount units would not do, and the same command is run again instead,
// by a unit where systemd is process 1 and by whatever starts the machine
// elsewhere. It makes what is missing and leaves the rest alone.
package provision
