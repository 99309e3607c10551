package scope

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	systemd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
)

// address is a place where a manager may listen.
type address struct {
	dial   string // a D-Bus address
	direct bool   // the manager itself, with no bus daemon between
}

// addresses lists where the manager for uid may be reached, in order. The
// manager's own socket comes first: it needs no bus daemon, and its place
// depends on no variable that sudo or su may have carried over from somebody
// else. session is DBUS_SESSION_BUS_ADDRESS.
func addresses(uid int, session string) []address {
	if uid == 0 {
		return []address{{"unix:path=/run/systemd/private", true}, {"unix:path=/run/dbus/system_bus_socket", false}}
	}
	dir := "/run/user/" + strconv.Itoa(uid)
	list := []address{{"unix:path=" + dir + "/systemd/private", true}}
	// Only sockets: godbus would start a bus of its own for autolaunch:, and run
	// a program for unixexec:.
	for _, a := range strings.Split(session, ";") {
		if strings.HasPrefix(a, "unix:") {
			list = append(list, address{a, false})
		}
	}
	return append(list, address{"unix:path=" + dir + "/bus", false})
}

// connect returns a connection to the first manager that answers, and its
// address. The error names every address with its failure, on one line.
func connect(ctx context.Context, uid int, list []address) (*systemd.Conn, string, error) {
	var all []string
	for _, a := range list {
		conn, err := systemd.NewConnection(func() (*dbus.Conn, error) { return dial(ctx, a, uid) })
		if err == nil {
			// A bus may be there without a manager on it.
			if _, err = conn.GetManagerProperty("Version"); err == nil {
				return conn, a.dial, nil
			}
			conn.Close()
		}
		if ctx.Err() != nil {
			err = ctx.Err() // else it reads as a connection that somebody closed
		}
		all = append(all, fmt.Sprintf("%s: %v", a.dial, err))
	}
	return nil, "", errors.New(strings.ReplaceAll(strings.Join(all, "; "), "\n", " "))
}

func dial(ctx context.Context, a address, uid int) (*dbus.Conn, error) {
	conn, err := dbus.Dial(a.dial, dbus.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	// The number, not the name: looking it up would need the C library.
	err = conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(uid))})
	if err == nil && !a.direct {
		err = conn.Hello()
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}
