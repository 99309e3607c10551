// Without this the Go runtime keeps the host's cgroup files open in every stage.
//go:debug containermaxprocs=0

// Command nsbox-stage is what runs inside a box of nsbox's own code: pid 1,
// the exporter and the wipe of a provisioned /out, chosen by the exact name it is started under. It is built
// without cgo and without the command line's libraries, embedded into nsbox and
// never installed: fewer package inits run with a stage's rights, it starts
// faster, and the Go runtime needs one thread less, which is what lets the
// exporter live within four tasks.
package main

import (
	"os"

	"nsbox/exporter"
	"nsbox/exporter/wipe"
	"nsbox/nsexec"
)

func main() {
	if len(os.Args) > 0 {
		switch os.Args[0] {
		case nsexec.StageInit:
			os.Exit(nsexec.RunInit())
		case exporter.StageName:
			os.Exit(exporter.Run())
		case wipe.StageName:
			os.Exit(wipe.Run())
		}
	}
	os.Stderr.WriteString("nsbox: nsbox-stage is a part of nsbox, not a command\n")
	os.Exit(125)
}
