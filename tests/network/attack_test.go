package network

import (
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"nsbox/launcher"
	"nsbox/tests/harness"
)

// TestNoHandles: the program has no hold on the listening sockets or on nsbox, and
// no form of connect gets past the namespace.
func TestNoHandles(t *testing.T) {
	forEach(t, func(t *testing.T, l *lab, s *harness.Site) {
		l.serve(80, page("hit"), neighbour)
		l.serve(8443, page("endpoint"), named)
		p := open([]string{name + ":8443", "192.0.2.12:80"}, harness.Add("network.destination_rules", []any{rule(name+":8443", named)}), harness.Add("network.unreachable", "per_connection"))
		j := harness.Job{Script: "testdata/handles.py", Args: []string{"127.64.0.1", "8443"}, Policy: p}
		report := l.run(s, j).WantOK().Report()
		for attempt, want := range map[string]string{
			"sockets among the streams": "ok 0", "descriptors beyond": "ok False", "bind": "EACCES", "bind beside": "EACCES",
			"descriptors of init": "ENOENT", "take from init": "EPERM", "fast open": "ENETUNREACH", "mapped": "ENETUNREACH",
		} {
			if report[attempt] != want {
				t.Errorf("%s: %s, want %s", attempt, report[attempt], want)
			}
		}
		if n := l.deniedHits(); n != 0 {
			t.Errorf("%d hits: %v", n, l.hits)
		}
		// The control: on the host the same calls arrive.
		report = l.onHost(s, j).Report()
		if report["fast open"] == "" || report["mapped"] != "ok" || l.count(neighbour) < 2 || report["bind"] != "ok" {
			t.Errorf("control: on the host %v, %v", report, l.hits)
		}
	})
}

// TestStorm floods, resets, starves and gluts the endpoints until the time is up:
// the time is kept, nsbox's memory stays flat, and everything is cleaned up.
func TestStorm(t *testing.T) {
	callers := harness.Callers(t)
	l, s := newLab(t), harness.NewSite(t, callers[len(callers)-1])
	const first, attackers = 9001, 5
	endless := func(c net.Conn) {
		block := make([]byte, 1<<16)
		for {
			if _, err := c.Write(block); err != nil {
				return
			}
		}
	}
	var list, ports []string
	for n, handle := range []func(net.Conn){func(c net.Conn) { io.Copy(io.Discard, c) }, func(c net.Conn) {}, func(c net.Conn) { io.Copy(c, c) }, endless, func(c net.Conn) { io.Copy(c, c) }} {
		port := strconv.Itoa(first + n)
		l.serve(first+n, handle, literal)
		list, ports = append(list, literal+":"+port), append(ports, port)
	}
	// Both runs have the same limit; the first one only sleeps.
	const wall = 6
	p := open(list, harness.Add("network.connections", map[string]int{"at_once": 64, "in_total": 1 << 20, "bytes_out": 1 << 40, "bytes_in": 1 << 40, "seconds": 600, "dial_seconds": 60}),
		harness.Set("wall_workload", wall))
	run := func(args ...string) (r *harness.Run, peak int64) {
		j := harness.Job{Script: "testdata/storm.py", Args: append([]string{literal}, args...), Policy: p, Flags: []string{"--limit", "network.at_once=32"}, Within: 3 * time.Minute}
		live := l.start(s, j)
		over := make(chan struct{})
		seen := make(chan int64)
		go func() {
			most := int64(0)
			for {
				most = max(most, harness.PeakMemory(live.Cmd.Process.Pid))
				select {
				case <-over:
					seen <- most
					return
				case <-time.After(20 * time.Millisecond):
				}
			}
		}()
		r = live.Wait()
		close(over)
		r.Want(launcher.TimeoutWall, launcher.ExitLimit)
		if c := r.Result.Cleanup; c.Outcome != launcher.CleanupVerified {
			t.Errorf("cleanup %s, left over: %q", c.Outcome, c.Leftover)
		}
		return r, <-seen
	}
	calm, small := run()
	storm, large := run(ports...)
	total, reached := 0, 0
	for _, e := range storm.Result.Network.Endpoints {
		total += e.Connections
		if e.Connections > 0 {
			reached++
		}
	}
	hits := l.count(literal)
	over, plain := storm.Result.Resources.WallOvershoot, calm.Result.Resources.WallOvershoot
	t.Logf("%d connections at %d of %d endpoints, %d arrived; peak memory of the launcher %.1f MiB, calm %.1f MiB; %.0f ms beyond the limit, calm %.0f ms", total, reached, attackers, hits, float64(large)/(1<<20), float64(small)/(1<<20), over, plain)
	// One hit of each endpoint is nsbox's own, before the start.
	if reached != attackers || hits <= 2*attackers {
		t.Errorf("control: no storm: %+v", storm.Result.Network.Endpoints)
	}
	const flat = 32 << 20 // what a Go program may keep of garbage, and the buffers of 32 connections
	if small == 0 || large-small > flat {
		t.Errorf("the launcher's memory grew from %d to %d bytes", small, large)
	}
	if n := len(storm.Result.Network.Connections); n > 64 || n+storm.Result.Network.Omitted != total {
		t.Errorf("%d connections told, %d omitted, of %d", n, storm.Result.Network.Omitted, total)
	}
	const patience = 20_000 // ms; a monitor that is starved never comes
	if over > plain+patience {
		t.Errorf("the wall limit came %.0f ms late; without a storm %.0f ms", over, plain)
	}
	if !strings.Contains(string(storm.Stderr), "TIMEOUT_WALL") {
		t.Errorf("told: %s", storm.Stderr)
	}
}
