package cgroupv2

import (
	"fmt"
	"strconv"
)

// cpuPeriod is the kernel's own default, in microseconds. With it the smallest
// rate, 1 %, is the smallest quota the kernel takes (1 ms); a shorter period
// would cost more timer work and could not express it, a longer one would stall
// the job for longer at a time.
const cpuPeriod = 100_000

// maxCPUPercent keeps quota and nanoseconds far from the kernel's ends.
const maxCPUPercent = 1_000_000

func cpuWrites(l Limits) ([]Write, error) {
	if l.CPUPercent == 0 {
		return nil, nil
	}
	if l.CPUPercent < 0 || l.CPUPercent > maxCPUPercent {
		return nil, badLimit("cpu.max", strconv.FormatInt(l.CPUPercent, 10)+"%", "1 to "+strconv.Itoa(maxCPUPercent)+" percent of one core")
	}
	return []Write{{Controller: "cpu", File: "cpu.max", Value: fmt.Sprintf("%d %d", l.CPUPercent*cpuPeriod/100, cpuPeriod),
		Why: "microseconds of all cores together in each period of 100 ms"}}, nil
}

// CPUStat is cpu.stat of the work leaf, in microseconds of all cores. The
// throttle counts are 0 where the cpu controller is not in force.
type CPUStat struct {
	Usage, User, System int64
	Throttled           int64 // time in which runnable threads were held back by cpu.max
	Periods             int64 // periods that were throttled
}

func parseCPUStat(text string) (CPUStat, error) {
	var s CPUStat
	for _, f := range []struct {
		key  string
		to   *int64
		must bool
	}{
		{"usage_usec", &s.Usage, true}, {"user_usec", &s.User, true}, {"system_usec", &s.System, true},
		{"throttled_usec", &s.Throttled, false}, {"nr_throttled", &s.Periods, false},
	} {
		n, err := flatKeyed(text, f.key)
		if err != nil && (f.must || err != errNoField) {
			return s, err
		}
		*f.to = n
	}
	return s, nil
}
