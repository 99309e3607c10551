package scope

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"nsbox/cgroupv2"
)

func TestAddresses(t *testing.T) {
	join := func(list []address) string {
		var s []string
		for _, a := range list {
			s = append(s, a.dial)
		}
		return strings.Join(s, " ")
	}
	for _, c := range []struct {
		uid           int
		session, want string
	}{
		{1000, "", "unix:path=/run/user/1000/systemd/private unix:path=/run/user/1000/bus"},
		{1000, "unix:path=/x;autolaunch:;unixexec:path=/bin/sh;tcp:host=h", "unix:path=/run/user/1000/systemd/private unix:path=/x unix:path=/run/user/1000/bus"},
		{0, "unix:path=/x", "unix:path=/run/systemd/private unix:path=/run/dbus/system_bus_socket"},
	} {
		if got := join(addresses(c.uid, c.session)); got != c.want {
			t.Errorf("uid %d, %q:\n%s, want\n%s", c.uid, c.session, got, c.want)
		}
	}
}

// Where no manager is, the refusal says so, quickly and on one line; where one
// is, the process ends up in a scope of its own that it can fill. Both are run:
// the second only under systemd, which the virtual machine tier has.
func TestEnter(t *testing.T) {
	start := time.Now()
	m := New(context.Background())
	defer m.Close()
	err := m.Enter()
	took := time.Since(start)
	if _, statErr := os.Stat("/run/systemd/system"); errors.Is(statErr, os.ErrNotExist) {
		var e *cgroupv2.Error
		if !errors.As(err, &e) || e.Kind != cgroupv2.NoManager || strings.Contains(err.Error(), "\n") {
			t.Fatalf("without systemd: %v", err)
		}
		if took > time.Second {
			t.Errorf("took %v to say so", took)
		}
		if m.Delegated("init.scope") {
			t.Error("nobody answers, and that is a yes")
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("scope after %v", took)
	r, err := cgroupv2.Search{Delegated: m.Delegated}.Find()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if !strings.HasSuffix(r.Path(), ".scope") || !strings.Contains(r.Path(), "/nsbox-") {
		t.Errorf("found %s, want the scope", r.Path())
	}
	for _, c := range []string{"memory", "pids"} {
		if err := r.Lack(c); err != nil {
			t.Errorf("%s: %v", c, err)
		}
	}
}
