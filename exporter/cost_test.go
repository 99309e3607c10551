package exporter

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// costs are the parts of an examination, over one file of about 1 MiB. What is
// compared is processor time: on a machine with other work the clock says little.
type costs struct {
	place  *place
	req    Request
	bounds Bounds
	data   []byte
	buf    []byte
}

func newCosts(t testing.TB) *costs {
	row := []byte("Abilene,2000-01,72,5380000,71400,701,6.3\n")
	c := &costs{place: newPlace(t), bounds: testBounds(), data: bytes.Repeat(row, 1<<20/len(row)), buf: make([]byte, chunkBytes)}
	c.bounds.MaxRows = 1 << 20
	c.place.file("summary.csv", c.data)
	c.req = c.place.request(c.bounds)
	return c
}

// each reads the file once, as the exporter does.
func (c *costs) each(do func(chunk []byte, at int64)) {
	for at := int64(0); ; {
		n, err := pread(c.req.Names[0].FD, c.buf, at)
		c.place.check(err)
		if n == 0 {
			return
		}
		do(c.buf[:n], at)
		at += int64(n)
	}
}

func (c *costs) staging() int {
	fd, err := unix.MemfdCreate("staging", unix.MFD_CLOEXEC)
	c.place.check(err)
	defer unix.Close(fd)
	w, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_WRONLY|unix.O_CLOEXEC, 0)
	c.place.check(err)
	return w
}

func (c *costs) read() { c.each(func([]byte, int64) {}) }

func (c *costs) readHash() {
	sum := sha256.New()
	c.each(func(b []byte, _ int64) { sum.Write(b) })
}

func (c *costs) readHashWrite() {
	fd, sum := c.staging(), sha256.New()
	c.each(func(b []byte, at int64) { sum.Write(b); c.place.check(pwriteAll(fd, b, at)) })
	unix.Close(fd)
}

func (c *costs) checks() {
	checks := standardChecks(c.bounds, Rule{})
	for at := 0; at < len(c.data); at += chunkBytes {
		if f := checks.write(c.data[at:min(at+chunkBytes, len(c.data))]); f != nil {
			panic(f)
		}
	}
}

func (c *costs) examine() {
	fd := c.staging()
	if r := Examine(c.place.dir, into(c.req, fd)); r.Verdict != Accepted {
		panic(fmt.Sprintf("%+v", r))
	}
	unix.Close(fd)
}

// leastOf runs the parts in turn and returns for each the least processor time
// that this thread used.
func leastOf(rounds int, parts ...func()) []time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	used := func() time.Duration {
		var at unix.Timespec // getrusage(2) would lag behind by up to a tick
		if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &at); err != nil {
			panic(err)
		}
		return time.Duration(at.Nano())
	}
	least := make([]time.Duration, len(parts))
	for i := range least {
		least[i] = time.Hour
	}
	for range rounds {
		for i, part := range parts {
			before := used()
			part()
			least[i] = min(least[i], used()-before)
		}
	}
	return least
}

// TestExaminationCostsLittleMoreThanADigest: SHA-256 alone costs a dozen times
// what reading from the page cache does, so the measure is reading and hashing,
// which sha256sum does; the examination checks and writes besides. The bound is
// twice what was measured.
func TestExaminationCostsLittleMoreThanADigest(t *testing.T) {
	c := newCosts(t)
	least := leastOf(30, c.read, c.readHash, c.readHashWrite, c.checks, c.examine)
	ratio := func(n int) float64 { return float64(least[4]) / float64(least[n]) }
	t.Logf("read %s, and hash %s, and write %s; checks %s; examine %s: %.1f, %.2f and %.2f times the first three", least[0], least[1], least[2], least[3], least[4], ratio(0), ratio(1), ratio(2))
	if ratio(1) > 5 {
		t.Errorf("an examination costs %.2f times reading and hashing", ratio(1))
	}
}

func BenchmarkExamine(b *testing.B) {
	c := newCosts(b)
	for _, part := range []struct {
		name string
		do   func()
	}{{"read", c.read}, {"read+hash", c.readHash}, {"read+hash+write", c.readHashWrite}, {"checks", c.checks}, {"examine", c.examine}} {
		b.Run(part.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.data)))
			for b.Loop() {
				part.do()
			}
			b.ReportMetric(float64(leastOf(20, part.do)[0].Microseconds()), "cpu-us/op")
		})
	}
}
