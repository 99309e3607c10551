package policy

import (
	"path"
	"slices"
	"strings"
)

// deniedWord is a denied_mounts entry that is no path.
type deniedWord struct {
	word     string
	prefixes []string // host paths at and below which nothing may come from
	except   []string // exact paths that may, all the same
	target   string   // path in the box that may not be writable
	targets  bool     // prefixes hold for paths in the box too
}

// presetDenied are the preset's entries. One may be left out; Lint warns then.
func presetDenied() []string {
	return []string{"container_runtime_sockets", "host_etc", "host_dev_except_null_zero_urandom", "writable_proc", "writable_sys",
		"/home", "/root", "/run", "/var/run", "/opt/sbx-test/mock-secret"}
}

// standIns are the entries that do in the everyday box for one of presetDenied.
func standIns(entry string) []string {
	switch entry {
	case "host_etc", "/home", "/root":
		return []string{"operator_secrets"}
	case "host_dev_except_null_zero_urandom":
		return []string{"host_dev_except_standard_devices"}
	}
	return nil
}

// operatorSecrets are the places where programs keep keys and passwords by
// convention. A place of a home directory stands for that of every home.
func operatorSecrets() []string {
	list := strings.Fields(`/etc/shadow /etc/shadow- /etc/gshadow /etc/gshadow- /etc/security/opasswd /etc/sudoers /etc/sudoers.d
		/etc/ssh /etc/ssl/private /etc/pki/tls/private /etc/krb5.keytab /etc/wireguard /etc/openvpn /etc/ipsec.secrets
		/etc/NetworkManager/system-connections /etc/wpa_supplicant /etc/ppp /etc/kubernetes /etc/rancher /var/lib/kubelet /var/spool/cron`)
	for _, home := range []string{"/root", "/home/*"} {
		for _, name := range HomeSecrets() {
			list = append(list, home+"/"+name)
		}
	}
	return list
}

// HomeSecrets are the names below a home directory that operator_secrets denies.
func HomeSecrets() []string {
	return strings.Fields(`.ssh .gnupg .aws .azure .kube .docker .netrc .pgpass .my.cnf .git-credentials .npmrc .pypirc .vault-token .password-store
		.config/gcloud .config/gh .config/hub .config/rclone .config/git .config/op .cargo/credentials .cargo/credentials.toml .gem/credentials
		.m2/settings.xml .terraform.d .bash_history .zsh_history .python_history .mozilla .thunderbird .config/google-chrome .config/chromium
		.local/share/keyrings .local/share/nsbox .local/state/nsbox`)
}

// deniedWords returns the words nsbox can test. host_etc and host_dev_… speak of
// the host's files, so they bind sources only: the box's own generated
// /etc/passwd is no host file.
func deniedWords() []deniedWord {
	return []deniedWord{
		{word: "container_runtime_sockets", targets: true, prefixes: []string{
			"/run/docker.sock", "/run/docker", "/run/containerd", "/run/podman", "/run/crio", "/run/k3s", "/run/lxd", "/run/incus",
			"/run/buildkit", "/run/cri-dockerd.sock", "/run/user/*/podman", "/run/user/*/docker.sock", "/run/user/*/containerd",
			"/var/lib/lxd/unix.socket", "/var/lib/incus/unix.socket", "/var/snap/lxd/common/lxd/unix.socket",
		}},
		{word: "host_etc", prefixes: []string{"/etc"}},
		{word: "host_dev_except_null_zero_urandom", prefixes: []string{"/dev"}, except: []string{"/dev/null", "/dev/zero", "/dev/urandom"}},
		// As the two above, for a root of host directories in which a terminal can be made.
		{word: "operator_secrets", prefixes: operatorSecrets()},
		{word: "host_dev_except_standard_devices", prefixes: []string{"/dev"}, except: []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"}},
		{word: "writable_proc", prefixes: []string{"/proc"}, target: "/proc"},
		{word: "writable_sys", prefixes: []string{"/sys"}, target: "/sys"},
	}
}

// Denial is denied_mounts made ready to be asked many times: a plan asks it of
// every mount, and building the words anew for each took longer than the box.
type Denial []deniedWord

// Denial returns the policy's entries in order, every prefix in all its
// spellings. A plain path is a word with that one prefix.
func (p *Policy) Denial() Denial {
	words := deniedWords()
	d := make(Denial, 0, len(p.Filesystem.DeniedMounts))
	for _, entry := range p.Filesystem.DeniedMounts {
		w := deniedWord{word: entry, prefixes: []string{entry}, targets: true}
		if i := slices.IndexFunc(words, func(w deniedWord) bool { return w.word == entry }); i >= 0 {
			w = words[i]
		}
		var forms []string
		for _, prefix := range w.prefixes {
			forms = append(forms, runForms(prefix)...)
		}
		w.prefixes = forms
		d = append(d, w)
	}
	return d
}

// Denies tests a host path as the source of a mount and names the denied_mounts
// entry that forbids it. A directory above a denied path is denied too, because
// binding it would bring the denied path along. Links are not followed here:
// test the resolved path. Not for nsbox's own staging directory.
func (d Denial) Denies(source string) (rule string, denied bool) {
	if !cleanAbsolute(source) {
		return notClean, true
	}
	return d.first(func(w *deniedWord) bool {
		return !slices.Contains(w.except, source) &&
			slices.ContainsFunc(w.prefixes, func(prefix string) bool { return below(source, prefix) || below(prefix, source) })
	})
}

// DeniesTarget tests a path in the box as the target of a mount. writable says
// whether the mount is to be writable there.
func (d Denial) DeniesTarget(target string, writable bool) (rule string, denied bool) {
	if !cleanAbsolute(target) {
		return notClean, true
	}
	return d.first(func(w *deniedWord) bool {
		return w.target != "" && writable && below(target, w.target) ||
			w.targets && slices.ContainsFunc(w.prefixes, func(prefix string) bool { return below(target, prefix) })
	})
}

// notClean is the rule that forbids a path nothing can be said of.
const notClean = "not_a_clean_absolute_path"

// first returns the first entry for which the test holds.
func (d Denial) first(test func(*deniedWord) bool) (string, bool) {
	for i := range d {
		if test(&d[i]) {
			return d[i].word, true
		}
	}
	return "", false
}

// Denies and DeniesTarget ask once; see Denial.
func (p *Policy) Denies(source string) (rule string, denied bool) { return p.Denial().Denies(source) }

// DeniesTarget is Denial.DeniesTarget.
func (p *Policy) DeniesTarget(target string, writable bool) (rule string, denied bool) {
	return p.Denial().DeniesTarget(target, writable)
}

// runForms returns a path under /run in both of its spellings: /var/run leads to
// /run on every current system.
func runForms(prefix string) []string {
	if below(prefix, "/run") {
		return []string{prefix, "/var" + prefix}
	}
	if below(prefix, "/var/run") {
		return []string{prefix, strings.TrimPrefix(prefix, "/var")}
	}
	return []string{prefix}
}

func cleanAbsolute(p string) bool {
	return strings.HasPrefix(p, "/") && path.Clean(p) == p && !strings.ContainsRune(p, 0)
}

// below reports whether p is root or lies below it; a * in either stands for
// one name.
func below(p, root string) bool {
	if root == "/" {
		return true
	}
	for root != "" {
		if p == "" {
			return false
		}
		var a, b string
		a, p = cutName(p)
		b, root = cutName(root)
		if a != b && a != "*" && b != "*" {
			return false
		}
	}
	return true
}

// cutName splits /a/b into a and /b.
func cutName(p string) (name, rest string) {
	p = p[1:]
	if i := strings.IndexByte(p, '/'); i >= 0 {
		return p[:i], p[i:]
	}
	return p, ""
}

func deniedWordNames() []string {
	var names []string
	for _, w := range deniedWords() {
		names = append(names, w.word)
	}
	return names
}
