package rootfs

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"

	"nsbox/launcher/reason"
	"nsbox/nsexec"
)

// HostName is one line of the box's /etc/hosts.
type HostName struct{ Addr, Name string }

// Certificates is a kept copy of the host's bundle of CA certificates.
type Certificates struct {
	Path   string // of the copy, in the cache directory
	SHA256 string // hex
}

const maxCertificates = 16 << 20

// bundles are where distributions keep the one file that all programs read.
func bundles() []string {
	return []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"}
}

// KeepCertificates copies the host's bundle into cacheDir, named by its digest.
// What is bound into a box is this copy: nothing of the host's /etc itself, and no
// file that an update could change while the box runs.
func KeepCertificates(cacheDir string) (Certificates, error) {
	for _, from := range bundles() {
		data, err := readBounded(from, maxCertificates)
		if err != nil || !bytes.Contains(data, []byte("-----BEGIN CERTIFICATE-----")) {
			continue
		}
		sum := sha256.Sum256(data)
		c := Certificates{SHA256: hex.EncodeToString(sum[:])}
		c.Path = filepath.Join(cacheDir, "ca-"+c.SHA256+".pem")
		if kept, err := readBounded(c.Path, maxCertificates); err == nil && bytes.Equal(kept, data) {
			return c, nil
		}
		if err := renameio.WriteFile(c.Path, data, 0o444, renameio.WithTempDir(cacheDir), renameio.IgnoreUmask()); err != nil {
			return Certificates{}, reason.Wrap(reason.StateDir, c.Path, "the copy of the CA certificates could not be written", "free space in the state directory", err)
		}
		return c, nil
	}
	return Certificates{}, reason.New(reason.CertificatesMissing, "CA certificates", "no bundle is at any of "+strings.Join(bundles(), ", ")+", and the policy lists destinations", "install the package ca-certificates")
}

func readBounded(name string, most int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("%s is larger than %d bytes", name, most)
	}
	return data, err
}

// bundleAt is where the box has the certificates. Programs that look elsewhere
// find a link: OpenSSL in its own folder, which differs by distribution.
const bundleAt = "/etc/ssl/certs/ca-certificates.crt"

func bundleLinks() []string {
	return []string{"/etc/ssl/cert.pem", "/usr/lib/ssl/cert.pem", "/usr/lib/ssl/certs", "/etc/pki/tls/cert.pem", "/etc/pki/tls/certs/ca-bundle.crt"}
}

// certificateNodes binds source and links to it. A link that would lie below
// something that is no plain directory of the box is left out: what is bound
// there brings its own.
func certificateNodes(source string, have []nsexec.Node) []nsexec.Node {
	if source == "" {
		return nil
	}
	kinds := map[string]nsexec.NodeKind{}
	for _, n := range have {
		kinds[n.Path] = n.Kind
	}
	var out []nsexec.Node
	free := func(p string) bool {
		for ; p != "/"; p = path.Dir(p) {
			if k, ok := kinds[p]; ok && k != nsexec.Dir {
				return false
			}
		}
		return true
	}
	add := func(n nsexec.Node) {
		if _, taken := kinds[n.Path]; taken || !free(path.Dir(n.Path)) {
			return
		}
		for up := path.Dir(n.Path); up != "/"; up = path.Dir(up) {
			if _, ok := kinds[up]; !ok {
				kinds[up] = nsexec.Dir
				out = append(out, nsexec.Node{Path: up, Kind: nsexec.Dir, Mode: 0o755})
			}
		}
		kinds[n.Path] = n.Kind
		out = append(out, n)
	}
	add(nsexec.Node{Path: bundleAt, Kind: nsexec.BindFile, Source: source, NoExec: true, Access: nsexec.Read})
	for _, l := range bundleLinks() {
		to := bundleAt
		if path.Base(l) == "certs" {
			to = path.Dir(bundleAt)
		}
		add(nsexec.Node{Path: l, Kind: nsexec.Symlink, Source: to})
	}
	return out
}

// hosts is the box's whole knowledge of names.
func hosts(names []HostName) []byte {
	text := []byte("127.0.0.1 localhost\n::1 localhost\n")
	for _, n := range names {
		text = fmt.Appendf(text, "%s %s\n", n.Addr, n.Name)
	}
	return text
}
