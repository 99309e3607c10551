package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"nsbox/launcher"
)

// progress is what a person is told while a run begins: which dimensions are held
// more weakly by the policy's word alone, and, on a terminal, how far the copying
// of inputs has come. What was named on this command line is told at the end.
type progress struct {
	c      *console
	policy string
	named  []string // --allow-degraded
	raw    bool     // the terminal is raw: a new line does not begin at its left
	told   []string // dimensions
}

// weaker prints the one line, before the program starts.
func (p *progress) weaker(list []launcher.Degradation) {
	for _, d := range list {
		if !slices.Contains(p.named, d.Dimension) {
			p.told = append(p.told, d.Dimension)
		}
	}
	p.c.freshLine()
	if len(p.told) > 0 {
		p.c.note("held more weakly on this host, as the policy %s allows: %s (nsbox plan says how)", p.policy, strings.Join(p.told, ", "))
		if p.raw {
			_, _ = io.WriteString(p.c.err, "\r")
		}
	}
}

// staging rewrites one line on a terminal.
func (p *progress) staging(bytes int64) {
	fmt.Fprintf(p.c.err, "\rnsbox: copying the inputs, %d MiB so far", bytes>>20)
}

// ask puts the questions into the request.
func (p *progress) ask(req *launcher.Request, quiet bool) {
	if quiet {
		return
	}
	req.Weaker = p.weaker
	if p.c.err.terminal {
		req.Staging = p.staging
	}
}

// untold leaves those that the summary still has to name.
func (o outputs) untold(list []launcher.Degradation) []launcher.Degradation {
	return slices.DeleteFunc(slices.Clone(list), func(d launcher.Degradation) bool { return slices.Contains(o.told, d.Dimension) })
}
