package main

import (
	"os"
	"strings"
)

// defaultShell is what `nsbox shell` runs: the everyday box has the host's /usr.
func defaultShell() string {
	if _, err := os.Stat("/usr/bin/bash"); err == nil {
		return "bash"
	}
	return "sh"
}

// shellWording repeats the words of exec: shell takes the same flags.
func shellWording(texts map[string]words) {
	for key, w := range texts {
		if rest, ok := strings.CutPrefix(key, "exec --"); ok {
			texts["shell --"+rest] = w
		}
	}
	texts["shell"] = words{help: "Open a shell, or another program, in a box with a terminal."}
}

const shellUsage = "nsbox shell [--ro PATH[:PLACE]]... [flags] [-- CMD [ARG...]]"

func shellDetails() string {
	return `
It is exec -t, with bash where no program is named. Keys go to the box as they
are: Ctrl-C and Ctrl-Z are the shell's inside, and the window's size is passed
on. What the program prints reaches this terminal unchanged, escape sequences
included; without -t, exec escapes it.

Examples:
  A shell over a working tree that stays as it is:
    nsbox shell --ro ~/src/project
  A Python of a virtual environment:
    nsbox shell --rootfs-add ~/venv -- python
`
}

func schemaDetails() string {
	return `
What the schema accepts is not therefore a policy: nsbox policy lint decides.

Example:
  nsbox policy schema >nsbox-policy.schema.json
`
}
