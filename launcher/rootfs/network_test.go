package rootfs

import (
	"os"
	"path/filepath"
	"testing"

	"nsbox/launcher/reason"
	"nsbox/nsexec"
)

// The authorities are where programs look, in every kind of root: the kept copy, or
// what a root brings itself. Nothing of them is there unless asked for.
func TestCertificatesInEveryRoot(t *testing.T) {
	const copied = "/state/cache/ca.pem"
	lay := func(c *Closure, certificates string) []nsexec.Node {
		t.Helper()
		nodes, err := Layout(c, Options{ScratchBytes: 1, ScratchInodes: 1, OutBytes: 1, OutInodes: 1, WorkloadUID: 1, WorkloadGID: 1, ExporterUID: 2, Certificates: certificates})
		must(t, err)
		return nodes
	}
	source := func(nodes []nsexec.Node, p string) string {
		if n := nodeAt(nodes, p); n != nil {
			return n.Source
		}
		return ""
	}
	resolve := func(whole bool, files ...string) (*Closure, string) {
		t.Helper()
		root := pythonRoot(t, "dist-packages")
		for _, p := range files {
			put(t, root, p, 0o644, []byte("x"))
		}
		c, err := Root{Dir: root, Whole: whole}.Resolve("python3", nil)
		must(t, err)
		return c, root
	}
	for name, c := range map[string]struct {
		whole bool
		files []string
		own   string // what the root shows there by itself, below it
	}{
		"a closure":                       {false, []string{"etc/ssl/certs/ca-certificates.crt"}, ""}, // of which the program needs nothing
		"a root without any":              {true, nil, ""},
		"a root with OpenSSL's files":     {true, []string{"etc/ssl/openssl.cnf"}, ""},
		"a root with an empty store":      {true, []string{"etc/ssl/openssl.cnf", "etc/ssl/certs/one.pem"}, ""},
		"a root that has authorities too": {true, []string{"etc/ssl/certs/ca-certificates.crt", "etc/ssl/certs/one.pem"}, "/etc/ssl/certs"},
	} {
		closure, root := resolve(c.whole, c.files...)
		nodes := lay(closure, copied)
		if c.own != "" {
			if source(nodes, c.own) != root+c.own || source(nodes, bundleAt) != "" {
				t.Errorf("%s: %+v and %+v", name, nodeAt(nodes, c.own), nodeAt(nodes, bundleAt))
			}
			continue
		}
		if source(nodes, bundleAt) != copied || c.whole && len(c.files) > 0 && source(nodes, "/"+c.files[0]) != root+"/"+c.files[0] {
			t.Errorf("%s: %+v", name, nodeAt(nodes, bundleAt))
		}
		if source(lay(closure, ""), bundleAt) != "" {
			t.Errorf("%s: they are there without endpoints", name)
		}
	}
}

// The copy has the host's bytes, is made once, and is made again if it is not what
// its name says; a host without a bundle is a refusal.
func TestCertificatesAreKept(t *testing.T) {
	cache := realDir(t)
	first, err := KeepCertificates(cache)
	must(t, err)
	host, err := os.ReadFile(first.Path)
	must(t, err)
	if filepath.Base(first.Path) != "ca-"+first.SHA256+".pem" || len(host) == 0 {
		t.Errorf("%+v, %d bytes", first, len(host))
	}
	must(t, os.Chmod(first.Path, 0o644))
	must(t, os.WriteFile(first.Path, []byte("changed"), 0o644))
	again, err := KeepCertificates(cache)
	must(t, err)
	if data, err := os.ReadFile(again.Path); err != nil || string(data) != string(host) || again != first {
		t.Errorf("%+v after a change, %v", again, err)
	}
	_, err = KeepCertificates(filepath.Join(cache, "absent"))
	wantReason(t, err, reason.StateDir, "could not be written")
}
