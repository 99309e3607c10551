//go:build linux && amd64

package nsexec

// cloneArgs is struct clone_args of clone3(2), 88 bytes (CLONE_ARGS_SIZE_VER2, Linux 5.7).
//
//lint:ignore U1000 the kernel reads every field, and most have to be 0
type cloneArgs struct {
	flags, pidfd, childTID, parentTID, exitSignal     uint64
	stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

const cloneArgsSize = 88

// spawn calls clone3 with every signal blocked. The parent gets the raw result;
// the child runs the linked program at prog and never returns.
//
//go:noescape
func spawn(args *cloneArgs, size, prog, errfd uintptr, all, old *uint64) (r uintptr)

// interp is entered by spawn's child only.
//
//lint:ignore U1000 the assembly of spawn calls it
func interp()
