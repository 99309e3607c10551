package reason

// What the launcher itself refuses or meets while it runs an attempt.
const (
	// DegradedNotAllowed means that the policy asks for something this host cannot enforce and nobody allowed its degradation by name.
	DegradedNotAllowed ID = "degraded_not_allowed"
	// ExecNotAllowed means that the policy lets only a Python interpreter run and the command is something else.
	ExecNotAllowed ID = "exec_not_allowed"
	// DeliverDir means that the directory named by --deliver cannot take the artifact.
	DeliverDir ID = "deliver_dir"
	// DeliverExists means that a file of the artifact's name is already in the delivery directory; nothing is ever overwritten.
	DeliverExists ID = "deliver_exists"
	// DeliverFailed means that an accepted artifact could not be published after clean-up was proven.
	DeliverFailed ID = "deliver_failed"
	// StateDir means that nsbox's own state directory is missing, foreign or open to others.
	StateDir ID = "state_dir"
	// Busy means that another attempt holds the lock of this state directory.
	Busy ID = "busy"
	// FilterCompile means that the system call filter could not be compiled.
	FilterCompile ID = "filter_compile"
	// SetupStep means that a step of the set-up sequence failed; the step is named.
	SetupStep ID = "setup_step"
	// SetupGone means that the box was killed from outside before the program was started.
	SetupGone ID = "setup_gone"
	// SetupTimeout means that the box was not ready within the policy's provisioning budget.
	SetupTimeout ID = "setup_timeout"
	// IdMaps means that the id maps of the box could not be written.
	IdMaps ID = "id_maps"
	// AttestMismatch means that the kernel shows something else than the plan asked for; the program was not started.
	AttestMismatch ID = "attestation_mismatch"
	// AttestUnreadable means that what the kernel shows could not be read; the program was not started.
	AttestUnreadable ID = "attestation_unreadable"
	// StopUnproven means that the end of every process of the attempt could not be proven; everything is kept.
	StopUnproven ID = "stop_unproven"
	// ExportFailed means that the exporter's box could not be started or did not report; nothing left /out.
	ExportFailed ID = "export_failed"
	// CleanupUnverified means that something the attempt created is still there.
	CleanupUnverified ID = "cleanup_unverified"
)
