package exporter

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func digestOf(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }

// actor is a checker that does something once, in the middle of the copy.
type actor struct{ act func() }

func (a *actor) Write([]byte) fault {
	if a.act != nil {
		a.act()
		a.act = nil
	}
	return fault{}
}

func (a *actor) Close() fault { return fault{} }

func TestChangedDuringCopy(t *testing.T) {
	data := bytes.Repeat([]byte("aaaaaaaaaaaaaaa,1,2,3,4,5,6,7\n"), 5000) // three chunks
	for name, act := range map[string]func(p *place){
		"rewritten in place": func(p *place) {
			f, err := os.OpenFile(p.at("summary.csv"), os.O_WRONLY, 0)
			p.check(err)
			_, err = f.WriteAt([]byte("b"), int64(len(data)-30))
			p.check(err)
			p.check(f.Close())
		},
		"longer": func(p *place) {
			f, err := os.OpenFile(p.at("summary.csv"), os.O_WRONLY|os.O_APPEND, 0)
			p.check(err)
			_, err = f.WriteString("b,1,2,3,4,5,6,7\n")
			p.check(err)
			p.check(f.Close())
		},
		"shorter": func(p *place) { p.check(os.Truncate(p.at("summary.csv"), int64(len(data)-30))) },
		"rewritten, modification time restored": func(p *place) {
			before, err := statName(p.dir, "summary.csv")
			p.check(err)
			f, err := os.OpenFile(p.at("summary.csv"), os.O_WRONLY, 0)
			p.check(err)
			_, err = f.WriteAt([]byte("b"), int64(len(data)-30))
			p.check(err)
			p.check(f.Close())
			mtime := time.Unix(0, before.MtimeNS)
			p.check(os.Chtimes(p.at("summary.csv"), mtime, mtime))
		},
		"a second name": func(p *place) { p.check(os.Link(p.at("summary.csv"), p.at("b"))) },
		"mode":          func(p *place) { p.check(os.Chmod(p.at("summary.csv"), 0o640)) },
		"gone":          func(p *place) { p.check(os.Remove(p.at("summary.csv"))) },
		"replaced": func(p *place) {
			p.file("n", data)
			p.check(os.Rename(p.at("n"), p.at("summary.csv")))
		},
		"times set back": func(p *place) {
			p.check(os.Chtimes(p.at("summary.csv"), time.Unix(1, 0), time.Unix(1, 0)))
		},
		"another entry": func(p *place) { p.file("other", nil) },
		"an entry that came and went": func(p *place) {
			p.file("other", nil)
			p.check(os.Remove(p.at("other")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			p.file("summary.csv", data)
			time.Sleep(12 * time.Millisecond) // file times may be as coarse as a tick
			r := p.examineWith(p.request(testBounds()), func(b Bounds, r Rule) checks {
				return append(standardChecks(b, r), &actor{func() { act(p) }})
			})
			p.wantRejected(r, codeChanged)
		})
	}
	p := newPlace(t)
	p.file("summary.csv", data)
	r := p.examineWith(p.request(testBounds()), func(b Bounds, r Rule) checks { return append(standardChecks(b, r), &actor{func() {}}) })
	p.wantAccepted(r, data)
}

// The cap holds for what is read, not only for what the survey saw.
func TestGrownBeyondTheCap(t *testing.T) {
	p := newPlace(t)
	p.file("summary.csv", goodCSV)
	b := testBounds()
	b.FileBytes = 1000
	r := p.examineWith(p.request(b), func(b Bounds, r Rule) checks {
		return append(standardChecks(b, r), &actor{func() {
			f, err := os.OpenFile(p.at("summary.csv"), os.O_WRONLY|os.O_APPEND, 0)
			p.check(err)
			_, err = f.Write(bytes.Repeat([]byte("b\n"), 500))
			p.check(err)
			p.check(f.Close())
		}})
	})
	p.wantRejected(r, codeTooLarge)
}

// What was opened as a pipe is not read, whatever its name leads to by now.
func TestPipeOpenedFileNamed(t *testing.T) {
	p := newPlace(t)
	p.check(unix.Mkfifo(p.at("summary.csv"), 0o666))
	p.own("summary.csv")
	req := p.request(testBounds())
	if req.Names[0].FD < 0 {
		t.Fatal("the pipe could not be opened")
	}
	p.check(os.Remove(p.at("summary.csv")))
	p.file("summary.csv", goodCSV)
	p.wantRejected(p.examineWith(req, standardChecks), codeChanged)
}

// A directory that is not sealed: whoever swaps the name gets a rejection, or
// the bytes of the inode that was opened.
func TestSwapRace(t *testing.T) {
	p := newPlace(t)
	outside := p.t.TempDir() + "/secret"
	p.check(os.WriteFile(outside, []byte(canary), 0o644))
	p.file("summary.csv", goodCSV)
	stop, stopped := make(chan struct{}), make(chan struct{})
	var swaps atomic.Int32
	go func() {
		defer close(stopped)
		for n := 0; ; n++ {
			swaps.Store(int32(n))
			select {
			case <-stop:
				return
			case <-time.After(2 * time.Millisecond):
			}
			next := p.at("next")
			if n%2 == 0 {
				os.Symlink(outside, next)
			} else {
				os.WriteFile(next, goodCSV, 0o600)
			}
			os.Lchown(next, p.uid, p.gid)
			os.Rename(next, p.at("summary.csv"))
		}
	}()
	verdicts := map[string]int{}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		p.newStaging()
		r := p.examine(testBounds())
		verdicts[r.Verdict]++
		if r.Verdict == Accepted {
			p.wantAccepted(r, goodCSV)
		}
		if verdicts[Accepted] >= 20 && verdicts[Rejected] >= 20 && swaps.Load() >= 50 {
			break
		}
	}
	close(stop)
	<-stopped
	if swaps.Load() < 50 || verdicts[Accepted] == 0 || verdicts[Rejected] == 0 || verdicts[Empty] > 0 {
		t.Errorf("%d swaps, verdicts %v: want 50 swaps, both verdicts, and the name is never absent", swaps.Load(), verdicts)
	}
}

func TestStagingThatCannotBeWritten(t *testing.T) {
	p := newPlace(t)
	p.file("summary.csv", goodCSV)
	req := p.request(testBounds())
	for name, c := range map[string]struct {
		flags int
		data  string
	}{
		"readable":  {os.O_RDWR, ""},
		"read only": {os.O_RDONLY, ""},
		"append":    {os.O_WRONLY | os.O_APPEND, ""},
		"not empty": {os.O_WRONLY, "precious"},
	} {
		path := t.TempDir() + "/s"
		p.check(os.WriteFile(path, []byte(c.data), 0o600))
		f, err := os.OpenFile(path, c.flags, 0)
		p.check(err)
		r := Examine(p.dir, into(req, int(f.Fd())))
		p.wantRejected(r, codeBadRequest)
		if after, _ := os.ReadFile(path); string(after) != c.data {
			t.Errorf("%s: a file that is not the staging file was changed", name)
		}
		f.Close()
	}
	if r := Examine(int(p.staging.Fd()), req); !equalCodes(r, codeBadRequest) {
		t.Errorf("a file as directory: %+v", r)
	}
	if r := Examine(p.dir, into(req, p.dir)); !equalCodes(r, codeBadRequest) {
		t.Errorf("a directory as staging: %+v", r)
	}
	if r := Examine(math.MaxInt32, req); !equalCodes(r, codeBadRequest) {
		t.Errorf("no directory: %+v", r)
	}
	full, err := unix.MemfdCreate("sealed", unix.MFD_ALLOW_SEALING|unix.MFD_CLOEXEC)
	p.check(err)
	defer unix.Close(full)
	_, err = unix.FcntlInt(uintptr(full), unix.F_ADD_SEALS, unix.F_SEAL_GROW)
	p.check(err)
	writer, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", full), unix.O_WRONLY|unix.O_CLOEXEC, 0)
	p.check(err)
	defer unix.Close(writer)
	if r := Examine(p.dir, into(req, writer)); !equalCodes(r, codeWriteFailed) {
		t.Errorf("a staging file that cannot grow: %+v", r)
	}
	p.wantAccepted(p.examineWith(req, standardChecks), goodCSV)
}

// into is req with another staging file.
func into(req Request, staging int) Request {
	req.Staging = []int{staging}
	return req
}

func equalCodes(r Report, code string) bool {
	codes := r.Codes()
	return r.Verdict == Rejected && len(codes) == 1 && codes[0] == code
}

func TestPanicIsARejection(t *testing.T) {
	p := newPlace(t)
	p.file("summary.csv", []byte(canary+"\n"))
	r := p.examineWith(p.request(testBounds()), func(b Bounds, r Rule) checks {
		return append(standardChecks(b, r), &actor{func() { panic(canary) }})
	})
	p.wantRejected(r, codeInternal)
}
