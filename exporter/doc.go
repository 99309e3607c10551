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
//	4…  staging files, write-only and empty, made by the launcher: one for each
//	    file that may leave ([Bounds.Slots]); numbers as in the [Request]
//	…   one per allowed name that could be opened, without following links
//
// The examination has three parts. The survey lists descriptor 3 and stats each
// entry without following it: an entry that is not a single-linked regular file
// of the workload under an allowed name is a finding, and any finding rejects
// everything. The copy reads each remaining file once, from its descriptor,
// through a pipeline of small stream checkers, a SHA-256 and its staging file,
// in fixed memory whatever the size. The recheck compares files, names and
// directory with what the survey saw. After a rejection all staging files are
// empty, so that no byte of a rejected export is left.
//
// What is checked is what is copied: both come from one read. The recheck finds
// that something moved, but a file system whose times are as coarse as a tick
// can hide a change within one; even then the copy is one that passed.
//
// Each name has a type. csv is checked as RFC 4180 records, text as lines, json
// as one value, binary for its first bytes only. Magic numbers of archives,
// compressed data and programs are refused for all of them, and nothing is ever
// unpacked or parsed further. Under [FormulaReject] a CSV cell that a
// spreadsheet would evaluate is refused too.
//
// EMPTY means that /out has no entry at all. A file of zero bytes is a file and
// is accepted if its name is, except as json.
//
// Names and contents are the workload's: names are reported in escaped ASCII,
// contents never. The launcher believes neither the report nor the copy: it
// reads the line with [DecodeReport] and hashes the staged bytes again.
//
// The system calls used after start are fstat, newfstatat, fcntl, lseek,
// getdents64, pread64, pwrite64, ftruncate, fsync and write.
//
// [Check] runs the same examination by hand, outside any box and without a copy,
// for a person who wants to know why.
package exporter
