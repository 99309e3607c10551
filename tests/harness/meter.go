package harness

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// startMeter starts nsbox in a cgroup of its own. The kernel counts there what
// every process of the tree used, dead ones included, whoever reaped them and
// whatever nsbox itself could see: an independent figure. It takes root and a
// version 2 hierarchy, with or without controllers; without them nothing is counted.
func (l *Live) startMeter(t T) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		if _, err := os.Stat(root + "/cgroup.controllers"); err != nil {
			continue
		}
		dir := filepath.Join(root, "e2e-meter-"+l.site.Marker+"-"+strconv.Itoa(l.site.runs))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.Remove(dir); err != nil {
				t.Error(err)
			}
		})
		fd, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { fd.Close() })
		if l.Cmd.SysProcAttr == nil {
			l.Cmd.SysProcAttr = &syscall.SysProcAttr{}
		}
		l.Cmd.SysProcAttr.UseCgroupFD, l.Cmd.SysProcAttr.CgroupFD = true, int(fd.Fd())
		l.meter = dir
		return
	}
}

func (l *Live) metered() time.Duration {
	if l.meter == "" {
		return 0
	}
	data, err := os.ReadFile(filepath.Join(l.meter, "cpu.stat"))
	if err != nil {
		l.site.t.Error(err)
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "usage_usec "); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(rest), 10, 64)
			return time.Duration(n) * time.Microsecond
		}
	}
	return 0
}
