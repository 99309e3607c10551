package reason

// Plan, doctor, confirm and trace.
const (
	// CapabilityInvalid means that a capability request is not one that can be normalised: an empty program, a relative path, a name that is none.
	CapabilityInvalid ID = "capability_invalid"
	// CapabilityDenied means that the run asks for something the policy does not list.
	CapabilityDenied ID = "capability_denied"
	// EndpointInvalid means that a network destination is not one host and one port.
	EndpointInvalid ID = "endpoint_invalid"
	// BackendUnsupported means that the chosen backend cannot enforce a restriction that the policy requires.
	BackendUnsupported ID = "backend_unsupported"
	// BackendUnknown means that no backend of that name exists.
	BackendUnknown ID = "backend_unknown"
	// PlanChanged means that the plan made for the run is not the one whose digest was given: policy, command, inputs or host have changed in between.
	PlanChanged ID = "plan_changed"
	// TraceFile means that the trace cannot be written; a run that was to be traced and is not counts as failed.
	TraceFile ID = "trace_file"
	// EvidenceInvalid means that an evidence file cannot be read, is not a document of nsbox doctor, or does not have the digest it names.
	EvidenceInvalid ID = "evidence_invalid"
	// EvidenceStale means that an evidence file speaks of another kernel, binary or account than those of this run.
	EvidenceStale ID = "evidence_stale"
	// EvidenceInsufficient means that the evidence does not show what a policy calls CONFIRMED.
	EvidenceInsufficient ID = "evidence_insufficient"
	// ConfirmedMismatch means that the policy calls something CONFIRMED which this run's own attestation does not show.
	ConfirmedMismatch ID = "confirmed_mismatch"
)
