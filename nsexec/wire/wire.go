package wire

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// MaxMessage bounds a message in bytes. A longer one is an error, never cut.
const MaxMessage = 4096

// maxFDs bounds the descriptors of one message.
const maxFDs = 64

// ErrTruncated says that data or control part did not fit.
var ErrTruncated = errors.New("message truncated")

// Conn is the launcher's end. It is used by one reader at a time.
type Conn struct{ fd int }

// Pair makes a socket pair: the launcher's Conn and the raw descriptor for the
// box, both close-on-exec. The peer's number is at least min.
func Pair(min int) (*Conn, int, error) {
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, -1, fmt.Errorf("control socket: %w", err)
	}
	peer, err := unix.FcntlInt(uintptr(p[1]), unix.F_DUPFD_CLOEXEC, min)
	unix.Close(p[1])
	if err == nil {
		if err = unix.SetsockoptInt(p[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1); err == nil {
			return &Conn{p[0]}, peer, nil
		}
		unix.Close(peer)
	}
	unix.Close(p[0])
	return nil, -1, fmt.Errorf("control socket: %w", err)
}

// Packet is one received message.
type Packet struct {
	Data []byte
	PID  int // sender, in the reader's pid namespace
	FDs  []int
}

// Recv reads one message; io.EOF means that every other end is closed.
// wantFDs is the exact number of descriptors the message must carry: any other
// number is an error and all that came are closed.
func (c *Conn) Recv(buf []byte, wantFDs func(data []byte) int) (Packet, error) {
	oob := make([]byte, unix.CmsgSpace(4*maxFDs)+unix.CmsgSpace(unix.SizeofUcred))
	for {
		n, on, flags, _, err := unix.Recvmsg(c.fd, buf, oob, unix.MSG_CMSG_CLOEXEC)
		// A peer that died with an unread message is reported once, ahead of what it
		// had sent: read on.
		if err == unix.EINTR || err == unix.ECONNRESET {
			continue
		}
		if err != nil {
			return Packet{}, err
		}
		p, err := parse(buf[:n], oob[:on])
		if err == nil && flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
			err = ErrTruncated
		}
		// A zero-length packet and EOF look alike to recvmsg; nobody sends the former.
		if err == nil && n == 0 {
			err = io.EOF
		}
		if want := 0; err == nil {
			if wantFDs != nil {
				want = wantFDs(p.Data)
			}
			if len(p.FDs) != want {
				err = fmt.Errorf("message carries %d descriptors, want %d", len(p.FDs), want)
			}
		}
		if err != nil {
			for _, fd := range p.FDs {
				unix.Close(fd)
			}
			return Packet{}, err
		}
		return p, nil
	}
}

func parse(data, oob []byte) (Packet, error) {
	p := Packet{Data: data}
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return p, fmt.Errorf("control part: %w", err)
	}
	for i := range msgs {
		switch {
		case msgs[i].Header.Level == unix.SOL_SOCKET && msgs[i].Header.Type == unix.SCM_RIGHTS:
			if len(msgs[i].Data)%4 != 0 { // x/sys would read past its end
				return p, fmt.Errorf("descriptors: %d bytes", len(msgs[i].Data))
			}
			fds, err := unix.ParseUnixRights(&msgs[i])
			if err != nil {
				return p, fmt.Errorf("descriptors: %w", err)
			}
			p.FDs = append(p.FDs, fds...)
		case msgs[i].Header.Level == unix.SOL_SOCKET && msgs[i].Header.Type == unix.SCM_CREDENTIALS:
			cred, err := unix.ParseUnixCredentials(&msgs[i])
			if err != nil {
				return p, fmt.Errorf("credentials: %w", err)
			}
			p.PID = int(cred.Pid)
		default:
			return p, fmt.Errorf("unexpected control message %d/%d", msgs[i].Header.Level, msgs[i].Header.Type)
		}
	}
	return p, nil
}

// Send writes one message without descriptors.
func (c *Conn) Send(b []byte) error {
	for {
		err := unix.Send(c.fd, b, unix.MSG_NOSIGNAL)
		if err != unix.EINTR {
			return err
		}
	}
}

// HangUp makes a Recv that waits, and every later one, end once what was sent
// is read: also where somebody still holds the other end.
func (c *Conn) HangUp() error { return unix.Shutdown(c.fd, unix.SHUT_RDWR) }

// Close closes the launcher's end; for the box it is EOF.
func (c *Conn) Close() error {
	if c.fd < 0 {
		return nil
	}
	fd := c.fd
	c.fd = -1
	return unix.Close(fd)
}
