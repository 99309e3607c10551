// Package rootfs says, as data, what the box's root consists of, and makes the
// private copy of the inputs that appears at /in.
//
// The root is a closure, not an image: the program, the ELF loader it names, the
// libraries that loader would find for it, and for a Python interpreter the
// standard library with the libraries of its extension modules. Nothing else of
// the host is in the box, so a second executable is missing instead of forbidden.
// Landlock's EXECUTE alone could not do that: the loader runs any file it may
// read.
//
//	Resolve   reads the host and returns a Closure: nodes, libraries, identities
//	Cached    the same, from a private cache that is trusted only while every
//	          file still has the identity (device, inode, size, times) it had
//	Layout    adds what nsbox itself puts in: /etc, /dev, /proc, /in, /scratch,
//	          /out; pure
//	Stage     copies and hashes the inputs; RemoveStaged ends the copy
//
// # How the closure is found
//
// Every host path is walked component by component. A symbolic link on the way
// becomes a Symlink node with the same text, a directory becomes a Dir node, so
// /lib64 -> usr/lib64 and python3 -> python3.11 exist in the box exactly as on
// the host and paths that the loader or CPython compute come out the same. A
// library is bound under the name the loader asks for; the link behind that name
// is not kept.
//
// ELF files are read by their program headers alone, as the kernel and the loader
// do; section headers may be stripped. Library search follows ld.so(8): DT_RPATH
// of the requesting object and of those that loaded it, or DT_RUNPATH of the
// requesting object, then ld.so.cache, then the default directories.
// Processor-specific variants (glibc-hwcaps) are left out on purpose: the
// baseline is always complete. LD_LIBRARY_PATH and the caller's PATH are never
// consulted. Libraries that were found through ld.so.cache or a default directory
// enter the generated ld.so.cache of the box.
//
// libgcc_s.so.1 is in no DT_NEEDED of an interpreter, but glibc loads it at the
// first pthread_exit or pthread_cancel and aborts the process without it; it is
// part of a Python closure for that reason.
//
// # Other roots
//
// Root names a directory in place of "/", with the same rules: a link in it
// leads where it would if the directory were "/". The packages installed there
// come with its interpreter, since that root is pinned; those of the host do
// not. Prepared packages stand over the directory where the interpreter looks
// for them. A root may also be taken whole: its top level is bound, but for what
// every box makes for itself.
//
// Two data directories are part of a closure though nothing names them: the
// locale C.utf8, without which setlocale fails under C.UTF-8, and for Python the
// time zones. Terminal descriptions are not: a closure has no terminal.
//
// # What the digest means
//
// Closure.Digest covers nodes, libraries and file identities, not file contents:
// hashing the 74 MB of a Debian python3 takes 0.17 s. Check compares the
// identities again and belongs right before the box is started.
//
// # Staging
//
// Sources are opened once, without following links below the argument the
// operator typed, and every statement is about that descriptor. An input that
// changes while it is read is refused, since its copy may be a state that never
// existed. The copy goes through user space because it is hashed on the way
// (64 MiB in 0.15 s); a reflink would have to be read once more for the hash.
package rootfs
