package scope

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"time"

	systemd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"

	"nsbox/cgroupv2"
)

// timeout bounds the whole exchange: one that hangs must not hold the attempt. A
// manager answers at once, but a bus that is started by the first question may
// take seconds on a loaded machine.
const timeout = 30 * time.Second

// Manager is a connection to the systemd manager of the caller, made by the
// first question. It is not for use by several goroutines at once.
type Manager struct {
	ctx    context.Context
	cancel context.CancelFunc
	uid    int
	list   []address
	conn   *systemd.Conn
	where  string
	err    error // why there is no connection
}

// New returns a Manager that answers until ctx is done, or 30 seconds have
// passed. It does nothing yet. Close it.
func New(ctx context.Context) *Manager {
	uid := os.Geteuid()
	return newManager(ctx, uid, addresses(uid, os.Getenv("DBUS_SESSION_BUS_ADDRESS")))
}

func newManager(ctx context.Context, uid int, list []address) *Manager {
	m := &Manager{uid: uid, list: list}
	m.ctx, m.cancel = context.WithTimeout(ctx, timeout)
	return m
}

func (m *Manager) connect() error {
	if m.conn == nil && m.err == nil {
		m.conn, m.where, m.err = connect(m.ctx, m.uid, m.list)
	}
	return m.err
}

// Close ends the connection. A scope that was entered stays.
func (m *Manager) Close() {
	if m.conn != nil {
		m.conn.Close()
	}
	m.cancel()
}

// Delegated reports whether the unit, a scope or a service, was started with
// Delegate=. It is for Search.Delegated; no answer is no.
func (m *Manager) Delegated(unit string) bool {
	if m.connect() != nil {
		return false
	}
	kind := "Service"
	if strings.HasSuffix(unit, ".scope") {
		kind = "Scope"
	}
	p, err := m.conn.GetUnitTypePropertyContext(m.ctx, unit, kind, "Delegate")
	if err != nil {
		return false
	}
	yes, ok := p.Value.Value().(bool)
	return ok && yes
}

// Enter moves the calling process, with all its threads and nothing else, into a
// fresh delegated scope and returns when it is there. Children that were started
// before stay where they are. It is for Search.Scope; the error is a
// *cgroupv2.Error of kind NoManager or ScopeRefused.
func (m *Manager) Enter() error {
	if err := m.connect(); err != nil {
		return &cgroupv2.Error{Kind: cgroupv2.NoManager, Path: "systemd", Op: "ask for a scope", Err: err}
	}
	unit := unitName()
	refused := func(err error) error {
		return &cgroupv2.Error{Kind: cgroupv2.ScopeRefused, Path: unit, Op: "ask " + m.where + " for", Err: err}
	}
	done := make(chan string, 1)
	if _, err := m.conn.StartTransientUnitContext(m.ctx, unit, "fail", properties(), done); err != nil {
		return refused(err)
	}
	select {
	case result := <-done:
		if result != "done" {
			return refused(errors.New("the job ended as " + result))
		}
	case <-m.ctx.Done():
		return refused(m.ctx.Err())
	}
	// Believe the kernel, not the answer.
	self, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return refused(err)
	}
	if !strings.Contains(string(self), "/"+unit+"\n") {
		return refused(errors.New("the job is done, but this process is not in the scope"))
	}
	return nil
}

func properties() []systemd.Property {
	return []systemd.Property{
		systemd.PropDescription("nsbox launcher"),
		// 0 is whoever sent the message. A number would be read in the manager's
		// pid namespace and might name a stranger.
		{Name: "PIDs", Value: dbus.MakeVariant([]uint32{0})},
		{Name: "Delegate", Value: dbus.MakeVariant(true)},
		// Without it a scope that ends by a signal stays listed as failed.
		{Name: "CollectMode", Value: dbus.MakeVariant("inactive-or-failed")},
	}
}

func unitName() string {
	b := make([]byte, 8)
	rand.Read(b) // never fails: documented to crash the program instead
	return "nsbox-" + hex.EncodeToString(b) + ".scope"
}
