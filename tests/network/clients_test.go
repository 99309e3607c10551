package network

import (
	"archive/zip"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"nsbox/launcher"
	"nsbox/tests/harness"
)

// Names besides the one of P+: a database, and a host that no policy lists.
const (
	database = "db.example.invalid"
	stranger = "other.example.invalid"
)

// clients are what people use, each from its distribution's package, with no
// setting that speaks of a proxy, a resolver or a certificate. away goes to the
// stranger, as directly as the client can or because the endpoint says so.
func clients() map[string]struct{ reach, away string } {
	const python = "/usr/bin/python3 "
	get := func(path string) string {
		return python + `-c 'import requests; r = requests.get("https://` + name + path + `", timeout=20); r.raise_for_status(); print(r.text.strip())'`
	}
	install := func(pkg string) string {
		return python + "-m pip --disable-pip-version-check --no-cache-dir --retries 0 --timeout 20 install -q --no-deps --target site --index-url https://" + name + "/simple/ " + pkg +
			" && PYTHONPATH=site " + python + "-c 'import " + pkg + "; print(" + pkg + ".answer)'"
	}
	query := func(host string) string {
		return "psql 'host=" + host + " user=someone dbname=some sslmode=verify-full sslrootcert=/etc/ssl/certs/ca-certificates.crt connect_timeout=20' -Atc 'select answer'"
	}
	return map[string]struct{ reach, away string }{
		"curl":            {"curl -sSf -m 20 https://" + name + "/page", "curl -sSfL -m 20 https://" + name + "/away"},
		"curl by address": {"curl -sSf -m 20 'http://[" + six + "]:8443/page'", "curl -sSf -m 20 http://" + neighbour + ":8443/page"},
		"git":             {"git clone -q https://" + name + "/git/hello.git && cat hello/file", "git clone -q https://" + name + "/git-away/hello.git && cat hello/file"},
		"pip":             {install("nearpkg"), install("farpkg")},
		"requests":        {get("/page"), get("/away")},
		"psql":            {query(database), query(stranger)},
	}
}

// website is what the endpoint and the stranger serve; each request is a hit.
func (l *lab) website() http.Handler {
	t := l.t
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/page", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "reached") })
	mux.Handle("/away", http.RedirectHandler("https://"+stranger+"/page", http.StatusFound))
	mux.HandleFunc("/git-away/", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://"+stranger+strings.Replace(r.URL.String(), "-away", "", 1), http.StatusFound)
	})
	mux.Handle("/git/", &cgi.Handler{Path: "/usr/lib/git-core/git-http-backend", Root: "/git", Env: []string{"GIT_PROJECT_ROOT=" + repository(t), "GIT_HTTP_EXPORT_ALL=1"}})
	for pkg, host := range map[string]string{"nearpkg": "", "farpkg": "https://" + stranger} {
		file := pkg + "-1-py3-none-any.whl"
		mux.HandleFunc("/simple/"+pkg+"/", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprintf(w, "<!DOCTYPE html><a href=%q>%s</a>", host+"/files/"+file, file)
		})
		data := wheel(t, pkg)
		mux.HandleFunc("/files/"+file, func(w http.ResponseWriter, _ *http.Request) { w.Write(data) })
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.hit("request", r.Context().Value(http.LocalAddrContextKey).(net.Addr))
		mux.ServeHTTP(w, r)
	})
}

// visit serves pages at one address of the far side.
func (l *lab) visit(pages http.Handler, n net.Listener) {
	s := &http.Server{Handler: pages, ErrorLog: log.New(io.Discard, "", 0)} // a handshake that a client breaks off is what is tested
	go s.Serve(n)
	l.t.Cleanup(func() { s.Close() })
}

// repository makes a directory of one bare repository with one commit.
func repository(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	work := filepath.Join(root, "work")
	if err := os.Mkdir(work, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(work, "file"), []byte("reached\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	git := "git -c user.name=someone -c user.email=someone@example.invalid -c init.defaultBranch=main "
	cmd := exec.Command("sh", "-ec", git+"init -q; "+git+"add file; "+git+"commit -q -m one; "+git+"clone -q --bare . ../hello.git")
	cmd.Dir = work
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git: %v: %s", err, out)
	}
	return root
}

// wheel is a package of one module.
func wheel(t *testing.T, pkg string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	info := pkg + "-1.dist-info/"
	for _, f := range [][2]string{{pkg + ".py", "answer = 'reached'\n"}, {info + "METADATA", "Metadata-Version: 2.1\nName: " + pkg + "\nVersion: 1\n"},
		{info + "WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}, {info + "RECORD", ""}} {
		w, err := z.Create(f[0])
		if err == nil {
			_, err = w.Write([]byte(f[1]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// everyday is the preset tool with endpoints, each "HOST:PORT" or "NAME:PORT ADDRESS".
func everyday(s *harness.Site, endpoints ...string) string {
	var list []string
	rules := []any{}
	for _, e := range endpoints {
		place, address, pinned := strings.Cut(e, " ")
		list = append(list, place)
		if pinned {
			rules = append(rules, rule(place, address))
		}
	}
	doc, err := json.Marshal(map[string]any{
		"extends": "tool", "loosen": true, "policy_id": "clients",
		"network":        map[string]any{"mode": "exact_endpoints", "allowed_destinations": list, "destination_rules": rules},
		"process_policy": map[string]any{"seccomp": map[string]any{"denied_classes": append(classes(), "socket_non_AF_UNIX_or_TCP")}},
	})
	if err != nil {
		panic(err)
	}
	return s.File("everyday.json", string(doc))
}

// trust makes the host's store of authorities, as nsbox and programs on the host
// see it, hold this one alone.
func (l *lab) trust(s *harness.Site, word string, ca []byte) {
	l.shown["/etc/ssl/certs"] = filepath.Dir(s.File("certs-"+word+"/ca-certificates.crt", string(ca)))
}

// TestClients runs ordinary programs of the host in the everyday box, with a
// directory of the host shown live beside it. Each reaches the endpoint by its
// name, checks its certificate against the system's authorities, and gets nowhere
// else, also where the endpoint sends it there. The controls are the same commands
// on the host, and an authority that did not sign.
func TestClients(t *testing.T) {
	for _, c := range slices.Backward(harness.Callers(t)) {
		t.Run(c.Name, func(t *testing.T) { tryClients(t, newLab(t), harness.NewSite(t, c)) })
		if !harness.Whole() {
			break // one caller is enough for programs that see no difference
		}
	}
}

func tryClients(t *testing.T, l *lab, s *harness.Site) {
	ca, config := authority(t, name, database, stranger)
	other, _ := authority(t, name)
	pages := l.website()
	for _, address := range []string{named, neighbour} {
		l.visit(pages, tls.NewListener(l.listen(address, 443), config))
	}
	for _, address := range []string{six, neighbour} {
		l.visit(pages, l.listen(address, 8443))
	}
	l.serve(5432, answers(config, func(c net.Conn) { l.hit("request", c.LocalAddr()) }), literal, neighbour)
	l.shown["/etc/hosts"] = s.File("hosts", named+" "+name+"\n"+literal+" "+database+"\n"+neighbour+" "+stranger+"\n")
	tree := filepath.Dir(s.File("tree/file", "live"))
	everyday := everyday(s, name+":443 "+named, database+":5432 "+literal, "["+six+"]:8443")
	job := func(script string) harness.Job {
		return harness.Job{PolicyArg: everyday, Bare: true, Argv: []string{"/bin/sh", "-ec", `cd "$(mktemp -d)"; ` + script},
			Flags: []string{"--ro", tree + ":/tree"}, Within: 2 * time.Minute}
	}
	requests := func() int { return l.at("request "+named+":443") + l.at("request "+literal+":5432") }
	for client, c := range clients() {
		t.Run(client, func(t *testing.T) {
			l.trust(s, "good", ca)
			run := l.run(s, job(c.reach)).WantOK()
			if string(run.Stdout) != "reached\n" {
				t.Errorf("printed %q, %s", run.Stdout, run.Stderr)
			}
			for _, e := range run.Result.Network.Endpoints {
				if n := e.Connections - e.Failed; (n > 0) != (e.BytesIn > 0) {
					t.Errorf("%+v", e)
				}
			}
			before := l.deniedHits()
			if run := l.run(s, job(c.away)); run.Status == 0 || run.Result.Workload.Outcome != launcher.Exited || l.deniedHits() != before {
				t.Errorf("to the stranger: status %d, %d hits, %q\n%s", run.Status, l.deniedHits()-before, run.Stdout, run.Stderr)
			}
			if run := l.onHost(s, job("("+c.reach+"); rm -rf *; "+c.away)); string(run.Stdout) != "reached\nreached\n" || l.deniedHits() == before {
				t.Errorf("control: on the host: status %d, %q, %d hits on the stranger\n%s", run.Status, run.Stdout, l.deniedHits()-before, run.Stderr)
			}
			if strings.Contains(c.reach, "http:") {
				return
			}
			l.trust(s, "other", other)
			asked := requests()
			if run := l.run(s, job(c.reach)); run.Status == 0 || run.Result.Workload.Outcome != launcher.Exited || requests() != asked {
				t.Errorf("control: with another authority: status %d, %d requests, %q\n%s", run.Status, requests()-asked, run.Stdout, run.Stderr)
			}
		})
	}
}

// TestSocketFiles shows a directory of the host beside endpoints, and in it a
// socket that anybody may use. No way leads there, while TCP and pairs work.
func TestSocketFiles(t *testing.T) {
	forEach(t, func(t *testing.T, l *lab, s *harness.Site) {
		l.serve(8443, page("reached"), six)
		tree := filepath.Dir(s.File("tree/file", "live"))
		hits := openSockets(t, tree)
		j := harness.Job{Script: "testdata/socketfiles.py", PolicyArg: everyday(s, "["+six+"]:8443"), Bare: true, Args: []string{"/tree", six}, Flags: []string{"--ro", tree + ":/tree"}}
		run := l.run(s, j).WantOK()
		for attempt, got := range run.Report() {
			if _, wanted := wantSocketFiles()[attempt]; !wanted || got != wantSocketFiles()[attempt] {
				t.Errorf("%s: %s, want %s", attempt, got, wantSocketFiles()[attempt])
			}
		}
		if n := hits(); n != 0 || len(run.Report()) != len(wantSocketFiles()) {
			t.Errorf("%d hits on the host's sockets after %d attempts", n, len(run.Report()))
		}
		if !slices.ContainsFunc(run.Result.Attestation, func(r attestRow) bool { return r.Restriction == "socket-files" && r.Status == "enforced" }) {
			t.Error("the attestation has no row socket-files")
		}
		j.Args[0] = tree
		report := l.onHost(s, j).Report()
		if n := hits(); n < 4 || report["stream"] != "ok" || report["datagram"] != "ok" || report["seqpacket"] != "ok" || report["a pair's datagram"] != "ok" {
			t.Errorf("control: %d hits on the host: %v", n, report)
		}
	})
}

func wantSocketFiles() map[string]string {
	return map[string]string{"tcp": "ok HTTP/1.0 200 OK", "pair": "ok x", "packet pair": "ok x",
		"stream": "EPERM", "datagram": "EPERM", "seqpacket": "EPERM", "raw": "EPERM", "a pair's datagram": "EPERM",
		// What is connected stays so, also when its peer has gone.
		"a pair connects": "EISCONN", "a pair sends": "EISCONN", "a packet pair connects": "EISCONN", "a widowed pair connects": "EISCONN", "a pair dissolved": "EINVAL"}
}

// openSockets makes a socket of each kind in dir that anybody may use, and counts
// what reaches them.
func openSockets(t *testing.T, dir string) (hits func() int) {
	t.Helper()
	var n atomic.Int64
	for kind, network := range map[string]string{"stream": "unix", "seqpacket": "unixpacket"} {
		at := filepath.Join(dir, kind)
		listener, err := net.Listen(network, at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { listener.Close() })
		go func() {
			for {
				c, err := listener.Accept()
				if err != nil {
					return
				}
				n.Add(1)
				c.Close()
			}
		}()
	}
	c, err := net.ListenPacket("unixgram", filepath.Join(dir, "datagram"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		for {
			if _, _, err := c.ReadFrom(make([]byte, 16)); err != nil {
				return
			}
			n.Add(1)
		}
	}()
	for _, kind := range []string{"stream", "seqpacket", "datagram"} {
		if err := os.Chmod(filepath.Join(dir, kind), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	return func() int { return int(n.Load()) }
}
