package launcher

import (
	"os"
	"strconv"
	"strings"

	"nsbox/launcher/reason"
)

const ownOOMScore = "/proc/self/oom_score_adj"

// killable ends an exemption of this process from the kernel's memory killer,
// proc_pid_oom_score_adj(5): every box would inherit it, and where the kernel does
// not limit the box's memory, everybody else would be killed before the box. A
// launcher that is killed takes its box along. Putting a process first (a
// positive score) stays, for the box too.
func killable(file string) error {
	data, err := os.ReadFile(file)
	if err == nil {
		var n int
		if n, err = strconv.Atoi(strings.TrimSpace(string(data))); err == nil && n < 0 {
			err = os.WriteFile(file, []byte("0"), 0)
		}
	}
	if err != nil {
		return reason.Wrap(reason.HostFactsUnreadable, file, "nothing shows that a box would not be exempt from the kernel's memory killer", "run nsbox where /proc is mounted", err)
	}
	return nil
}
