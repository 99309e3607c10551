package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"nsbox/launcher/reason"
)

type verifyFlags struct {
	Only    []string
	Profile string
	Quick   bool
	List    bool
	Out     string
	JSON    bool `name:"json"`
}

func verifyWording(texts map[string]words) {
	for key, w := range map[string]words{
		"verify":           {"", "", "Try on this host what nsbox promises, fixture by fixture."},
		"verify --only":    {groupRuns, "ID", "These fixtures only, for example S2,A1a."},
		"verify --profile": {groupRuns, "NAME", "The fixtures of this profile only, for example TP-LOG."},
		"verify --quick":   {groupRuns, "", "The subset that takes less than half a minute."},
		"verify --list":    {groupRuns, "", "List the fixtures and run none."},
		"verify --out":     {groupOut, "DIR", "Write the bundle here: results, evidence, digests and one page to read offline. New or empty."},
		"verify --json":    {groupOut, "", "Print the report as one JSON document."},
	} {
		texts[key] = w
	}
}

const verifyUsage = "nsbox verify [--quick] [--only ID,...] [--profile NAME] [--out DIR] [--json]"

func verifyDetails() string {
	return `
Each fixture plants synthetic canaries in a disposable directory, makes its
positive controls, attempts something through this nsbox, looks at the target
on the host, and compares the host before and after. A fixture whose control
does not hold is TEST_SETUP_FAILURE and never PASS; BLOCKED says what this host
or caller lacks. The fixtures are a program of their own, nsbox-verify, which
make build puts beside nsbox.

Exit status 0 means that no fixture is FAIL, 1 that one is, 125 that nothing ran.

Example:
  nsbox verify --out bundle
`
}

// verifier is the program of the fixtures.
const verifier = "nsbox-verify"

// verify becomes nsbox-verify. It returns only if it cannot.
func verify(f verifyFlags) error {
	self, err := os.Executable()
	if err != nil {
		return reason.Wrap(reason.Internal, "verify", "the place of nsbox's own binary is unknown", "", err)
	}
	path := filepath.Join(filepath.Dir(self), verifier)
	args := []string{path}
	if len(f.Only) > 0 {
		args = append(args, "--only="+strings.Join(f.Only, ","))
	}
	for _, v := range []struct{ flag, value string }{{"--profile=", f.Profile}, {"--out=", f.Out}} {
		if v.value != "" {
			args = append(args, v.flag+v.value)
		}
	}
	for _, v := range []struct {
		flag string
		on   bool
	}{{"--quick", f.Quick}, {"--list", f.List}, {"--json", f.JSON}} {
		if v.on {
			args = append(args, v.flag)
		}
	}
	err = syscall.Exec(path, args, os.Environ())
	if errors.Is(err, fs.ErrNotExist) {
		return reason.New(reason.VerifierMissing, path, "the fixtures are a program of their own and it is not beside nsbox", "make build makes it; copy it along with nsbox")
	}
	return reason.Wrap(reason.VerifierMissing, path, "cannot be run", "check its mode: it must be executable", err)
}
