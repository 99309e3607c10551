package nsexec

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// tiny is a program of a few steps, run by a child in no new namespace.
type tiny struct {
	compiler
	pipe [2]int // failures, and what the program itself writes
	t    *testing.T
}

func newTiny(t *testing.T) *tiny {
	p := &tiny{compiler: compiler{prog: &Program{}, stage: "test"}, t: t}
	if err := unix.Pipe2(p.pipe[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(p.pipe[0]); unix.Close(p.pipe[1]) })
	return p
}

func (p *tiny) exit(code uintptr) {
	p.add(fmt.Sprintf("exit-%d", code), "ends the test", unix.SYS_EXIT_GROUP, imm(code))
}

// run gives the exit status and everything that came through the pipe. flags
// are those of clone3.
func (p *tiny) run(flags uint64) (int, string) {
	p.t.Helper()
	im, err := p.prog.link()
	if err != nil {
		p.t.Fatal(err)
	}
	defer im.free()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	args := cloneArgs{flags: flags | unix.CLONE_CLEAR_SIGHAND, exitSignal: uint64(unix.SIGCHLD)}
	all, old := ^uint64(0), uint64(0)
	r := spawn(&args, cloneArgsSize, im.base(), uintptr(p.pipe[1]), &all, &old)
	if int64(r) < 0 {
		p.t.Fatalf("clone3: %v", unix.Errno(-int64(r)))
	}
	ws := waitPID(int(r))
	if !ws.Exited() {
		p.t.Fatalf("the program ended with wait status %#x", uint32(ws))
	}
	buf := make([]byte, 4096)
	n, err := unix.Read(p.pipe[0], buf)
	if err == unix.EAGAIN {
		n = 0
	} else if err != nil {
		p.t.Fatal(err)
	}
	return ws.ExitStatus(), string(buf[:n])
}

// message is what the interpreter sends when the step of that index fails.
func message(t *testing.T, got string) (step int, result int64) {
	t.Helper()
	if len(got) != 16 {
		t.Fatalf("the failure message is %q", got)
	}
	return int(binary.NativeEndian.Uint32([]byte(got[4:8]))), int64(binary.NativeEndian.Uint64([]byte(got[8:])))
}

// modes are the two ways a box is cloned: a copy of our memory, and our memory.
func modes(t *testing.T, f func(t *testing.T, flags uint64)) {
	t.Run("fork", func(t *testing.T) { f(t, 0) })
	t.Run("shared", func(t *testing.T) { f(t, unix.CLONE_VM) })
}

func TestRules(t *testing.T) {
	ebadf := -int64(unix.EBADF)
	fails := func(s *Step) { s.Nr, s.Args = unix.SYS_CLOSE, []Arg{neg(-1)} } // -EBADF
	zero := func(s *Step) { s.Nr, s.Args = unix.SYS_UMASK, []Arg{imm(0)} }   // 0 the second time
	rows := []struct {
		name   string
		call   func(*Step)
		rule   Rule
		want   int64
		exit   int // 7: went on; 8: jumped; 125: failed
		result int64
	}{
		{"no error, a value", zero, NoError, 0, 7, 0},
		{"no error, an errno", fails, NoError, 0, 125, ebadf},
		{"no error, an errno that is the operand", fails, NoError, ebadf, 125, ebadf},
		{"any, a value", zero, Any, 0, 7, 0},
		{"any, an errno", fails, Any, 0, 7, 0},
		{"exactly, that value", zero, Exactly, 0, 7, 0},
		{"exactly, another value", zero, Exactly, 1, 125, 0},
		{"exactly, that errno", fails, Exactly, ebadf, 7, 0},
		{"exactly, another errno", fails, Exactly, -int64(unix.EPERM), 125, ebadf},
		{"exactly an errno, but it succeeds", zero, Exactly, ebadf, 125, 0},
		{"exactly in all 64 bits", zero, Exactly, 1 << 32, 125, 0},
		{"tolerate, a value", zero, Tolerate, ebadf, 7, 0},
		{"tolerate, that errno", fails, Tolerate, ebadf, 7, 0},
		{"tolerate, another errno", fails, Tolerate, -int64(unix.ENOENT), 125, ebadf},
		{"branch, zero", zero, Branch, 0, 8, 0},
		{"branch, an errno", fails, Branch, 0, 125, ebadf},
		{"branch, a value", func(s *Step) { s.Nr = unix.SYS_GETPID }, Branch, 0, 7, 0},
	}
	modes(t, func(t *testing.T, flags uint64) {
		for _, r := range rows {
			p := newTiny(t)
			p.add("first", "umask is known from here on", unix.SYS_UMASK, imm(0))
			s := p.add("judged", "the row", 0)
			r.call(s)
			s.Rule, s.Want, s.To = r.rule, r.want, "exit-8"
			p.exit(7)
			p.exit(8)
			code, got := p.run(flags)
			if code != r.exit {
				t.Errorf("%s: exit %d, want %d", r.name, code, r.exit)
			}
			if r.exit != 125 {
				if got != "" {
					t.Errorf("%s: a message %q", r.name, got)
				}
				continue
			}
			if step, result := message(t, got); step != 1 || result != r.result {
				t.Errorf("%s: reports step %d with %d, want 1 with %d", r.name, step, result, r.result)
			}
		}
	})
}

// A page of a file is mapped by a call of six arguments, each in turn taken
// from memory, and shown; any wrong one would show something else.
func TestIndirectArguments(t *testing.T) {
	path := t.TempDir() + "/pages"
	if err := os.WriteFile(path, []byte(strings.Repeat("first...", 512)+strings.Repeat("second..", 512)), 0o600); err != nil {
		t.Fatal(err)
	}
	const at = 0x10000000
	modes(t, func(t *testing.T, flags uint64) {
		for mask := range 1 << 6 {
			p := newTiny(t)
			fd := p.word("fd")
			p.add("open", "six arguments need a descriptor", unix.SYS_OPENAT, neg(atFDCWD), str(path), imm(unix.O_RDONLY|unix.O_CLOEXEC)).into(fd)
			values := []uint64{at, 4096, unix.PROT_READ, unix.MAP_PRIVATE | unix.MAP_FIXED_NOREPLACE, 0, 4096}
			var args []Arg
			for i, v := range values {
				if i == 4 {
					args = append(args, load(fd)) // its number is not known before
					continue
				}
				if mask&(1<<i) == 0 {
					args = append(args, imm(uintptr(v)))
					continue
				}
				w := p.word(fmt.Sprint("value ", i))
				binary.NativeEndian.PutUint64(w.Slot.Init, v)
				args = append(args, load(w))
			}
			p.add("map", "all six at once", unix.SYS_MMAP, args...).exactly(at)
			out := imm(uintptr(p.pipe[1]))
			p.add("show", "to the test", unix.SYS_WRITE, out, imm(at), imm(8)).exactly(8)
			// A child that shares our memory must leave it as it was.
			p.add("unmap", "the next round maps it again", unix.SYS_MUNMAP, imm(at), imm(4096))
			p.add("close", "nothing is left", unix.SYS_CLOSE, load(fd))
			p.exit(7)
			if code, got := p.run(flags); code != 7 || got != "second.." {
				t.Fatalf("indirect %06b: exit %d, shown %q", mask, code, got)
			}
		}
	})
}

func TestResultsAreStored(t *testing.T) {
	modes(t, func(t *testing.T, flags uint64) {
		p := newTiny(t)
		pid, failed := p.word("pid"), p.word("failed")
		p.add("who", "stored", unix.SYS_GETPID).into(pid)
		p.add("fail", "a failure is stored too", unix.SYS_CLOSE, neg(-1)).into(failed).anyResult()
		p.add("use", "loaded again", unix.SYS_KILL, load(pid), imm(0))
		p.add("show-pid", "to the test", unix.SYS_WRITE, imm(uintptr(p.pipe[1])), addr(pid), imm(8)).exactly(8)
		p.add("show-failed", "to the test", unix.SYS_WRITE, imm(uintptr(p.pipe[1])), addr(failed), imm(8)).exactly(8)
		p.exit(7)
		code, got := p.run(flags)
		if code != 7 || len(got) != 16 {
			t.Fatalf("exit %d, shown %q", code, got)
		}
		if v := int64(binary.NativeEndian.Uint64([]byte(got))); v <= 1 || v == int64(os.Getpid()) {
			t.Errorf("stored pid %d", v)
		}
		if v := int64(binary.NativeEndian.Uint64([]byte(got[8:]))); v != -int64(unix.EBADF) {
			t.Errorf("stored failure %d", v)
		}
	})
}

// A failing step that stores its result has stored it before the end.
func TestReportSwitch(t *testing.T) {
	modes(t, func(t *testing.T, flags uint64) {
		p, other := newTiny(t), newTiny(t)
		p.reportOn("report-elsewhere", "the switch under test", uintptr(other.pipe[1]))
		p.add("fail", "reported on the second pipe", unix.SYS_CLOSE, neg(-1))
		p.exit(7)
		code, got := p.run(flags)
		buf := make([]byte, 99)
		n, err := unix.Read(other.pipe[0], buf)
		if code != 125 || got != "" || err != nil {
			t.Fatalf("exit %d, first pipe %q, second %v", code, got, err)
		}
		if step, result := message(t, string(buf[:n])); step != 1 || result != -int64(unix.EBADF) {
			t.Errorf("step %d, result %d", step, result)
		}
		// Nobody to tell: the program ends all the same.
		p = newTiny(t)
		p.reportOn("report-nowhere", "a closed descriptor", 1<<20)
		p.add("fail", "cannot be reported", unix.SYS_CLOSE, neg(-1))
		p.exit(7)
		if code, _ := p.run(flags); code != 125 {
			t.Errorf("exit %d without a descriptor to report on", code)
		}
	})
}

// A program that forgets its exec must not run on into its own data.
func TestEndOfProgram(t *testing.T) {
	modes(t, func(t *testing.T, flags uint64) {
		p := newTiny(t)
		trap := p.prog.slot("looks like an op", opSize)
		binary.NativeEndian.PutUint64(trap.Init, unix.SYS_EXIT_GROUP)
		binary.NativeEndian.PutUint64(trap.Init[8:], 42)
		p.add("last", "nothing follows", unix.SYS_GETPID)
		code, got := p.run(flags)
		if code != 125 {
			t.Fatalf("exit %d: the program's data was run", code)
		}
		if step, _ := message(t, got); step != 1 {
			t.Errorf("reports step %d, want the one past the last", step)
		}
	})
}

// The parent gets its signal mask back, whatever becomes of the child.
func TestSpawnRestoresTheMask(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, after unix.Sigset_t
	mask := func(s *unix.Sigset_t) {
		if err := unix.PthreadSigmask(unix.SIG_BLOCK, nil, s); err != nil {
			t.Fatal(err)
		}
	}
	mask(&before)
	p := newTiny(t)
	p.exit(7)
	p.run(0)
	mask(&after)
	if before != after {
		t.Errorf("mask before %x, after %x", before.Val, after.Val)
	}
	args := cloneArgs{flags: unix.CLONE_NEWUSER | unix.CLONE_FS} // EINVAL
	all, old := ^uint64(0), uint64(0)
	if r := int64(spawn(&args, cloneArgsSize, 0, 2, &all, &old)); r != -int64(unix.EINVAL) {
		t.Fatalf("clone3 says %d", r)
	}
	mask(&after)
	if before != after {
		t.Errorf("after a failed clone: mask before %x, after %x", before.Val, after.Val)
	}
}
