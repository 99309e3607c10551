package broker

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// bufferSize is what one direction of one connection holds, in bytes.
const bufferSize = 64 << 10

// carry copies both ways until both directions have ended, or the first error,
// which resets both sides. It returns what was written to each side.
func (b *Broker) carry(inside, outside *net.TCPConn, until time.Time) (out, in int64, end End) {
	inside.SetDeadline(until)
	outside.SetDeadline(until)
	var once sync.Once
	end = Closed
	fail := func(why End) {
		once.Do(func() {
			end = why
			reset(inside)
			reset(outside)
		})
	}
	stop := context.AfterFunc(b.ctx, func() { fail(Stopped) })
	var both sync.WaitGroup
	both.Go(func() {
		n, why := b.half(outside, inside, &b.out, OutLimit, ResetInside, ResetOutside)
		out = n
		if why != Closed {
			fail(why)
		}
	})
	n, why := b.half(inside, outside, &b.in, InLimit, ResetOutside, ResetInside)
	in = n
	if why != Closed {
		fail(why)
	}
	both.Wait()
	stop()
	once.Do(func() { // whoever came first has ended it; from here on nobody changes end
		inside.Close()
		outside.Close()
	})
	return out, in, end
}

// half copies one direction and passes its end on. allowance is shared by all
// connections, and what it does not cover is not written.
func (b *Broker) half(to, from *net.TCPConn, allowance *atomic.Int64, limit, readFault, writeFault End) (total int64, end End) {
	buffer := b.buffers.Get().(*[bufferSize]byte)
	defer b.buffers.Put(buffer)
	for {
		n, err := from.Read(buffer[:])
		if n > 0 {
			granted := grant(allowance, int64(n))
			w, werr := to.Write(buffer[:granted])
			total += int64(w)
			switch {
			case werr != nil:
				return total, cause(werr, writeFault)
			case granted < int64(n):
				return total, limit
			}
		}
		if errors.Is(err, io.EOF) {
			if err := to.CloseWrite(); err != nil {
				return total, cause(err, writeFault)
			}
			return total, Closed
		}
		if err != nil {
			return total, cause(err, readFault)
		}
	}
}

// grant takes up to n from what is left.
func grant(allowance *atomic.Int64, n int64) int64 {
	for {
		left := allowance.Load()
		take := min(n, left)
		if allowance.CompareAndSwap(left, left-take) {
			return take
		}
	}
}

func cause(err error, fault End) End {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return TimeLimit
	}
	return fault
}

// reset closes with a TCP reset, so that the other end does not take it for an
// orderly end.
func reset(c *net.TCPConn) {
	c.SetLinger(0)
	c.Close()
}

// isTemporary says of a failed accept that the next one may succeed.
func isTemporary(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
