package reason

const (
	// BindRefused means that what --ro or --rootfs-add names must not be seen in the box, or not at that place.
	BindRefused ID = "bind_refused"
	// TerminalRefused means that a terminal was asked for where there is none, or where the policy's box has none.
	TerminalRefused ID = "terminal_refused"

	// Usage means that the command line cannot be understood; nothing was started.
	Usage ID = "usage"
	// ResultFile means that the file named by --result cannot be published there.
	ResultFile ID = "result_file"
	// OutputFile means that a file asked for by a command other than exec cannot be written.
	OutputFile ID = "output_file"
	// OutputClosed means that the JSON result could not be written to standard output.
	OutputClosed ID = "output_closed"
	// Internal means that nsbox met a state its authors thought impossible; the run counts as failed.
	Internal ID = "internal_error"
	// VerifierMissing: nsbox verify needs the program nsbox-verify beside nsbox.
	VerifierMissing ID = "verifier_missing"
)
