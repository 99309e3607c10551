package provision

import (
	"fmt"
	"os"
	"strings"
)

// State is what a check says of a step.
type State string

const (
	Done     State = "done"
	Missing  State = "missing"
	Differs  State = "differs" // something is there, and it is not what the step makes
	Unneeded State = "not needed"
	Unknown  State = "could not tell" // the caller may not look
)

// step is one line of the table. do and undo are shell commands, each a line of
// its own; they are run by sh -e with a fixed environment, and do what is missing.
type step struct {
	name, why string
	do, undo  []string
	check     func(h host) (State, string)
	unneeded  string // why this host does not need it, or ""
}

// table is every step for a configuration, in order. ids are the subordinate ids
// that the account has or is to get.
func table(c Config, h host) []step {
	steps := []step{
		{name: "directory", why: "everything that follows lies below it and can be told from what others made",
			do:    []string{"[ -d " + c.Dir + " ] || mkdir -m 0755 " + c.Dir},
			undo:  []string{"[ ! -d " + c.Dir + " ] || rmdir " + c.Dir},
			check: func(h host) (State, string) { return h.directory(c.Dir) }},
		{name: "account", why: "whoever breaks out of a box through the kernel reaches this account: it can do nothing else and holds nothing",
			do: []string{"id -u " + c.User + " >/dev/null 2>&1 || useradd --system --user-group --create-home --home-dir " + c.home() + " --skel /nonexistent --shell /usr/sbin/nologin --comment 'launcher of nsbox' " + c.User,
				"chmod 0700 " + c.home()},
			// What the account put there goes under its own rights, not root's.
			undo: []string{"! id -u " + c.User + " >/dev/null 2>&1 || setpriv --reuid " + c.User + " --regid " + c.User + " --clear-groups find " + c.home() + " -mindepth 1 -delete",
				"! id -u " + c.User + " >/dev/null 2>&1 || userdel " + c.User, "[ ! -d " + c.home() + " ] || rmdir " + c.home()},
			check: func(h host) (State, string) { return h.account(c) }},
		{name: "ids", why: "boxes run under ids of their own, four for each; the account's own is mapped into none",
			do:    h.subids(c, "add"),
			undo:  h.subids(c, "del"),
			check: func(h host) (State, string) { return h.range_(c) }},
	}
	for n := range c.Slots {
		steps = append(steps, slotStep(c, h, n))
	}
	return append(steps,
		profileStep(c, h, ProfileLauncher, launcherProfile(c.Binary), "with kernel.apparmor_restrict_unprivileged_userns (Ubuntu 23.10 and newer) only a program with a profile that says so may make user namespaces"),
		profileStep(c, h, ProfileWorkload, workloadProfile, "a second wall for programs that are started under it; nsbox itself does not ask for it"),
		bootStep(c, h))
}

// subids adds or removes the range in both files, each where it is not yet so.
func (h host) subids(c Config, what string) []string {
	var out []string
	for _, kind := range []string{"uid", "gid"} {
		there := fmt.Sprintf("grep -qx %s:%d:%d /etc/sub%s", c.User, h.ids.Start, h.ids.Count, kind)
		if what == "del" {
			there = "! " + there
		}
		out = append(out, fmt.Sprintf("%s || usermod --%s-sub%ss %d-%d %s", there, what, kind, h.ids.Start, h.ids.Start+h.ids.Count-1, c.User))
	}
	return out
}

// slotStep makes one slot. Every command is harmless where its effect is there.
func slotStep(c Config, h host, n int) step {
	dir, owner := c.slot(n), h.workload(n)
	lock, rec := dir+".lock", dir+".slot"
	return step{name: fmt.Sprintf("slot %d", n), why: "a bounded /out that outlives box and launcher, owned by the one id that writes there",
		do: []string{
			"[ -d " + dir + " ] || mkdir -m 0700 " + dir,
			fmt.Sprintf("mountpoint -q %s || mount -t tmpfs -o size=%d,nr_inodes=%d,mode=0700,uid=%d,gid=%d,nosuid,nodev,noexec nsbox-out %s", dir, c.Bytes, c.Inodes, owner, owner, dir),
			fmt.Sprintf("[ -e %[1]s ] || install -m 0660 -o root -g %[2]s /dev/null %[1]s", lock, c.User),
			fmt.Sprintf(`echo "boot $(cat /proc/sys/kernel/random/boot_id) dev $(mountpoint -d %s)" >%s`, dir, rec),
			"chmod 0644 " + rec,
		},
		undo: []string{
			"rm -f " + rec,
			fmt.Sprintf("! mountpoint -q %[1]s || umount %[1]s", dir),
			"rm -f " + lock,
			"[ ! -d " + dir + " ] || rmdir " + dir,
		},
		check: func(h host) (State, string) { return h.slot(c, n) }}
}

// profileStep installs one AppArmor profile and loads it.
func profileStep(c Config, h host, name, text, why string) step {
	path := profilePath(name)
	s := step{name: "apparmor " + name, why: why,
		do:    []string{heredoc(path, text), "apparmor_parser --replace --write-cache " + path},
		undo:  []string{"! grep -q '^" + name + " (' /sys/kernel/security/apparmor/profiles || apparmor_parser --remove " + path, "rm -f " + path},
		check: func(h host) (State, string) { return h.profile(name, path, text) }}
	switch {
	case !h.apparmor:
		s.unneeded = "this kernel does not have AppArmor switched on"
	case h.abi4 == "":
		s.unneeded = "AppArmor's tools here are older than version 4 and know no rule for user namespaces, so none is asked of a profile"
	}
	return s
}

// bootStep runs the same command again at every boot.
func bootStep(c Config, h host) step {
	text := BootUnit(c)
	s := step{name: "at boot", why: "the slots are memory: after a boot they are made anew, with a record that says so",
		do:    []string{heredoc(c.unitPath(), text), "systemctl daemon-reload", "systemctl enable " + c.unit()},
		undo:  []string{"[ ! -e " + c.unitPath() + " ] || systemctl disable " + c.unit(), "rm -f " + c.unitPath(), "systemctl daemon-reload"},
		check: func(h host) (State, string) { return h.bootUnit(c, text) }}
	if !h.systemd {
		s.unneeded = "process 1 is not systemd: let what starts this machine run the same command after mounting " + c.Dir
	}
	return s
}

// BootUnit is the text of the systemd unit: the same command at every boot, once
// what the directory lies on is mounted.
func BootUnit(c Config) string {
	return strings.Join([]string{
		"[Unit]", "Description=Storage for the boxes of " + c.User + " (nsbox)", "RequiresMountsFor=" + c.Dir, "After=local-fs.target", "",
		"[Service]", "Type=oneshot", "RemainAfterExit=yes", "ExecStart=" + c.Binary + " provision --apply --dir " + c.Dir, "",
		"[Install]", "WantedBy=multi-user.target", ""}, "\n")
}

// heredoc writes a file. No text here has a line of the end mark alone.
func heredoc(path, text string) string {
	return "cat >" + path + " <<'nsbox-end'\n" + text + "nsbox-end"
}

// binaryFault says why root must not run or trust a binary by its path, or "".
func binaryFault(path string) string {
	for p := path; ; p = p[:max(1, strings.LastIndexByte(p, '/'))] {
		st, err := os.Lstat(p)
		if err != nil {
			return err.Error()
		}
		uid := ownerOf(st)
		if uid != 0 || st.Mode().Perm()&0o022 != 0 && st.Mode()&os.ModeSticky == 0 {
			return fmt.Sprintf("%s belongs to uid %d with mode %04o, so others than root could replace it", p, uid, st.Mode().Perm())
		}
		if p == "/" {
			return ""
		}
	}
}
