package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nsbox/launcher"
	"nsbox/tests/harness"
)

// TestDemo is the main job: real data, an untrusted script, one delivered file.
func TestDemo(t *testing.T) {
	root, err := harness.Repository()
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.Join(root, "demo", "txhousing-by-city.csv"))
	if err != nil {
		t.Fatal(err)
	}
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		data, program, folder := s.Copy(filepath.Join(root, "demo", "txhousing.csv")), s.Copy(filepath.Join(root, "demo", "summarise.py")), s.Folder()
		before := harness.Fingerprint(t, data, program)
		run := s.Run(harness.Job{Argv: []string{"python3", "/in/summarise.py"}, In: []string{data, program}, Deliver: folder}).WantOK()
		got, err := os.ReadFile(filepath.Join(folder, "summary.csv"))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("the summary differs from txhousing-by-city.csv:\n%s", got)
		}
		sum := sha256.Sum256(want)
		if a := run.Result.Artifact; a.Outcome != launcher.ArtifactAccepted || a.SHA256 != "sha256:"+hex.EncodeToString(sum[:]) || a.Bytes != int64(len(want)) {
			t.Errorf("artifact %+v", a)
		}
		if d := run.Result.Delivery; d.Outcome != launcher.Delivered || d.Path != filepath.Join(folder, "summary.csv") {
			t.Errorf("delivery %+v", d)
		}
		if entries, _ := os.ReadDir(folder); len(entries) != 1 {
			t.Errorf("the delivery folder holds %v", entries)
		}
		if harness.Fingerprint(t, data, program) != before {
			t.Error("an input changed")
		}
		s.WantNoTrace(t)
		t.Logf("%s for the whole command, of which the program ran %.0f ms", run.Took, run.Result.Resources.WallMS)
	})
}

// TestS1 is the specification's own positive control: 200 rows.
func TestS1(t *testing.T) {
	var input, want strings.Builder
	input.WriteString("region,amount\n")
	counts, amounts := map[string]int{}, map[string]int{}
	for n := range 200 {
		region := fmt.Sprintf("region-%d", n%7)
		counts[region]++
		amounts[region] += n * 13
		fmt.Fprintf(&input, "%s,%d\n", region, n*13)
	}
	want.WriteString("region,rows,amount\n")
	for n := range 7 {
		region := fmt.Sprintf("region-%d", n)
		fmt.Fprintf(&want, "%s,%d,%d\n", region, counts[region], amounts[region])
	}
	if input.Len() > 64<<10 || want.Len() > 2<<10 {
		t.Fatal("the fixture is larger than the specification lets it be")
	}
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		folder := s.Folder()
		run := s.Run(harness.Job{Script: script("s1.py"), In: []string{s.File("sales.csv", input.String())}, Deliver: folder}).WantOK()
		got, err := os.ReadFile(filepath.Join(folder, "summary.csv"))
		if err != nil || string(got) != want.String() {
			t.Errorf("%v\ngot  %q\nwant %q", err, got, want.String())
		}
		if rows := run.Result.Artifact.Rows; rows != 8 {
			t.Errorf("%d rows counted, want 8", rows)
		}
	})
}
