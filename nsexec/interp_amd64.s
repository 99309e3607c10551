#include "textflag.h"

// The interpreter of a linked program. One op is 72 bytes:
//    0  header: bits 0-15 syscall number, 16-23 rule, 24-29 indirect-argument mask, 32-63 step index
//    8..48 arguments a0..a5
//   56  address that receives the raw result, or 0
//   64  rule operand: expected raw result, tolerated raw result, or address of the op to jump to
// Register use: R12 current op, R13 descriptor that failures are reported on. SYSCALL clobbers only AX, CX, R11.
// It touches no stack, no g and no TLS, so it is sound in a forked child and in a CLONE_VM child that
// shares the launcher's memory: the Go runtime cannot notice it.

// func spawn(args *cloneArgs, size, prog, errfd uintptr, all, old *uint64) (r uintptr)
// Every signal stays blocked on this thread from before clone3 until after it, so that no handler
// of the Go runtime can run in the child.
TEXT ·spawn(SB),NOSPLIT|NOFRAME,$0-56
	MOVQ $14, AX               // rt_sigprocmask
	MOVQ $2, DI                // SIG_SETMASK
	MOVQ all+32(FP), SI
	MOVQ old+40(FP), DX
	MOVQ $8, R10
	SYSCALL
	MOVQ args+0(FP), DI
	MOVQ size+8(FP), SI
	MOVQ prog+16(FP), R12
	MOVQ errfd+24(FP), R13
	MOVQ $435, AX              // clone3
	SYSCALL
	TESTQ AX, AX
	JEQ  child
	MOVQ AX, r+48(FP)
	MOVQ $14, AX
	MOVQ $2, DI
	MOVQ old+40(FP), SI
	MOVQ $0, DX
	MOVQ $8, R10
	SYSCALL
	RET
child:
	JMP ·interp(SB)

TEXT ·interp(SB),NOSPLIT|NOFRAME,$0-0
loop:
	MOVQ 0(R12), BX
	MOVQ 8(R12), DI
	MOVQ 16(R12), SI
	MOVQ 24(R12), DX
	MOVQ 32(R12), R10
	MOVQ 40(R12), R8
	MOVQ 48(R12), R9
	MOVL BX, AX
	ANDL $0xffff, AX
	CMPL AX, $0xffff           // pseudo op: report failures on a0 from here on
	JEQ  seterr
	TESTL $0x3f000000, BX
	JEQ  call
	TESTL $0x01000000, BX
	JEQ  i1
	MOVQ (DI), DI
i1:	TESTL $0x02000000, BX
	JEQ  i2
	MOVQ (SI), SI
i2:	TESTL $0x04000000, BX
	JEQ  i3
	MOVQ (DX), DX
i3:	TESTL $0x08000000, BX
	JEQ  i4
	MOVQ (R10), R10
i4:	TESTL $0x10000000, BX
	JEQ  i5
	MOVQ (R8), R8
i5:	TESTL $0x20000000, BX
	JEQ  call
	MOVQ (R9), R9
call:
	SYSCALL
	MOVQ 56(R12), BX
	TESTQ BX, BX
	JEQ  judge
	MOVQ AX, (BX)
judge:
	MOVQ 0(R12), BX
	SHRQ $16, BX
	ANDL $0xff, BX
	MOVQ 64(R12), CX
	CMPL BX, $1                // any result
	JEQ  next
	CMPL BX, $2                // exactly the operand
	JEQ  exact
	CMPL BX, $3                // no error, or exactly the operand
	JEQ  tolerate
	CMPQ AX, $0xfffffffffffff001
	JCC  fail
	CMPL BX, $4                // no error; on zero go to the operand
	JNE  next
	TESTQ AX, AX
	JNE  next
	MOVQ CX, R12
	JMP  loop
exact:
	CMPQ AX, CX
	JNE  fail
	JMP  next
tolerate:
	CMPQ AX, CX
	JEQ  next
	CMPQ AX, $0xfffffffffffff001
	JCC  fail
next:
	ADDQ $72, R12
	JMP  loop
seterr:
	MOVQ DI, R13
	JMP  next
fail:
	// Sixteen bytes: header (its upper half is the step) and raw result, then the end.
	MOVQ AX, 8(R12)
	MOVQ $1, AX                // write
	MOVQ R13, DI
	MOVQ R12, SI
	MOVQ $16, DX
	SYSCALL
	MOVQ $231, AX              // exit_group
	MOVQ $125, DI
	SYSCALL
	JMP  fail
