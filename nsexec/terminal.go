package nsexec

import (
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Terminal asks for a pseudo-terminal as the program's three streams, of this
// size to begin with. The Spec's root must have a Devpts node: a terminal of the
// host's devpts could be opened again by its host name, and not by the box's own.
type Terminal struct {
	Rows uint16 `json:"rows"` // lines
	Cols uint16 `json:"cols"` // characters
}

// Terminals is how many a box may have. Without a bound of its own it could take
// all that the kernel has for boxes and containers, kernel.pty.max less a reserve
// for the host, and no limit on memory that is not the kernel's counts them.
const Terminals = "64"

// devptsOptions: pts(4). Terminals belong to whoever opens ptmx, and nobody else
// may write to one.
const devptsOptions = "newinstance,ptmxmode=0666,mode=0600,max=" + Terminals

func (c *compiler) devptsPath() string {
	for _, n := range c.spec.Root {
		if n.Kind == Devpts {
			return n.Path
		}
	}
	return ""
}

// terminal makes the pair with the workload's own id, so that the program owns
// its terminal, and makes it the session's. The master leaves by handOut.
func (c *compiler) terminal() {
	master, peer := c.word("terminal master"), c.word("terminal")
	unlock := c.prog.slot("terminal lock", 8).at(0)
	size := make([]byte, 8) // struct winsize: rows, columns, and pixels that nobody counts
	binary.NativeEndian.PutUint16(size, c.spec.Terminal.Rows)
	binary.NativeEndian.PutUint16(size[2:], c.spec.Terminal.Cols)
	c.add("open-ptmx", "of the box's own devpts, by the workload's id: what it opens belongs to it", unix.SYS_OPENAT, neg(atFDCWD), str(c.devptsPath()+"/ptmx"), imm(unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)).into(master)
	c.add("unlock-terminal", "a new terminal cannot be opened until its master says so", unix.SYS_IOCTL, load(master), imm(unix.TIOCSPTLCK), addr(unlock))
	c.add("open-terminal", "by the master and not by name, which could be another's", unix.SYS_IOCTL, load(master), imm(unix.TIOCGPTPEER), imm(unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)).into(peer)
	c.add("terminal-size", "full-screen programs ask for it first", unix.SYS_IOCTL, load(master), imm(unix.TIOCSWINSZ), bytesArg(size))
	c.add("controlling-terminal", "job control and Ctrl-C work within the box's own session", unix.SYS_IOCTL, load(peer), imm(unix.TIOCSCTTY), imm(0))
	c.add("outer:terminal", "the launcher's end gets its known number", unix.SYS_DUP3, load(master), imm(fdOuter), imm(unix.O_CLOEXEC))
	for n := range 3 {
		c.add(fmt.Sprintf("inner:terminal-%d", n), "the workload's end gets its known number", unix.SYS_DUP3, load(peer), imm(uintptr(fdInner+n)), imm(unix.O_CLOEXEC))
	}
}

// readTerminal asks whose terminal descriptor 0 is, after the ids were given up.
func (c *compiler) readTerminal(place func(name string, n int) Ref) {
	c.add("read-terminal", "shown to the launcher: the session that the terminal controls", unix.SYS_IOCTL, imm(0), imm(unix.TIOCGSID), addr(place("terminal", 8)))
}

// Resize tells the box's terminal its new size; its foreground job gets SIGWINCH.
func (b *Box) Resize(t Terminal) error {
	return setSize(b.Terminal, t)
}

func setSize(f *os.File, t Terminal) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	err2 := raw.Control(func(fd uintptr) {
		err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: t.Rows, Col: t.Cols})
	})
	if err2 != nil {
		return err2
	}
	return err
}
