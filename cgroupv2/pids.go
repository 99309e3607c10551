package cgroupv2

import "strconv"

const (
	maxTasks = 4 << 20 // PID_MAX_LIMIT of 64-bit kernels; pids.max shows nothing above it

	// boxTasks holds the box leaf: set-up, its child until "go", and init with
	// the threads of the Go runtime, together below 20.
	boxTasks = 64
)

func pidsWrites(l Limits) ([]Write, error) {
	if l.Tasks == 0 {
		return nil, nil
	}
	if l.Tasks < 0 || l.Tasks > maxTasks {
		return nil, badLimit("pids.max", strconv.FormatInt(l.Tasks, 10), "1 to "+strconv.Itoa(maxTasks))
	}
	return []Write{{Controller: "pids", File: "pids.max", Value: strconv.FormatInt(l.Tasks, 10),
		Why: "processes and threads together; a fork beyond it fails with EAGAIN"}}, nil
}

// boxPids is the one limit of the box leaf. Memory is not limited there: nothing
// the workload does is charged to it, and a set-up killed for memory would look
// like a kill from outside.
func boxPids() Write {
	return Write{Controller: "pids", File: "pids.max", Value: strconv.Itoa(boxTasks),
		Why: "a backstop against a fault of set-up or init; the workload does not live here"}
}
