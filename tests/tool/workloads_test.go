package tool

import (
	"os"
	"strings"
	"testing"
	"time"

	"nsbox/launcher"
	"nsbox/tests/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// everyday runs one program under the preset alone: what it degrades is its own word.
func everyday(argv ...string) harness.Job {
	return harness.Job{PolicyArg: "tool", Argv: argv, Bare: true, Within: 3 * time.Minute}
}

func script(text string) harness.Job { return everyday("sh", "-ec", text) }

// workloads are what people run, each with the real program of the distribution;
// it must end with 0 and print exactly want.
func workloads() map[string]struct{ script, want string } {
	return map[string]struct{ script, want string }{
		"csv group by": {`/usr/bin/python3 -c '
import csv, collections, io
t = collections.Counter()
for r in csv.DictReader(io.StringIO("k,v\na,1\nb,2\na,3\n")): t[r["k"]] += int(r["v"])
print(sorted(t.items()))'`, "[('a', 4), ('b', 2)]\n"},
		"pandas group by": {`/usr/bin/python3 -c '
import pandas, io
print(pandas.read_csv(io.StringIO("k,v\na,1\nb,2\na,3\n")).groupby("k").v.sum().to_dict())'`, "{'a': 4, 'b': 2}\n"},
		"sqlite3 import":      {`printf 'a,1\nb,2\n' >d.csv; sqlite3 d.db 'create table t(k, v)' '.mode csv' '.import d.csv t' 'select sum(v) from t'`, "3\n"},
		"gcc compile and run": {`printf '#include <stdio.h>\nint main(void){puts("compiled");}\n' >a.c; gcc -O1 -o a a.c; ./a`, "compiled\n"},
		"git init and clone":  {`git init -q r; cd r; git config user.email a@example.com; git config user.name a; echo 1 >f; git add f; git commit -qm one; cd ..; git clone -q r s; git -C s log --format=%s`, "one\n"},
		"node":                {`node -e 'console.log([3,1,2].sort().join())'`, "1,2,3\n"},
		"go run":              {`printf 'package main\nfunc main(){println("gone")}\n' >m.go; GO111MODULE=off GOFLAGS= GOTOOLCHAIN=local ` + goProgram() + ` run m.go 2>&1`, "gone\n"},
		"java single file":    {`printf 'class A{public static void main(String[] a){System.out.println("java");}}' >A.java; java A.java`, "java\n"},
		"venv creation":       {`/usr/bin/python3 -m venv --without-pip v; v/bin/python -c 'import sys; print(sys.prefix)'`, "/scratch/v\n"},
		"perl":                {`perl -MList::Util=sum -e 'print sum(1..4), "\n"'`, "10\n"},
		"process pool": {`/usr/bin/python3 -c '
from concurrent.futures import ProcessPoolExecutor
if __name__ == "__main__":
    with ProcessPoolExecutor(2) as p: print(list(p.map(abs, [-1, -2])))'`, "[1, 2]\n"},
		"copied binary": {`cp /usr/bin/true mine; ./mine; echo ran`, "ran\n"},
		"matplotlib": {`MPLCONFIGDIR=/tmp/m MPLBACKEND=Agg /usr/bin/python3 -c '
import matplotlib.pyplot as p
p.plot([1, 2]); p.savefig("a.png")
print(open("a.png", "rb").read(4))'`, "b'\\x89PNG'\n"},
	}
}

// goProgram is where the host's own go is; the one on PATH may not be in /usr.
func goProgram() string {
	for _, p := range []string{"/usr/local/go/bin/go", "/usr/bin/go"} {
		if _, err := os.Stat(p); err == nil {
			return p
		}
	}
	return "/usr/lib/go-1.24/bin/go"
}

func TestWorkloads(t *testing.T) {
	callers := harness.Callers(t)
	s := harness.NewSite(t, callers[len(callers)-1])
	for name, w := range workloads() {
		t.Run(name, func(t *testing.T) {
			run := s.Run(script(w.script))
			if string(run.Stdout) != w.want || run.Status != 0 {
				t.Errorf("status %d, printed %q, want %q; stderr %.2000s", run.Status, run.Stdout, w.want, run.Stderr)
			}
		})
	}
}

// What a policy forbids to run from /scratch does not, and what is denied says so.
func TestScratchNoexec(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		j := script(`cp /usr/bin/true mine; ./mine`)
		if run := s.Run(j); run.Status != 0 {
			t.Errorf("control: status %d, %.600s", run.Status, run.Stderr)
		}
		j.PolicyArg = noexecPolicy(t, s)
		run := s.Run(j).Want(launcher.Exited, 126)
		if !strings.Contains(string(run.Stderr), "Permission denied") {
			t.Errorf("the shell says %.600s", run.Stderr)
		}
	})
}

func noexecPolicy(t *testing.T, s *harness.Site) string {
	t.Helper()
	shown := s.Raw("policy", "show", "tool")
	const with, without = "per_job_tmpfs_nosuid_nodev", "per_job_tmpfs_noexec_nosuid_nodev"
	if shown.Status != 0 || !strings.Contains(string(shown.Stdout), with) {
		t.Fatalf("policy show tool: %d, %.600s", shown.Status, shown.Stderr)
	}
	return s.File("noexec.json", strings.Replace(string(shown.Stdout), with, without, 1))
}

// /scratch, /tmp and /dev/shm have one budget, and the preset's values hold.
func TestOneBudget(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		j := everyday("/usr/bin/python3", "-c", `
import os
for p in ("/scratch", "/tmp", "/dev/shm"):
    s = os.statvfs(p)
    if p == "/scratch": first = (os.stat(p).st_dev, s.f_blocks * s.f_frsize)
    assert (os.stat(p).st_dev, s.f_blocks * s.f_frsize) == first, p
    open(p + "/f", "wb").write(b"x" * (3 << 20))
    print(p, os.listdir(p))
try: open("/tmp/g", "wb").write(b"x" * (1 << 20))
except OSError as e: print(e.strerror)`)
		j.Flags = []string{"--limit", "scratch=9M"}
		run := s.Run(j).WantOK()
		if want := "/scratch ['f']\n/tmp ['f']\n/dev/shm ['f']\nNo space left on device\n"; string(run.Stdout) != want {
			t.Errorf("printed %q, want %q", run.Stdout, want)
		}
	})
}

// A live stream has no cap, keeps what the policy says, and a reader that goes
// away ends the program as any pipe would.
func TestLiveStreams(t *testing.T) {
	callers := harness.Callers(t)
	s := harness.NewSite(t, callers[len(callers)-1])
	run := s.Run(everyday("seq", "1", "200000")).WantOK()
	out := run.Result.Untrusted.Stdout
	if n := int64(len(run.Stdout)); n != 1288895 || out.BytesTotal != n || out.BytesKept != 65536 || !out.LiveWhole {
		t.Errorf("%d bytes live, %d counted, %d kept, whole %v", n, out.BytesTotal, out.BytesKept, out.LiveWhole)
	}
	j := everyday("yes")
	j.Shell = `"$@" | head -n 1`
	if run := s.Run(j); string(run.Stdout) != "y\n" || run.Result.Workload.Outcome != launcher.Signaled || *run.Result.Workload.Signal != 13 {
		t.Errorf("printed %.100q, %+v", run.Stdout, run.Result.Workload)
	}
}
