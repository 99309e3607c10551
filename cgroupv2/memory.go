package cgroupv2

import (
	"errors"
	"os"
	"strconv"
	"strings"
)

// pageSize of amd64. memory.max counts in pages: another value would be rounded
// by the kernel and not read back as it was written.
const pageSize = 4096

func memoryWrites(l Limits) ([]Write, error) {
	switch {
	case l.MemoryBytes == 0 && l.SwapBytes == 0:
		return nil, nil
	case l.MemoryBytes < pageSize:
		return nil, badLimit("memory.max", strconv.FormatInt(l.MemoryBytes, 10), "a page at least, wherever swap is limited too")
	case l.SwapBytes < 0:
		return nil, badLimit("memory.swap.max", strconv.FormatInt(l.SwapBytes, 10), "0 or more")
	}
	pages := func(n int64) string { return strconv.FormatInt(n/pageSize*pageSize, 10) }
	return []Write{
		// Swap comes first: there is no moment in which memory is limited and swap is not.
		{Controller: "memory", File: "memory.swap.max", Value: pages(l.SwapBytes), absent: noSwap,
			Why: "memory.max alone is passed by swapping"},
		{Controller: "memory", File: "memory.zswap.max", Value: "0", absent: noZswap,
			Why: "compressed swap is memory too; it is charged, but there is no use for it without swap"},
		{Controller: "memory", File: "memory.oom.group", Value: "1",
			Why: "the job ends as a whole; half of it would go on with a helper gone"},
		{Controller: "memory", File: "memory.max", Value: pages(l.MemoryBytes),
			Why: "the sum over all processes, with tmpfs and kernel memory, rounded down to pages"},
	}, nil
}

// noSwap accepts a missing memory.swap.max where no swap is on. It is missing
// where the kernel was built or started without counting swap.
func noSwap() (string, error) {
	text, err := os.ReadFile("/proc/swaps")
	if errors.Is(err, os.ErrNotExist) {
		return "no such file: this kernel has no swap", nil
	}
	if err != nil {
		return "", err
	}
	return swapless(string(text))
}

// swapless reads /proc/swaps, which is a heading and a line for each area.
func swapless(swaps string) (string, error) {
	if areas := strings.Count(strings.TrimSpace(swaps), "\n"); areas > 0 {
		return "", errors.New(strconv.Itoa(areas) + " swap areas are in use")
	}
	return "no such file: no swap is in use", nil
}

func noZswap() (string, error) { return "no such file: this kernel has no zswap per group", nil }

// MemoryEvents is memory.events of the work leaf. The leaf has no children, so
// the hierarchical and the local counts are the same.
type MemoryEvents struct {
	Max          int64 // times usage met memory.max and something had to be reclaimed
	OOM          int64 // times reclaim did not help against this leaf's own limit
	OOMKill      int64 // processes of this leaf killed by any memory killer, the host's too
	OOMGroupKill int64 // times the leaf was killed as a whole; 0 before Linux 5.17
}

func parseMemoryEvents(text string) (MemoryEvents, error) {
	var e MemoryEvents
	for _, f := range []struct {
		key  string
		to   *int64
		must bool
	}{
		{"max", &e.Max, true}, {"oom", &e.OOM, true}, {"oom_kill", &e.OOMKill, true}, {"oom_group_kill", &e.OOMGroupKill, false},
	} {
		n, err := flatKeyed(text, f.key)
		if err != nil && (f.must || err != errNoField) {
			return e, err
		}
		*f.to = n
	}
	return e, nil
}
