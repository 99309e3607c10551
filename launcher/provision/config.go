package provision

import (
	"fmt"
	"math"
	"path"
	"strings"

	"nsbox/launcher/reason"
)

// Config is what is asked for. The zero value of a field that has a default
// stands for that default.
type Config struct {
	User   string `json:"user"`   // the launcher's account, made here
	Dir    string `json:"dir"`    // everything but the account's lines in /etc lies below it
	Slots  int    `json:"slots"`  // attempts at once that have a provisioned /out
	Bytes  int64  `json:"bytes"`  // of each slot
	Inodes int64  `json:"inodes"` // of each slot
	Binary string `json:"binary"` // nsbox, as the boot unit and the AppArmor profile name it
}

// The defaults; the bounds of a slot come from a policy.
const (
	DefaultUser  = "nsbox-run"
	DefaultDir   = "/var/lib/nsbox-out"
	DefaultSlots = 2
	maxSlots     = 64
)

// Every text becomes a word of a shell command, so only harmless letters are taken.
const (
	lower  = "abcdefghijklmnopqrstuvwxyz"
	digits = "0123456789"
	upper  = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

func only(text, letters string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool { return !strings.ContainsRune(letters, r) })
}

func userName(s string) bool {
	return len(s) <= 31 && only(s, lower+digits+"-") && strings.ContainsAny(s[:1], lower)
}

func cleanPath(p string) bool {
	return only(p, lower+upper+digits+"/._-") && path.IsAbs(p) && path.Clean(p) == p && p != "/"
}

func (c Config) validate() error {
	bad := func(what, why, next string) error { return reason.New(reason.ProvisionInvalid, what, why, next) }
	switch {
	case !userName(c.User):
		return bad(fmt.Sprintf("the user name %q", c.User), "is not lower-case letters, digits and hyphens", "write for example --user "+DefaultUser)
	case c.User == "root":
		return bad("the user name root", "is the account whose power a launcher should not have", "write for example --user "+DefaultUser)
	case !cleanPath(c.Dir):
		return bad(fmt.Sprintf("the directory %q", c.Dir), "is no clean absolute path of letters, digits, dots, hyphens and underscores", "write for example --dir "+DefaultDir)
	case c.Slots < 1 || c.Slots > maxSlots:
		return bad(fmt.Sprintf("%d slots", c.Slots), fmt.Sprintf("is not between 1 and %d", maxSlots), "write for example --slots 2")
	case c.Bytes < 4096 || c.Inodes < 2 || c.Bytes > math.MaxInt64/2 || c.Inodes > math.MaxInt32:
		return bad(fmt.Sprintf("a slot of %d bytes and %d inodes", c.Bytes, c.Inodes), "is out of range", "take a policy whose out_bytes and out_inodes are larger")
	case !cleanPath(c.Binary):
		return bad(fmt.Sprintf("nsbox's own path %q", c.Binary), "cannot be written into a unit or a profile", "install nsbox as /usr/local/bin/nsbox")
	}
	return nil
}

func (c Config) home() string           { return c.Dir + "/home" }
func (c Config) slot(n int) string      { return fmt.Sprintf("%s/%d", c.Dir, n) }
func (c Config) recordPath() string     { return c.Dir + "/provision.json" }
func (c Config) unit() string           { return "nsbox-provision-" + c.User + ".service" }
func (c Config) unitPath() string       { return "/etc/systemd/system/" + c.unit() }
func profilePath(profile string) string { return "/etc/apparmor.d/" + profile }
