// Package wire is the launcher's end of a box's sockets: SOCK_SEQPACKET, one
// message per packet, descriptors by SCM_RIGHTS, and the sender's pid by
// SCM_CREDENTIALS so that a message counts only if it came from whom it should.
//
// A box has two sockets. control belongs to pid 1 from its first step to its
// end, go to the workload's process until its exec. They are two because two
// readers of one socket would take each other's messages. The set-up program
// cannot compute, so a message is its tag and raw words in the machine's byte
// order; the launcher reads them.
//
// Every message there is:
//
//	tag | socket  | from -> to           | bytes | descriptors | then
//	M   | control | launcher -> set-up   | 1     | 0           | the id maps are written: the set-up goes on
//	L   | control | set-up -> launcher   | 1     | 1 to 64     | only where endpoints are listed: their listening sockets
//	S   | go      | child -> launcher    | 1     | 2 to 4      | outer ends of stdout, stderr, of stdin if asked for, the held directory if any
//	R   | go      | child -> launcher    | 4096  | 0           | what the kernel says the child is now; the child waits for G or EOF
//	U   | control | init -> launcher     | 105   | 0           | pid 1 has exec'd: what the kernel says it is now
//	G   | go      | launcher -> child    | 1     | 0           | the byte that the exec lacks; then the workload's exec, which closes go
//	X   | control | init -> launcher     | 25    | 0           | the workload's wait status, cpu time in microseconds, largest RSS in KiB; then EOF
//	-   | both    | set-up -> launcher   | 16    | 0           | a step failed: header (its upper half is the step) and raw result; then EOF
//
// A failure has no tag and is known by its length, which no other message has.
// S comes before R and R before G; U comes at any time after M, and L, if at all, between the two. EOF on control
// means that the box is gone, EOF on go after G that the exec succeeded. In the
// box EOF means that the launcher is gone: the set-up's read fails, init exits.
//
// A message that is cut, carries another number of descriptors than its kind, or
// a control part of another kind is an error, and everything that came with it
// is closed. A peer that dies with an unread message is first reported as
// ECONNRESET, ahead of what it had sent; Recv reads on, or the cause of a
// failure would be lost.
package wire
