// Without this the Go runtime keeps the host's cgroup files open in every stage.
//go:debug containermaxprocs=0

// Command nsbox-unpack is what runs inside a box that reads images and wheels:
// pid 1 and the unpacker, chosen by the exact name it is started under. It is a
// program of its own because it links what understands the formats, which no
// other stage should carry; embedded into nsbox like cmd/nsbox-stage and never
// installed.
package main

import (
	"os"

	"nsbox/launcher/unpack"
	"nsbox/launcher/unpack/request"
	"nsbox/nsexec"
)

func main() {
	if len(os.Args) > 0 {
		switch os.Args[0] {
		case nsexec.StageInit:
			os.Exit(nsexec.RunInit())
		case request.StageName:
			os.Exit(unpack.Run())
		}
	}
	os.Stderr.WriteString("nsbox: nsbox-unpack is a part of nsbox, not a command\n")
	os.Exit(125)
}
