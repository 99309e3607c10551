// Package exporter decides whether what a workload left in /out may leave the
// box, and copies it while deciding. Nothing else of nsbox looks below /out.
//
// The launcher builds one more box, like the workload's, and runs nsbox's own
// binary in it under the name [StageName] with uid 20002, no capabilities, no
// network and an empty file system. [Run] is that program. Paths mean nothing
// there; it works on the descriptors the set-up left open:
//
//	0   /dev/null
//	1   a pipe; exactly one line, a JSON [Report]
//	2   a log pipe; nothing is written to it unless the runtime itself dies
//	3   the sealed /out, a directory opened for reading
//	4   the staging file, write-only and empty, made by the launcher
//	5…  one per allowed name that could be opened, without following links
//
// The examination has three parts. The survey lists descriptor 3 and stats each
// entry without following it: an entry that is not a single-linked regular file
// of the workload under an allowed name is a finding, and any finding rejects
// everything. The copy reads the one remaining file once, from its descriptor,
// through a pipeline of small stream checkers, a SHA-256 and the staging file,
// in fixed memory whatever the size. The recheck compares file, name and
// directory with what the survey saw. After a rejection the staging file is
// empty, so that no byte of a rejected file is left.
//
// EMPTY means that /out has no entry at all. A file of zero bytes is a file and
// is accepted if its name is.
//
// Names and contents are the workload's: names are reported in escaped ASCII,
// contents never. The launcher believes neither the report nor the copy: it
// reads the line with [DecodeReport] and hashes the staged bytes again.
//
// The system calls used after start are fstat, newfstatat, fcntl, lseek,
// getdents64, pread64, pwrite64, ftruncate, fsync and write.
//
// A structural CSV check (balanced quotes, equal field counts) will be one more
// checker in standardChecks; until then a row is a line.
package exporter
