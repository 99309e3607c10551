package nsexec

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The launcher gets sockets that listen in the box; nobody in the box has one,
// and a connection made inside is accepted outside.
func TestListenersAreHandedOut(t *testing.T) {
	for _, shared := range []bool{false, true} {
		s := endpointSpec()
		s.SharedVM, s.Stdin = shared, false
		s.Command.Path, s.Command.Argv = "/bin/bash", []string{"bash", "-c",
			`exec 5<>/dev/tcp/127.64.0.1/443; echo to-name >&5; exec 6<>/dev/tcp/192.0.2.10/8443; echo to-literal >&6; ls -l /proc/$$/fd | grep -c socket:`}
		files := filesFor(t, s)
		before := openFDs(t)
		box, err := Spawn(s, files, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i, fd := range box.Listeners {
			sa, err := unix.Getsockname(fd)
			if err != nil {
				t.Fatal(err)
			}
			if got := nameOf(sa); got != s.Listen[i].Name {
				t.Errorf("socket %d listens on %s, want %s", i, got, s.Listen[i].Name)
			}
			if fl, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); fl&unix.FD_CLOEXEC == 0 {
				t.Errorf("the launcher's socket %d would outlive an exec", i)
			}
		}
		tcp, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/tcp", box.ChildPID))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(tcp), " 0A "); n != 3 {
			t.Errorf("%d listening IPv4 sockets in the box, want 3:\n%s", n, tcp)
		}
		if err := box.Release(); err != nil {
			t.Fatal(err)
		}
		e := <-box.Done()
		var out [64]byte
		n, _ := unix.Read(int(box.Stdout.Fd()), out[:])
		// Its own two connections and nothing else.
		if got := string(out[:max(n, 0)]); !e.Reported || e.Status != 0 || got != "2\n" {
			t.Errorf("shared %v: %+v, sockets in the box: %q", shared, e, got)
		}
		for i, want := range []string{"to-name\n", "to-literal\n"} {
			fd, _, err := unix.Accept4(box.Listeners[i], unix.SOCK_CLOEXEC)
			if err != nil {
				t.Fatal(err)
			}
			n, err := unix.Read(fd, out[:])
			if err != nil || string(out[:n]) != want {
				t.Errorf("read %q, %v; want %q", out[:n], err, want)
			}
			unix.Close(fd)
		}
		box.closeStreams()
		nothingLeft(t, before, "listeners")
	}
}

func nameOf(sa unix.Sockaddr) string {
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port)).String()
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port)).String()
	}
	return ""
}

// Without endpoints the program is what it always was: no socket, no interface.
func TestNoEndpointNoStep(t *testing.T) {
	for _, s := range mustCompile(t, workloadSpec()).Steps {
		switch s.Nr {
		case unix.SYS_SOCKET, unix.SYS_BIND, unix.SYS_LISTEN, unix.SYS_IOCTL, unix.SYS_SENDTO, unix.SYS_CONNECT:
			t.Errorf("%s makes or changes a socket", s.Name)
		}
		if s.Cap == unix.CAP_NET_ADMIN || s.Cap == unix.CAP_NET_BIND_SERVICE {
			t.Errorf("%s needs power over the network", s.Name)
		}
	}
}

// A refusal by netlink must not look like an acknowledgement.
func TestRouteThatIsThereAlready(t *testing.T) {
	s := endpointSpec()
	const secondRoute = "route:20010db8000000000000000000000005"
	var altered bool
	_, err := spawnAltered(s, filesFor(t, s), nil, func(p *Program) {
		again := routeRequest([]byte{192, 0, 2, 10})
		at := positions(p, secondRoute)[0]
		p.Steps[at].Args[1], p.Steps[at].Args[2], p.Steps[at].Want = bytesArg(again), imm(uintptr(len(again))), int64(len(again))
		altered = true
	})
	step, ok := err.(*StepError)
	if !altered || !ok || step.Step != secondRoute+"-answer" {
		t.Errorf("got %v, want the step that reads the answer", err)
	}
}

func TestListenValidates(t *testing.T) {
	for _, bad := range [][]string{{"0.0.0.0:1"}, {"224.0.0.1:1"}, {"[ff02::1]:1"}, {"127.0.0.1:0"}, {"127.0.0.1:1", "127.0.0.1:1"}, {"127.255.255.254:1"}} {
		s := endpointSpec()
		s.Listen = nil
		for _, at := range bad {
			s.Listen = append(s.Listen, listenAt(at))
		}
		if s.Validate() == nil {
			t.Errorf("%v is listened on", bad)
		}
	}
	s := endpointSpec()
	for len(s.Listen) < MaxListen {
		s.Listen = append(s.Listen, listenAt(fmt.Sprint("127.64.0.1:", 1000+len(s.Listen))))
	}
	box, err := Spawn(s, filesFor(t, s), nil)
	if err != nil {
		t.Fatalf("%d endpoints: %v", MaxListen, err)
	}
	if len(box.Listeners) != MaxListen {
		t.Errorf("%d sockets were handed out", len(box.Listeners))
	}
	box.Abort()
	s.Listen = append(s.Listen, listenAt("127.64.0.1:1"))
	if s.Validate() == nil {
		t.Errorf("%d endpoints are accepted", len(s.Listen))
	}
}
