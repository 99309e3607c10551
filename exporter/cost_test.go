package exporter

import (
	"crypto/sha256"
	"fmt"
	"math"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// costs are the parts of an examination, over one file of about 1 MiB and as many
// rows as the specification lets pass. What is compared is processor time: on a machine with other work the clock says little.
type costs struct {
	place  *place
	req    Request
	bounds Bounds
	data   []byte
	buf    []byte
}

func newCosts(t testing.TB) *costs {
	b := testBounds()
	c := &costs{place: newPlace(t), bounds: b, buf: make([]byte, chunkBytes)}
	for i := range b.MaxRows {
		c.data = fmt.Appendf(c.data, "Abilene,20%02d-%d,%d,%d,71400,%d,6.3,county\n", i%25, i%12+1, i, i*i, 701+i%1000)
	}
	if len(c.data) < 1<<20*9/10 || len(c.data) > 1<<20 {
		t.Fatalf("the file has %d bytes", len(c.data))
	}
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

// TestExaminationCostsLittleMoreThanADigest: reading from the page cache alone
// costs a tenth of what SHA-256 does, and nobody receives a file without looking
// at its bytes. So reading once is reading and hashing, as the launcher and
// sha256sum do; the examination checks and writes besides, at most for as much
// again. The bound leaves room for a busy machine.
func TestExaminationCostsLittleMoreThanADigest(t *testing.T) {
	c := newCosts(t)
	const aim, bound = 2, 3
	ratio := math.Inf(1)
	for range 5 {
		least := leastOf(40, c.read, c.readHash, c.readHashWrite, c.checks, c.examine)
		ratio = min(ratio, float64(least[4])/float64(least[1]))
		t.Logf("read %s, and hash %s, and write %s; checks %s; examine %s, %.2f times reading and hashing", least[0], least[1], least[2], least[3], least[4], ratio)
		if ratio <= aim {
			break
		}
	}
	if ratio > bound {
		t.Errorf("an examination costs %.2f times reading and hashing, want %d and at most %d", ratio, aim, bound)
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
			least := leastOf(100, c.readHash, part.do)
			b.ReportMetric(float64(least[1].Microseconds()), "cpu-us/op")
			b.ReportMetric(float64(least[1])/float64(least[0]), "×read+hash")
		})
	}
}
