// Command record writes docs/conformance.md from reports of nsbox verify, one
// argument TIER=REPORT each. What a tier does not permit is an error, and so
// nothing is written.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"nsbox/tests/conformance"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	runs := map[string]conformance.Report{}
	for _, arg := range args {
		tier, path, _ := strings.Cut(arg, "=")
		if !slices.Contains(conformance.Tiers(), tier) {
			return fmt.Errorf("there is no tier %q; known are %q", tier, conformance.Tiers())
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var r conformance.Report
		if err := json.Unmarshal(data, &r); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if bad := conformance.Unpermitted(tier, r); len(bad) > 0 {
			return fmt.Errorf("%s: %s", tier, strings.Join(bad, "; "))
		}
		runs[tier] = r
	}
	fmt.Print(conformance.RecordDoc(runs))
	return nil
}
