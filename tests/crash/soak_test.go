package crash

import (
	"bytes"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"nsbox/launcher"
)

// times is how often something is repeated: n with -long, over all its parts.
func times(few, n int) int {
	if *long {
		_, of := parts()
		return n / of
	}
	return few
}

// listing is what stands in the state directory beside the attempts' records
// and the audit log, which grow by one each.
func (b *bench) listing() []string {
	b.t.Helper()
	var found []string
	err := filepath.WalkDir(b.state, func(p string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(b.state, p)
		dir, name := filepath.Split(rel)
		record := strings.HasPrefix(dir, "attempts/") && (isRecord[name] || strings.HasPrefix(name, "journal.torn-"))
		if err == nil && !record && filepath.Clean(dir) != "attempts" {
			found = append(found, rel)
		}
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return found
}

// isRecord is what an attempt may leave once it is closed.
var isRecord = map[string]bool{"journal": true, "nonce": true, "stdout": true, "stderr": true, "result.json": true, "exporter.log": true, "artifact": true}

// TestManyEndings runs attempts in a row, each cancelled, killed or let be at a
// random moment, and compares the host before and after.
func TestManyEndings(t *testing.T) {
	asEach(t, func(t *testing.T, b *bench) {
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		rnd := rand.New(rand.NewPCG(seed, 1))
		tally := map[string]int{}
		rounds := times(12, 1000)
		var usual time.Duration // an undisturbed run here and now bounds the moments
		for range 2 {
			began := time.Now()
			if said, status := b.nsbox(b.exec("", "pass")...); status != 0 {
				t.Fatalf("status %d: %s", status, said)
			}
			usual = time.Since(began)
		}
		before := b.listing()
		for n := range rounds {
			cmd := b.command(b.exec("", "import time\ntime.sleep(0.02)")...)
			var said bytes.Buffer
			cmd.Stderr = &said
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			sig := []syscall.Signal{0, syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL}[rnd.IntN(4)]
			if sig != 0 {
				time.Sleep(time.Duration(rnd.Int64N(int64(usual))))
				_ = cmd.Process.Signal(sig)
			}
			_ = cmd.Wait()
			status := cmd.ProcessState.ExitCode()
			tally[fmt.Sprintf("%v: status %d", sig, status)]++
			// An interrupt in the first instant finds no handler yet; later it is a cancellation.
			if want := map[syscall.Signal][]int{0: {0}, syscall.SIGINT: {0, 130, -1}, syscall.SIGTERM: {0, 143, -1}, syscall.SIGKILL: {0, -1}}[sig]; !slices.Contains(want, status) {
				t.Errorf("round %d, signal %v: status %d: %s", n, sig, status, said.String())
			}
		}
		b.site.WantGone(t, endWithin)
		if said, status := b.nsbox("reconcile", "--state-dir", b.state); status != 0 {
			t.Errorf("reconcile ends with %d: %s", status, said)
		}
		b.site.WantNoTrace(t)
		all := b.attempts()
		// One that died before its marker was in open/ has begun nothing; the marker is
		// then all of its record, and goes with it.
		after := slices.DeleteFunc(b.listing(), func(name string) bool {
			return slices.ContainsFunc(all, func(a launcher.AttemptInfo) bool {
				return name == "attempts/"+a.ID+"/"+markerFile && a.State == launcher.AttemptClosed && a.Note != ""
			})
		})
		if !slices.Equal(before, after) {
			t.Errorf("the state directory held %q and holds %q", before, after)
		}
		for _, a := range all {
			if a.State != launcher.AttemptClosed {
				t.Errorf("%+v", a)
			}
		}
		if len(all) < rounds/2 {
			t.Errorf("only %d of %d rounds made an attempt", len(all), rounds)
		}
		t.Logf("%d rounds within %s each, %d attempts: %v", rounds, usual.Round(time.Millisecond), len(all), tally)
	})
}
