package launcher

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// soon is far above what anything here takes, and below what a reader waits for.
const soon = 10 * time.Second

func within(t testing.TB, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(soon):
		t.Fatalf("%s does not end", what)
	}
}

// captured feeds chunks into a capture and waits for the read side.
func captured(t testing.TB, to io.Writer, limit int64, chunks ...[]byte) (*capture, chan string) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan string, 8)
	c := startCapture("stdout", r, to, limit, over)
	for _, b := range chunks {
		if _, err := w.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	within(t, "the reader", c.readDone)
	return c, over
}

func TestCaptureCountsAndCutsExactly(t *testing.T) {
	const limit = 1000
	for _, n := range []int{0, 1, limit - 1, limit, limit + 1, 3*limit + 7, 200000} {
		var live bytes.Buffer
		all := bytes.Repeat([]byte("0123456789"), n/10+1)[:n]
		c, over := captured(t, &live, limit, all)
		within(t, "the live copy", c.liveDone)
		kept := min(n, limit)
		s := c.stream()
		if s.BytesTotal != int64(n) || s.BytesKept != int64(kept) || s.Truncated != (n > limit) || s.Text != string(all[:kept]) {
			t.Errorf("%d bytes: total %d, kept %d, truncated %v", n, s.BytesTotal, s.BytesKept, s.Truncated)
		}
		if !bytes.Equal(live.Bytes(), all[:kept]) || !bytes.Equal(c.bytes(), all[:kept]) {
			t.Errorf("%d bytes: live copy has %d, exact bytes %d", n, live.Len(), len(c.bytes()))
		}
		if told := len(over); told != min(1, max(0, n-limit)) {
			t.Errorf("%d bytes: told %d times that the cap is passed", n, told)
		}
	}
}

// However the bytes arrive, the counts are exact and the event comes once.
func TestCaptureProperty(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		chunks := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 1, 300), 0, 20).Draw(rt, "chunks")
		limit := rapid.Int64Range(1, 2000).Draw(rt, "limit")
		all := bytes.Join(chunks, nil)
		var live bytes.Buffer
		c, over := captured(t, &live, limit, chunks...)
		within(t, "the live copy", c.liveDone)
		kept := all[:min(int64(len(all)), limit)]
		s := c.stream()
		switch {
		case s.BytesTotal != int64(len(all)), s.BytesKept != int64(len(kept)), s.Truncated != (len(all) > len(kept)):
			rt.Fatalf("stream %+v of %d bytes, limit %d", s, len(all), limit)
		case !bytes.Equal(c.bytes(), kept), !bytes.Equal(live.Bytes(), kept):
			rt.Fatalf("kept bytes are not the prefix")
		case !utf8.ValidString(s.Text), len(s.Text) > 4*len(kept):
			rt.Fatalf("text %q of %q", s.Text, kept)
		case utf8.Valid(kept) && s.Text != string(kept):
			rt.Fatalf("valid text is changed: %q of %q", s.Text, kept)
		case (len(over) == 1) != (len(all) > len(kept)) || len(over) > 1:
			rt.Fatalf("told %d times", len(over))
		}
	})
}

func TestTextOf(t *testing.T) {
	for _, c := range []struct {
		in   string
		cut  bool
		want string
	}{
		{"", true, ""},
		{"plain", false, "plain"},
		{"grüße €uro 😀", true, "grüße €uro 😀"},
		{"a\xf0\x9f\x98", true, "a"},                   // three of four
		{"a\xf0\x9f", true, "a"},                       // two of four
		{"a\xf0", true, "a"},                           // one of four
		{"a\xe2\x82", true, "a"},                       // two of three
		{"a\xc3", true, "a"},                           // one of two
		{"a\xc3", false, `a\xc3`},                      // the program's own half
		{"\xf0\x9f\x98", true, ""},                     // nothing else
		{"a\x80\x80\x80", true, `a\x80\x80\x80`},       // no start to drop
		{"\xff\xfea", false, `\xff\xfea`},              // never valid
		{"\xed\xa0\x80", false, `\xed\xa0\x80`},        // a surrogate
		{"\xc0\x80", true, `\xc0\x80`},                 // an overlong nul
		{"\ufffd", false, "\ufffd"},                    // the mark itself, as written
		{"a\x00\x1b[2J\r\n", true, "a\x00\x1b[2J\r\n"}, // valid; escaped where it is shown
	} {
		if got := textOf([]byte(c.in), c.cut); got != c.want {
			t.Errorf("%q, cut %v: %q, want %q", c.in, c.cut, got, c.want)
		}
	}
}

// Row B131: the cap falls into the last character.
func TestCutInsideACharacter(t *testing.T) {
	const limit = 65536
	all := strings.Repeat("a", limit-1) + "😀"
	c, _ := captured(t, io.Discard, limit, []byte(all))
	s := c.stream()
	if s.Text != strings.Repeat("a", limit-1) || s.BytesKept != limit || s.BytesTotal != limit+3 || string(c.bytes()) != all[:limit] {
		t.Errorf("kept %d of %d, text of %d bytes", s.BytesKept, s.BytesTotal, len(s.Text))
	}
}

// gate is a writer that stands still until it is opened.
type gate struct {
	open    chan struct{}
	entered chan struct{}
	once    sync.Once
	bytes.Buffer
}

func newGate() *gate { return &gate{open: make(chan struct{}), entered: make(chan struct{})} }

func (g *gate) Write(b []byte) (int, error) {
	g.once.Do(func() { close(g.entered) })
	<-g.open
	return g.Buffer.Write(b)
}

// A caller that does not read must not keep nsbox from reading: the flood is
// counted to its end while the live copy stands.
func TestABlockedLiveWriterDoesNotBlockTheReader(t *testing.T) {
	g := newGate()
	const limit, chunks = 1 << 20, 40
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan string, 8)
	c := startCapture("stderr", r, g, limit, over)
	w.Write([]byte("first"))
	within(t, "the first live write", g.entered)
	block := bytes.Repeat([]byte("x"), 128<<10)
	for range chunks {
		w.Write(block)
	}
	w.Close()
	within(t, "the reader", c.readDone)
	if name := <-over; name != "stderr" {
		t.Errorf("told of %s", name)
	}
	select {
	case <-c.liveDone:
		t.Error("the live copy is done, and its writer stands")
	default:
	}
	if s := c.stream(); s.BytesTotal != 5+chunks*int64(len(block)) || s.BytesKept != limit {
		t.Errorf("%d read, %d kept", s.BytesTotal, s.BytesKept)
	}
	close(g.open)
	within(t, "the live copy", c.liveDone)
	if !bytes.Equal(g.Bytes(), c.bytes()) {
		t.Errorf("the live copy has %d bytes of %d", g.Len(), len(c.bytes()))
	}
}

// slow takes its time and three bytes at once.
type slow struct{ bytes.Buffer }

func (s *slow) Write(b []byte) (int, error) {
	time.Sleep(time.Millisecond)
	return s.Buffer.Write(b)
}

func TestASlowLiveWriterGetsEverything(t *testing.T) {
	var s slow
	var chunks [][]byte
	for i := range 200 {
		chunks = append(chunks, bytes.Repeat([]byte{byte('a' + i%26)}, 100))
	}
	c, _ := captured(t, &s, 1<<20, chunks...)
	within(t, "the live copy", c.liveDone)
	if want := bytes.Join(chunks, nil); !bytes.Equal(s.Bytes(), want) {
		t.Errorf("%d bytes of %d", s.Len(), len(want))
	}
}

type broken struct{ writes int }

func (b *broken) Write([]byte) (int, error) { b.writes++; return 0, errors.New("closed") }

// A live writer that fails is let go of; what it missed is kept all the same.
func TestAFailingLiveWriterLosesNothing(t *testing.T) {
	b := &broken{}
	c, _ := captured(t, b, 100, []byte("one "), []byte("two"))
	within(t, "the live copy", c.liveDone)
	if s := c.stream(); s.Text != "one two" || s.BytesTotal != 7 || b.writes != 1 || !c.lost {
		t.Errorf("%+v after %d writes, lost %v", s, b.writes, c.lost)
	}
}

// Live bytes arrive while the program still runs.
func TestLiveMeansWhileItRuns(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	g := newGate()
	close(g.open)
	startCapture("stdout", r, g, 100, make(chan string, 1))
	w.Write([]byte("progress"))
	within(t, "the first live write", g.entered)
}

// An event that nobody takes blocks nothing.
func TestAFullEventChannelDoesNotBlock(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c := startCapture("stdout", r, io.Discard, 1, make(chan string))
	w.Write([]byte("more"))
	w.Close()
	within(t, "the reader", c.readDone)
	if _, err := r.Stat(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the reading end is still open: %v", err)
	}
}
