package network

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"nsbox/launcher/broker"
	"nsbox/tests/harness"
)

// mirror reads a length and that many bytes, answers with their digest and sends
// them back.
func mirror(c net.Conn) {
	var head [8]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return
	}
	var kept bytes.Buffer
	sum := sha256.New()
	if _, err := io.CopyN(io.MultiWriter(sum, &kept), c, int64(binary.BigEndian.Uint64(head[:]))); err != nil {
		return
	}
	if n, err := io.Copy(io.Discard, c); n != 0 || err != nil {
		return // the end has to come right here, as an end
	}
	c.Write(sum.Sum(nil))
	io.Copy(c, &kept)
}

// TestThroughput sends many connections and many bytes through one endpoint, each
// checked at both ends, beside the same through socat and without nsbox; the
// launcher's memory does not follow the bytes. NSBOX_TEST_ALL=1 makes it 1,000
// connections and 1 GiB.
func TestThroughput(t *testing.T) {
	connections, size := 100, 1<<18
	if harness.Whole() {
		connections, size = 1024, 1<<19 // there and back
	}
	l, s := newLab(t), harness.NewSite(t, harness.Callers(t)[0])
	l.serve(9000, mirror, literal)
	limits := harness.Add("network.connections", map[string]int{"at_once": 4, "in_total": connections, "bytes_out": connections * (size + 8), "bytes_in": connections * (size + 32), "seconds": 600, "dial_seconds": 60})
	const wall = 600
	p := open([]string{literal + ":9000"}, limits, harness.Add("network.unreachable", "per_connection"),
		harness.Set("wall_workload", wall), harness.Set("cpu_total", wall), harness.Set("cpu_per_process_rlimit", wall), harness.Set("attempt_hard_deadline", wall+40),
		harness.Change{Path: "resources.attempt_hard_deadline.scope", Value: "attempt_wide_must_be_gte_sum_" + strconv.Itoa(wall+35)})
	run := func(connections, size int) (seconds float64, peak int64, use *broker.Use) {
		in, hold, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		live := l.start(s, harness.Job{Script: "testdata/transfer.py", Args: []string{literal, "9000", strconv.Itoa(connections), strconv.Itoa(size)}, Policy: p,
			Flags: []string{"--stdin"}, Stdin: in, Within: (wall + 60) * 1e9})
		live.Await("done\n")
		peak = int64(harness.PeakMemory(live.Cmd.Process.Pid))
		hold.Close()
		r := live.Wait().WantOK()
		in.Close()
		return numbers(t, strings.Fields(string(r.Stdout))[0])["seconds"], peak, r.Result.Network
	}
	_, small, _ := run(1, 1)
	seconds, large, use := run(connections, size)
	e := use.Endpoints[0]
	if e.Connections != connections || e.Failed != 0 || e.BytesOut != int64(connections*(size+8)) || e.BytesIn != int64(connections*(size+32)) {
		t.Errorf("use %+v", e)
	}
	const flat = 32 << 20 // what a Go program may keep of garbage; far below the bytes that went through
	if small == 0 || large-small > flat {
		t.Errorf("the launcher's peak memory: %d bytes with one byte sent, %d with %d", small, large, 2*connections*size)
	}
	total := float64(2*connections*size) / (1 << 20)
	t.Logf("%d connections, %.0f MiB in %.2f s, %.0f MiB/s; peak memory of the launcher %.1f MiB, with one byte %.1f MiB", connections, total, seconds, total/seconds, float64(large)/(1<<20), float64(small)/(1<<20))
	plain := l.throughRelay(s, connections, size)
	t.Logf("the same through socat on the host: %.2f s, %.0f MiB/s; ratio %.2f", plain, total/plain, seconds/plain)
	if seconds > 20*plain {
		t.Errorf("%.1f times as long as through socat", seconds/plain)
	}
}

// throughRelay runs the same script on the host, through a relay of the
// distribution's that does nothing else: one process for each connection.
func (l *lab) throughRelay(s *harness.Site, connections, size int) float64 {
	l.t.Helper()
	const port = "9001" // of the near namespace, which nobody else is in
	var relay *exec.Cmd
	l.near.in(l.t, func() error {
		relay = exec.Command("socat", "TCP-LISTEN:"+port+",bind=127.0.0.1,fork,reuseaddr,backlog=128", "TCP:"+literal+":9000")
		relay.Stderr = os.Stderr
		return relay.Start()
	})
	l.t.Cleanup(func() {
		relay.Process.Kill()
		relay.Wait()
	})
	l.near.in(l.t, func() error {
		for { // until it listens; go test bounds what never does
			c, err := net.Dial("tcp", "127.0.0.1:"+port)
			if err == nil {
				return c.Close()
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	r := l.onHost(s, harness.Job{Script: "testdata/transfer.py", Args: []string{"127.0.0.1", port, strconv.Itoa(connections), strconv.Itoa(size)}, Within: 600 * 1e9})
	if r.Status != 0 {
		l.t.Fatalf("through the relay: status %d, %s", r.Status, r.Stderr)
	}
	return numbers(l.t, strings.Fields(string(r.Stdout))[0])["seconds"]
}
