package broker

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// The program's end is passed on as a half-close: the server answers afterwards.
func TestHalfClose(t *testing.T) {
	b := start(t, wide(), server(t, func(c *net.TCPConn) {
		data, err := io.ReadAll(c)
		fmt.Fprintf(c, "%d %v", len(data), err)
	}))
	c := b.connect()
	payload := make([]byte, 3<<20+7)
	if _, err := c.Write(payload); err != nil {
		t.Fatal(err)
	}
	c.CloseWrite()
	answer, err := io.ReadAll(c)
	if want := fmt.Sprintf("%d <nil>", len(payload)); err != nil || string(answer) != want {
		t.Errorf("answer %q, %v; want %q", answer, err, want)
	}
	e := b.event()
	if e.End != Closed || e.BytesOut != int64(len(payload)) || e.BytesIn != int64(len(answer)) || e.Address == "" {
		t.Errorf("event %+v", e)
	}
	// And the other way round: the server has ended, the program still writes.
	got := make(chan int64, 1)
	b = start(t, wide(), server(t, func(c *net.TCPConn) {
		c.Write([]byte("bye"))
		c.CloseWrite()
		n, _ := io.Copy(io.Discard, c)
		got <- n
	}))
	c = b.connect()
	if answer, err := io.ReadAll(c); err != nil || string(answer) != "bye" {
		t.Errorf("answer %q, %v", answer, err)
	}
	c.Write(payload)
	c.Close()
	if n := <-got; n != int64(len(payload)) {
		t.Errorf("%d bytes after the server's end, want %d", n, len(payload))
	}
	if e := b.event(); e.End != Closed {
		t.Errorf("event %+v", e)
	}
}

// A reset on one side is one on the other, never an orderly end.
func TestResets(t *testing.T) {
	seen := make(chan error, 1)
	b := start(t, wide(), server(t, func(c *net.TCPConn) {
		c.Write([]byte("x"))
		_, err := io.ReadAll(c)
		seen <- err
	}))
	c := b.connect()
	io.ReadFull(c, make([]byte, 1)) // it is connected through
	c.SetLinger(0)
	c.Close()
	if err := <-seen; !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the server saw %v", err)
	}
	if e := b.event(); e.End != ResetInside {
		t.Errorf("event %+v", e)
	}
	b = start(t, wide(), server(t, func(c *net.TCPConn) {
		io.ReadFull(c, make([]byte, 1))
		c.SetLinger(0)
	}))
	c = b.connect()
	c.Write([]byte("x"))
	if _, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the program saw %v", err)
	}
	if e := b.event(); e.End != ResetOutside {
		t.Errorf("event %+v", e)
	}
}

// A server that does not read stops the program; what is on the way is bounded,
// and nothing of it is lost.
func TestBackPressure(t *testing.T) {
	const total = 64 << 20
	read := make(chan struct{})
	sum := make(chan [32]byte, 1)
	b := start(t, wide(), server(t, func(c *net.TCPConn) {
		<-read
		h := sha256.New()
		io.Copy(h, c)
		sum <- [32]byte(h.Sum(nil))
	}))
	c := b.connect()
	h := sha256.New()
	wrote := make(chan error, 1)
	var sent atomic.Int64
	go func() {
		r := rand.NewChaCha8([32]byte{1})
		chunk := make([]byte, 1<<16)
		for range total / len(chunk) {
			r.Read(chunk)
			h.Write(chunk)
			n, err := c.Write(chunk)
			sent.Add(int64(n))
			if err != nil {
				wrote <- err
				return
			}
		}
		wrote <- c.CloseWrite()
	}()
	// It comes to a stand by itself: two readings a moment apart that are equal.
	for last := int64(-1); ; time.Sleep(200 * time.Millisecond) {
		now := sent.Load()
		if now == last && now > 0 {
			break
		}
		last = now
	}
	if sent.Load() >= total {
		t.Errorf("all %d bytes were taken though nobody reads", sent.Load())
	}
	close(read)
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
	if got := <-sum; got != [32]byte(h.Sum(nil)) {
		t.Error("what arrived is not what was sent")
	}
}

// The caps hold to the byte, over all connections.
func TestByteCaps(t *testing.T) {
	got := make(chan []byte, 2)
	l := wide()
	l.BytesOut = 100_001
	b := start(t, l, server(t, func(c *net.TCPConn) {
		var all bytes.Buffer
		io.Copy(&all, c)
		got <- all.Bytes()
	}))
	c := b.connect()
	c.Write(make([]byte, 100_000))
	c.CloseWrite()
	io.ReadAll(c)
	c = b.connect()
	c.Write([]byte("ab"))
	if _, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("past the cap the program saw %v", err)
	}
	if n := len(<-got) + len(<-got); n > 100_001 {
		t.Errorf("%d bytes arrived, the cap is 100001", n)
	}
	b.event()
	if e := b.event(); e.End != OutLimit || e.BytesOut != 1 {
		t.Errorf("event %+v", e)
	}
	l = wide()
	l.BytesIn = 1000
	b = start(t, l, server(t, func(c *net.TCPConn) {
		c.Write(make([]byte, 1000))
		io.ReadFull(c, make([]byte, 1))
		c.Write([]byte("y"))
		io.ReadAll(c)
	}))
	c = b.connect()
	if _, err := io.ReadFull(c, make([]byte, 1000)); err != nil {
		t.Error(err)
	}
	c.Write([]byte("x"))
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("%d bytes past the cap, %v", n, err)
	}
	if e := b.event(); e.End != InLimit || e.BytesIn != 1000 {
		t.Errorf("event %+v", e)
	}
}
