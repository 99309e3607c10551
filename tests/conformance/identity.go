package conformance

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strings"
	"syscall"

	"nsbox/launcher/policy"
	"nsbox/tests/harness"
)

func identityFixtures() []Fixture {
	return []Fixture{
		{ID: "S14", Title: "what a taken-over launcher could reach", Profile: "TP-PROD", Run: s14,
			Attempt: "at most 20 looks as the launcher's own identity: canaries, sudo, groups, runtime sockets",
			Shows:   "a map of what that identity reaches; the operator's canary is unreadable", Cannot: "that an escape is impossible"},
		{ID: "S17", Title: "brokered credentials", Profile: "TP-PROD", Quick: true, Run: func(c *Case) {
			c.Stop(NotApplicable, "no credential is ever brokered; a policy that asks for one is refused")
		}, Attempt: "none", Shows: "nothing", Cannot: "anything"},
	}
}

// s14 means the dedicated launcher user; another caller can only be mapped.
func s14(c *Case) {
	me, err := user.Current()
	if err != nil {
		c.Fatal(err)
	}
	groups, _ := me.GroupIds()
	var named []string
	for _, id := range groups {
		if g, err := user.LookupGroupId(id); err == nil {
			named = append(named, g.Name)
		}
	}
	c.Note("identity", fmt.Sprintf("%s, groups %s", me.Username, strings.Join(named, " ")))
	for _, socket := range []string{"/run/docker.sock", "/run/containerd/containerd.sock", "/run/podman/podman.sock", "/run/crio/crio.sock", "/run/libvirt/libvirt-sock"} {
		err := syscall.Access(socket, 2)
		c.Note("access "+socket, fmt.Sprint(err))
		if err == nil {
			c.Note("asset", socket+" gives more than this user's own rights")
		}
	}
	for _, path := range []string{"/root", "/etc/shadow", "/etc/sudoers"} {
		f, err := os.Open(path)
		if err == nil {
			f.Close()
		}
		c.Note("open "+path, fmt.Sprint(err))
	}
	sudo := exec.Command("sudo", "-n", "true")
	c.Note("sudo without a password", fmt.Sprint(sudo.Run()))
	run := c.Do(harness.Job{Code: "pass\n"}).WantOK()
	c.Degraded(run, policy.DimLauncherIdentity, "started by an operator's own account, not the dedicated launcher user of nsbox provision")
	c.Control("the operator's canary exists and this identity can stat its folder", func() {
		if _, err := os.Stat("/etc/shadow"); err != nil {
			c.Error(err)
		}
	})
	if f, err := os.Open("/etc/shadow"); err == nil {
		f.Close()
		c.Error("the launcher's identity reads /etc/shadow")
	}
	if sudo.ProcessState != nil && sudo.ProcessState.ExitCode() == 0 {
		c.Error("the launcher's identity may become root")
	}
}
