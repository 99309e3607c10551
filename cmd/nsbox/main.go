// Without this the Go runtime keeps the host's cgroup files open in every stage.
//go:debug containermaxprocs=0

// Command nsbox runs one program in a fresh box of Linux namespaces.
//
// `make build` embeds the program that runs inside a box, cmd/nsbox-stage. A
// plain `go build` has no such image, and nsbox then starts itself under a
// stage's exact name; that is why main looks at its name first. Every other
// name gets the command line: parse (grammar.go, parse.go), act (commands.go,
// exec.go), print (report.go). Only report.go writes to a standard stream, and
// all that a program or a file may have chosen passes escape.go before it meets
// a terminal.
package main

import (
	"os"

	"nsbox/exporter"
	"nsbox/exporter/wipe"
	"nsbox/launcher"
	"nsbox/nsexec"
)

func main() {
	if len(os.Args) > 0 {
		switch os.Args[0] {
		case nsexec.StageInit:
			os.Exit(nsexec.RunInit())
		case exporter.StageName:
			os.Exit(exporter.Run())
		case guardName:
			os.Exit(runGuard())
		case wipe.StageName:
			os.Exit(wipe.Run())
		case launcher.DoctorStage:
			os.Exit(launcher.RunDoctorTrial(os.Args))
		}
	}
	os.Exit(commandLine(os.Args[min(1, len(os.Args)):], standardConsole(), launcher.Run))
}
