package conformance

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"nsbox/launcher"
	"nsbox/tests/harness"
	"nsbox/tests/racer"
)

// s11 needs root: the sealed directory can be changed by nobody else.
func s11(c *Case) {
	const row = "Abilene,2000-01,72,5380000,71400,701,6.3\n"
	content := []byte(strings.Repeat(row, 19000))
	code := "put('summary.csv', b'" + strings.TrimSpace(row) + "\\n' * 19000)\nprint('ready', flush=True)\nimport time; time.sleep(0.4)\n"
	c.Control("the same file leaves when nobody swaps it", func() {
		job, folder := c.leave(code)
		c.WantDelivered(c.Do(job).WantOK(), folder, content)
	})
	if c.suite.caller.UID != 0 {
		c.Stop(Blocked, "only root can change the sealed directory, so the racer needs root")
	}
	most, rejected := 0, 0
	for round := 0; round < 25 && (most < 50 || rejected == 0); round++ {
		job, folder := c.leave(code)
		live := c.Begin(job)
		live.Await("ready\n")
		r := racer.Reach(c, live.Cmd.Process.Pid, c.canaries()[0])
		ended, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			if err := r.Become(); err != nil {
				c.Error(err)
				return
			}
			most = max(most, r.Stops(ended))
		}()
		run := c.Keep(live.Wait())
		close(ended)
		<-done
		if run.Result.Artifact.Outcome == launcher.ArtifactAccepted {
			c.WantDelivered(run, folder, content)
		} else {
			rejected++
			c.WantRejected(run, folder)
		}
		c.Absent(run, Canary, folder)
	}
	c.Note("swaps while the exporter existed", fmt.Sprintf("up to %d; %d runs rejected", most, rejected))
	if most < 50 {
		c.Stop(Inconclusive, fmt.Sprintf("only %d swaps fell into the exporter's life", most))
	}
}

// shim is the program that stands in for a taken-over exporter; it is built
// beside nsbox-verify, never into nsbox.
func (c *Case) shim() []byte {
	self, err := os.Executable()
	if err != nil {
		c.Fatal(err)
	}
	path := os.Getenv("NSBOX_VERIFY_SHIM")
	if path == "" {
		path = filepath.Join(filepath.Dir(self), "nsbox-verify-shim")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		c.Fatalf("%v: make build puts it beside nsbox-verify", err)
	}
	return data
}

func a5b(c *Case) {
	var data []byte
	var hits atomic.Int32
	var listener net.Listener
	c.Control("the shim and a listener are there", func() {
		data = c.shim()
		var err error
		if listener, err = net.Listen("tcp4", "127.0.0.1:0"); err != nil {
			c.Fatal(err)
		}
	})
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			hits.Add(1)
			conn.Close()
		}
	}()
	folder := c.Folder()
	secret, home := c.canaries()[0], c.canaries()[1]
	order := fmt.Sprintf("attempt %d %s %s %s\n", listener.Addr().(*net.TCPAddr).Port, secret, home, folder)
	c.Control("outside the box each of the four attempts succeeds", func() {
		how := c.StandIn(data, order)
		for _, what := range []string{"connect", "read-secret", "read-home", "write-host-folder"} {
			if how[what] != "ok" {
				c.Errorf("%s: %q", what, how[what])
			}
		}
		if hits.Load() != 1 {
			c.Errorf("%d connections, want 1", hits.Load())
		}
		os.Remove(folder + "/written")
	})
	c.ReplaceStage(data)
	before := harness.Fingerprint(c, secret, home, folder)
	job, deliver := c.leave("import shutil\nshutil.copyfile('/in/order', p)\n")
	job.In = []string{c.File("order", order)}
	run := c.Do(job)
	log, err := os.ReadFile(filepath.Join(c.State, "attempts", run.Result.Attempt, "exporter.log"))
	if err != nil {
		c.Fatal(err)
	}
	inside := harness.Attempted(log)
	for _, what := range []string{"connect", "read-secret", "read-home", "write-host-folder"} {
		if how := inside[what]; how == "ok" || how == "" {
			c.Errorf("%s inside: %q, want an error", what, how)
		}
		c.Note(what, inside[what])
	}
	if hits.Load() != 1 || harness.Fingerprint(c, secret, home, folder) != before {
		c.Errorf("%d connections, want the control's 1; or a file of the host changed", hits.Load())
	}
	c.unbelieved(run, deliver)
	// A report of other bytes than were staged: the launcher hashes for itself.
	lying, deliver := c.leave("put('summary.csv', b'lie-digest\\n')\n")
	c.unbelieved(c.Do(lying), deliver)
}

// unbelieved wants nothing of an exporter's word: no artifact, and the attempt
// kept for the operator, who cleans it up.
func (c *Case) unbelieved(run *harness.Run, deliver string) {
	if run.Result.Cleanup.Outcome != launcher.CleanupQuarantined {
		c.Errorf("cleanup %s, want %s", run.Result.Cleanup.Outcome, launcher.CleanupQuarantined)
	}
	c.reconcile()
	if entries, _ := os.ReadDir(deliver); len(entries) != 0 || run.Result.Artifact.Outcome == launcher.ArtifactAccepted {
		c.Errorf("artifact %+v, delivered %v", run.Result.Artifact, entries)
	}
}
