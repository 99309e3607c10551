package provision

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coreos/go-systemd/v22/unit"
	"golang.org/x/sys/unix"

	"nsbox/launcher/outslot"
	"nsbox/launcher/provision"
	"nsbox/tests/harness"
)

// TestAtBoot: the unit is one that systemd understands, and its command, run as
// systemd would after a boot, makes the slots and their records anew.
func TestAtBoot(t *testing.T) {
	o := newOperator(t).apply()
	cfg, err := provision.Recorded(o.Dir)
	if err != nil || cfg == nil {
		t.Fatalf("the record: %v, %v", cfg, err)
	}
	text := provision.BootUnit(*cfg)
	options, err := unit.DeserializeOptions(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	value := func(section, name string) string {
		for _, u := range options {
			if u.Section == section && u.Name == name {
				return u.Value
			}
		}
		t.Errorf("the unit has no %s in [%s]", name, section)
		return ""
	}
	if value("Service", "Type") != "oneshot" || value("Service", "RemainAfterExit") != "yes" || value("Unit", "RequiresMountsFor") != o.Dir || value("Install", "WantedBy") == "" {
		t.Errorf("the unit says %s", text)
	}
	verified(t, text)

	// After a boot the mounts are gone and the records tell of another boot.
	s := harness.NewSite(t, o.Caller())
	job := harness.Job{Code: "print(1)", Bare: true, Flags: degrade()}
	for n := range cfg.Slots {
		if err := unix.Unmount(o.Slot(n), 0); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(outslot.RecordPath(o.Slot(n)), []byte("boot of-yesterday dev 0:1\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if r := s.Run(job); r.Status == 0 {
		t.Error("control: a run without the slots ends well")
	}
	words := strings.Fields(value("Service", "ExecStart"))
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env, cmd.Dir = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin", "LANG=C.UTF-8"}, "/"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%q: %v\n%s", words, err, out)
	}
	o.want("--check")
	wantProvisioned(t, s.Run(job).WantOK())
}

// verified lets systemd's own checker judge the unit, where it is installed. It
// ends with 0 whatever it finds, so its silence is the verdict; a misspelt unit is
// the control.
func verified(t *testing.T, text string) {
	t.Helper()
	tool, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("systemd-analyze is not installed: parsed only")
		return
	}
	say := func(text string) string {
		path := filepath.Join(t.TempDir(), "nsbox-provision-test.service")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		var said bytes.Buffer
		cmd := exec.Command(tool, "verify", "--man=no", path)
		cmd.Stdout, cmd.Stderr = &said, &said
		if err := cmd.Run(); err != nil {
			said.WriteString(err.Error())
		}
		return said.String()
	}
	if said := say(text); said != "" {
		t.Errorf("systemd-analyze verify: %s\n%s", said, text)
	}
	if say(strings.Replace(text, "Type=oneshot", "Type=oneshoot", 1)) == "" {
		t.Error("control: systemd-analyze finds nothing in a misspelt unit")
	}
}
