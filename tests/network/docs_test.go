package network

import (
	"os"
	"strings"
	"testing"

	"nsbox/launcher"
	"nsbox/tests/harness"
)

// The example of docs/endpoints.md is what nsbox says, line by line.
func TestDocumentedExample(t *testing.T) {
	page, err := os.ReadFile("../../docs/endpoints.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, found := strings.Cut(string(page), "\n## An example\n")
	example, _, ended := strings.Cut(example, "\n## ")
	blocks := indented(example)
	if !found || !ended || len(blocks) != 3 {
		t.Fatalf("%d blocks in the section", len(blocks))
	}
	s := harness.NewSite(t, harness.Callers(t)[0])
	policy, command, want := s.File("fetch.json", blocks[0]), strings.Fields(strings.ReplaceAll(blocks[1], "\\\n", " ")), blocks[2]
	var args []string
	for _, word := range command[1:] {
		if word == "fetch.json" {
			word = policy
		}
		args = append(args, word)
	}
	run := s.Raw(append([]string{args[0], "--state-dir", s.State}, args[1:]...)...)
	at := string(run.Stdout)
	for line := range strings.Lines(want) {
		_, rest, there := strings.Cut(at, line)
		if !there {
			t.Fatalf("nsbox does not say %q after what the page has before it:\n%s%s", line, run.Stdout, run.Stderr)
		}
		at = rest
	}
	if run.Status != launcher.ExitRefused {
		t.Errorf("status %d", run.Status)
	}
	// As the page says, it runs if nothing more is asked for.
	for i, a := range args {
		if a == "--connect" {
			args = append(args[:i:i], args[i+2:]...)
			break
		}
	}
	run = s.Raw(append([]string{args[0], "--state-dir", s.State, "--limit", "network.connections=7"}, args[1:]...)...)
	if !strings.Contains(string(run.Stdout), "32 at once, 7 in total") {
		t.Errorf("with a lower limit:\n%s", run.Stdout)
	}
	if run.Status != 0 || !strings.Contains(string(run.Stdout), "\nRUN\n") {
		t.Errorf("without --connect: status %d\n%s%s", run.Status, run.Stdout, run.Stderr)
	}
}

// indented are a page's blocks of code, without their indentation.
func indented(page string) []string {
	var blocks []string
	inside := false
	for line := range strings.Lines(page) {
		code, is := strings.CutPrefix(line, "    ")
		switch {
		case is && inside:
			blocks[len(blocks)-1] += code
		case is:
			blocks = append(blocks, code)
		}
		inside = is
	}
	return blocks
}
