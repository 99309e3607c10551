package tool

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"nsbox/launcher"
	"nsbox/tests/harness"
)

// clients is how many runs a harness keeps going at once.
const clients = 6

// A harness in Go, in Python and in sh starts many runs at once, each waits its
// turn, and each gets one whole result that is its own.
func TestClients(t *testing.T) {
	s := harness.NewSite(t, harness.Callers(t)[0])
	nsbox := harness.Binary(t)
	check := func(t *testing.T, n int, doc []byte) {
		t.Helper()
		res := harness.DecodeResult(t, doc)
		if want := fmt.Sprintf("run %d\n", n); res.ExitStatus != n || res.Workload.Outcome != launcher.Exited || res.Untrusted.Stdout.Text != want {
			t.Errorf("run %d: status %d, %s, %q, %+v", n, res.ExitStatus, res.Workload.Outcome, res.Untrusted.Stdout.Text, res.Reason)
		}
	}
	command := func(n string) []string {
		return []string{nsbox, "exec", "--json", "-q", "--wait", "5m", "--state-dir", s.State, "--", "sh", "-c", "echo run " + n + "; exit " + n}
	}
	t.Run("go", func(t *testing.T) {
		var wg sync.WaitGroup
		docs := make([][]byte, clients)
		for n := range clients {
			wg.Go(func() {
				argv := command(fmt.Sprint(n))
				docs[n], _ = exec.Command(argv[0], argv[1:]...).Output()
			})
		}
		wg.Wait()
		for n, d := range docs {
			check(t, n, d)
		}
	})
	lines := func(t *testing.T, out []byte, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		var docs []json.RawMessage
		if err := json.Unmarshal(out, &docs); err != nil || len(docs) != clients {
			t.Fatalf("%d documents, %v: %.300s", len(docs), err, out)
		}
		for n, d := range docs {
			check(t, n, d)
		}
	}
	argv, err := json.Marshal(command("N"))
	if err != nil {
		t.Fatal(err)
	}
	t.Run("python", func(t *testing.T) {
		code := `import json, subprocess, sys
argv = json.loads(sys.argv[1])
runs = [subprocess.Popen([a.replace("N", str(n)) if "N;" in a else a for a in argv[:-1]] + [argv[-1].replace("N", str(n))], stdout=subprocess.PIPE) for n in range(int(sys.argv[2]))]
print(json.dumps([json.loads(r.communicate()[0]) for r in runs]))`
		out, err := exec.Command("/usr/bin/python3", "-c", code, string(argv), fmt.Sprint(clients)).Output()
		lines(t, out, err)
	})
	t.Run("shell", func(t *testing.T) {
		file := s.File("client.sh", `set -eu
n=0
while [ $n -lt $1 ]; do
    "$2" exec --json -q --wait 5m --state-dir "$3" -- sh -c "echo run $n; exit $n" >"$4/doc-$n.json" &
    n=$((n + 1))
done
wait
`)
		if out, err := exec.Command("sh", file, fmt.Sprint(clients), nsbox, s.State, s.Dir).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for n := range clients {
			doc, err := os.ReadFile(fmt.Sprintf("%s/doc-%d.json", s.Dir, n))
			if err != nil || !strings.HasPrefix(string(doc), "{") {
				t.Fatalf("run %d: %v, %.100q", n, err, doc)
			}
			check(t, n, doc)
		}
	})
}
