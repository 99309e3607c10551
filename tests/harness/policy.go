package harness

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"
)

const preset = "sales-summary"

// Change is one value of a policy, by its dotted path.
type Change struct {
	Path  string
	Value any
	Added bool // the preset leaves this key out
}

// tierVariable names the guest of tests/vm that the tests run in.
const tierVariable = "NSBOX_VM_TIER"

// Slow is how many times longer than on an ordinary machine the clock of the
// wall may run here, where everything is emulated. Policies of a Site and the
// bounds of its runs are made longer by it; no other limit is.
func Slow() int {
	if os.Getenv(tierVariable) != "" {
		return 10
	}
	return 1
}

// Whole tells that everything is to be run: every cell of a matrix, every run
// of a series, however long that takes. `NSBOX_TEST_ALL=1 make test` asks for it.
func Whole() bool { return os.Getenv("NSBOX_TEST_ALL") != "" }

// Series is how often a test repeats itself: as often as it claims if the whole
// is asked for, and no more than a usual run of all tests can afford otherwise.
func Series(whole, usual, short int) int {
	switch {
	case Whole():
		return whole
	case testing.Short():
		return short
	}
	return usual
}

// patient multiplies what the clock of the wall bounds.
func patient(doc map[string]any, times int) {
	resources, _ := doc["resources"].(map[string]any)
	for _, value := range resources {
		entry, _ := value.(map[string]any)
		if entry["unit"] != "seconds" {
			continue
		}
		switch seconds := entry["value"].(type) {
		case float64:
			entry["value"] = int(seconds) * times
		case int:
			entry["value"] = seconds * times
		}
	}
}

// Add is a Change that makes a key the preset leaves out.
func Add(path string, value any) Change { return Change{Path: path, Value: value, Added: true} }

// Set is a Change of a resource's value, by the resource's key.
func Set(resource string, value int) Change {
	return Change{Path: "resources." + resource + ".value", Value: value}
}

// Profile returns the changes of a test profile of the specification, by name.
// TP-PROD is the preset itself.
func (s *Site) Profile(name string) []Change {
	s.t.Helper()
	switch name {
	case "TP-PROD":
		return nil
	case "TP-MEM":
		return []Change{Set("memory_workload", 64), Set("memory_swap", 0), Set("cpu_total", 10), Set("wall_workload", 15)}
	case "TP-WALL":
		return []Change{Set("wall_workload", 1), Set("cpu_total", 5)}
	case "TP-CPU":
		return []Change{Set("cpu_total", 2), Set("wall_workload", 20)}
	case "TP-AGG":
		return []Change{Set("cpu_total", 3), Set("cpu_per_process_rlimit", 10), Set("wall_workload", 15)}
	case "TP-PID":
		return []Change{Set("tasks_job", 8), Set("cpu_total", 10), Set("wall_workload", 5)}
	case "TP-FD":
		return []Change{Set("wall_workload", 5)}
	case "TP-LOG":
		return []Change{Set("cpu_total", 10), Set("wall_workload", 10)}
	case "TP-SCR":
		return []Change{Set("wall_workload", 15)}
	}
	s.t.Fatalf("no test profile %s", name)
	return nil
}

// Policy writes a policy file of the caller's and returns its path.
func (s *Site) Policy(changes ...Change) string {
	s.t.Helper()
	shown := s.Raw("policy", "show", preset)
	if shown.Status != 0 {
		s.t.Fatalf("policy show: status %d\n%s", shown.Status, shown.Stderr)
	}
	var doc map[string]any
	if err := json.Unmarshal(shown.Stdout, &doc); err != nil {
		s.t.Fatal(err)
	}
	for _, c := range changes {
		at, keys := doc, strings.Split(c.Path, ".")
		for _, k := range keys[:len(keys)-1] {
			next, ok := at[k].(map[string]any)
			if !ok {
				s.t.Fatalf("the preset has no %s", c.Path)
			}
			at = next
		}
		if _, ok := at[keys[len(keys)-1]]; ok == c.Added {
			s.t.Fatalf("the preset has %s: %v", c.Path, ok)
		}
		at[keys[len(keys)-1]] = c.Value
	}
	patient(doc, Slow())
	data, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		s.t.Fatal(err)
	}
	s.free++
	return s.File("policy-"+strconv.Itoa(s.free)+".json", string(data))
}
