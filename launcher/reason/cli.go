package reason

const (
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
