package launcher

import (
	"io"
	"os"
	"strings"
	"sync"
	"unicode/utf8"
)

// capture reads one stream of the workload: it counts every byte, keeps at most
// limit of them, and copies the kept ones live. Reading never waits for the
// live copy, so a reader that stands still cannot hold up the monitor.
//
// An endless one copies every byte live and is never over. A reader that stands
// still then holds up the program, as any pipe would, until the box has ended;
// one that went away ends the stream.
type capture struct {
	endless bool
	ahead   []byte // of an endless stream: read and not yet written on
	gone    bool   // the box has ended: what is left is a pipe's content, and fits
	limit   int64
	over    chan<- string // told once when the limit is passed
	name    string

	mu    sync.Mutex
	more  sync.Cond
	kept  []byte
	total int64
	ended bool
	lost  bool // the live copy failed; the rest is kept only

	readDone chan struct{}
	liveDone chan struct{}
}

func startCapture(name string, from *os.File, to io.Writer, limit int64, over chan<- string) *capture {
	return newCapture(name, limit, over, false).start(from, to)
}

func newCapture(name string, limit int64, over chan<- string, endless bool) *capture {
	c := &capture{endless: endless, name: name, limit: limit, over: over, readDone: make(chan struct{}), liveDone: make(chan struct{})}
	c.more.L = &c.mu
	return c
}

// start reads from; nil is a stream that the box does not have.
func (c *capture) start(from *os.File, to io.Writer) *capture {
	if from == nil {
		c.ended = true
		close(c.readDone)
		close(c.liveDone)
		return c
	}
	go c.read(from)
	if c.endless {
		go c.onward(from, to)
	} else {
		go c.live(to)
	}
	return c
}

// maxAhead bounds what is read of an endless stream before it is written on, in bytes.
const maxAhead = 256 << 10

// ending says that the box has ended, so that reading need no longer wait.
func (c *capture) ending() {
	c.mu.Lock()
	c.gone = true
	c.more.Broadcast()
	c.mu.Unlock()
}

// onward writes an endless stream on. The program is told by a closed stream
// that nobody reads any more.
func (c *capture) onward(from *os.File, to io.Writer) {
	defer close(c.liveDone)
	for {
		c.mu.Lock()
		for len(c.ahead) == 0 && !c.ended {
			c.more.Wait()
		}
		next := c.ahead
		c.ahead = nil
		c.more.Broadcast()
		c.mu.Unlock()
		if len(next) == 0 {
			return
		}
		if _, err := to.Write(next); err != nil {
			c.mu.Lock()
			c.lost = true
			c.more.Broadcast()
			c.mu.Unlock()
			from.Close()
			return
		}
	}
}

func (c *capture) read(from *os.File) {
	defer close(c.readDone)
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		c.mu.Lock()
		before := c.total
		c.total += int64(n)
		if room := c.limit - int64(len(c.kept)); room > 0 && n > 0 {
			c.kept = append(c.kept, buf[:min(int64(n), room)]...)
		}
		if c.endless && !c.lost && n > 0 {
			c.ahead = append(c.ahead, buf[:n]...)
			c.more.Broadcast()
			for len(c.ahead) > maxAhead && !c.gone && !c.lost {
				c.more.Wait()
			}
		}
		passed := !c.endless && before <= c.limit && c.total > c.limit
		c.ended = err != nil
		c.more.Broadcast()
		c.mu.Unlock()
		if passed {
			select {
			case c.over <- c.name:
			default:
			}
		}
		if err != nil {
			from.Close()
			return
		}
	}
}

// live writes the kept bytes on as they come. What is kept is bounded, so is
// what a slow reader can make us hold.
func (c *capture) live(to io.Writer) {
	defer close(c.liveDone)
	at := 0
	for {
		c.mu.Lock()
		for at == len(c.kept) && !c.ended {
			c.more.Wait()
		}
		next := c.kept[at:len(c.kept):len(c.kept)]
		c.mu.Unlock()
		if len(next) == 0 {
			return
		}
		if _, err := to.Write(next); err != nil {
			c.mu.Lock()
			c.lost = true
			c.mu.Unlock()
			return
		}
		at += len(next)
	}
}

// stream renders what was captured; call after readDone.
func (c *capture) stream() Stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Stream{BytesTotal: c.total, BytesKept: int64(len(c.kept)), Truncated: c.total > int64(len(c.kept)), LiveWhole: c.endless, LiveLost: c.lost, Text: textOf(c.kept, c.total > int64(len(c.kept)))}
}

func (c *capture) bytes() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kept
}

// textOf is valid UTF-8 and no longer than b where b is; the worst case is four
// bytes for one. Where the stream was cut, a character that the cut split is
// dropped; other invalid bytes are written as \xNN.
func textOf(b []byte, cut bool) string {
	if cut {
		for i := 1; i <= min(utf8.UTFMax-1, len(b)); i++ {
			if tail := b[len(b)-i:]; utf8.RuneStart(tail[0]) {
				if !utf8.FullRune(tail) {
					b = b[:len(b)-i]
				}
				break
			}
		}
	}
	if utf8.Valid(b) {
		return string(b)
	}
	const hex = "0123456789abcdef"
	var out strings.Builder
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			out.WriteString(`\x`)
			out.WriteByte(hex[b[0]>>4])
			out.WriteByte(hex[b[0]&15])
		} else {
			out.Write(b[:n])
		}
		b = b[n:]
	}
	return out.String()
}
