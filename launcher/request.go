package launcher

import (
	"io"
	"time"

	"nsbox/launcher/broker"
	"nsbox/launcher/journal"
	"nsbox/launcher/rootfs"
)

// Request is what a caller asks for, before policy and host are consulted.
type Request struct {
	PolicyArg     string    // file path or preset name
	Inputs        []Input   // --in
	Argv          []string  // program and arguments inside the box
	Deliver       string    // directory for the accepted artifact; empty: not asked for
	ResultFile    string    // where to publish the result atomically; empty: nowhere
	Limits        []string  // --limit values, each "key=value[,key=value]"; only tighten
	AllowDegraded []string  // dimension names
	Stdin         bool      // pass the launcher's stdin through a pipe
	StateDir      string    // empty: the default below the caller's state home
	Cgroup        string    // explicit delegated cgroup directory; empty: find one
	RootAdd       []Bind    // --rootfs-add
	Live          []Bind    // --ro
	Terminal      *Terminal // nil: the streams are pipes
	ExpectPlan    string    // digest that the plan must have, inputs included; empty: any

	// Observe is called after each journaled record, in order; it must not block.
	Observe func(journal.Record)

	// Connection is called after each connection of the program's, one at a time; it
	// must not block.
	Connection func(broker.Event)

	// Weaker is called once, before the program starts, with what is degraded.
	Weaker func([]Degradation)

	// Staging is called about once a second while inputs are copied, with the bytes
	// so far; it must not block.
	Staging func(int64)

	// For says whose run it is where it is nsbox's own: "doctor". It stands beside the
	// attempt; empty: the caller's.
	For string

	// Wait is how long to stand in line for a place; 0: refuse at once.
	Wait time.Duration
}

// Bind is one --ro or --rootfs-add argument; an empty Target is the source's own path.
type Bind = rootfs.Bind

// Input is one --in argument.
type Input struct {
	Path string
	Name string // below /in; empty: basename, or the directory's own contents
}

func (r Request) toStage() []rootfs.Input {
	var in []rootfs.Input
	for _, i := range r.Inputs {
		in = append(in, rootfs.Input(i))
	}
	return in
}

func inputDigests(files []rootfs.Staged) []InputDigest {
	out := []InputDigest{}
	for _, f := range files {
		out = append(out, InputDigest{Name: f.Name, Bytes: f.Bytes, SHA256: "sha256:" + f.SHA256})
	}
	return out
}

// Streams are the launcher's own ends. Nothing else is printed by Run.
type Streams struct {
	Stdin  io.Reader // read only if Request.Stdin or Request.Terminal
	Stdout io.Writer // live copy of the workload's stdout, or of its terminal
	Stderr io.Writer // live copy of the workload's stderr
}
