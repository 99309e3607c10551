package escape

import (
	"net"
	"strings"
	"testing"

	"nsbox/tests/harness"
)

// listen accepts and counts connections until the test ends.
func listen(t *testing.T, network, address string) (net.Listener, <-chan struct{}) {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	hits := make(chan struct{}, 64)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			hits <- struct{}{}
			c.Close()
		}
	}()
	return l, hits
}

// TestReach tries every family, and names on the host at which somebody listens.
func TestReach(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		families := job("reach.py", "families")
		if got := reportOf(t, s.Run(families).WantOK())["families"]; got != "1" {
			t.Errorf("sockets of the families %s can be made, want AF_UNIX alone", got)
		}
		if got := reportOf(t, s.OnHost(families))["families"]; len(strings.Fields(got)) < 3 {
			t.Errorf("control: on the host the program makes the families %q only", got)
		}

		name := "nsbox-escape-" + s.Marker
		_, abstractHits := listen(t, "unix", "@"+name)
		tcp, portHits := listen(t, "tcp", "127.0.0.1:0")
		_, port, _ := net.SplitHostPort(tcp.Addr().String())
		names := job("reach.py", "names", name, port)
		report := reportOf(t, s.Run(names).WantOK())
		wantReport(t, report, with(all("abstract_name", "ECONNREFUSED", "EPERM"), all("port", "EPERM"), all("control", "ok"),
			map[string][]string{"/run/systemd/notify": {"ENOENT"}, "/run/docker.sock": {"ENOENT"}, "/dev/log": {"ENOENT"}, "/run/dbus/system_bus_socket": {"ENOENT"}, "/var/run/nscd/socket": {"ENOENT"}}))
		if len(abstractHits)+len(portHits) != 0 {
			t.Errorf("%d connections to the name and %d to the port reached the host", len(abstractHits), len(portHits))
		}
		wantReport(t, reportOf(t, s.OnHost(names)), all("abstract_name port", "ok"))
		<-abstractHits
		<-portHits
	})
}
