package reason

// Ids of the policy document, of --limit and of --allow-degraded.
const (
	// PolicyNotFound means that the policy file does not exist or cannot be opened or read.
	PolicyNotFound ID = "policy_not_found"
	// PolicyUnknownPreset means that the argument is neither a preset's name nor an existing file.
	PolicyUnknownPreset ID = "policy_unknown_preset"
	// PolicyNotRegular means that the policy path leads to something other than a regular file.
	PolicyNotRegular ID = "policy_not_regular"
	// PolicyOwner means that the policy file belongs to neither the caller nor root.
	PolicyOwner ID = "policy_owner"
	// PolicyWritable means that somebody besides the owner can write the policy file or replace it in its directory.
	PolicyWritable ID = "policy_writable"
	// PolicyTooLarge means that the policy file is larger than 1 MiB.
	PolicyTooLarge ID = "policy_too_large"
	// PolicyInvalid means that the policy is not the document nsbox decodes: syntax, keys, types, units, ranges or contradictions.
	PolicyInvalid ID = "policy_invalid"
	// PolicyUnenforceable means that the policy asks for something nsbox cannot obey or drops a protection it always applies.
	PolicyUnenforceable ID = "policy_unenforceable"
	// PolicyConfirmedWithoutEvidence means that the policy calls something CONFIRMED, which only recorded evidence may do.
	PolicyConfirmedWithoutEvidence ID = "policy_confirmed_without_evidence"
	// LimitUnknown means that --limit names a limit that does not exist.
	LimitUnknown ID = "limit_unknown"
	// PolicyLoosens means that a policy asks for more than the one it extends gives.
	PolicyLoosens ID = "policy_loosens"
	// LimitLoosens means that --limit asks for more than the policy gives.
	LimitLoosens ID = "limit_loosens"
	// LimitSyntax means that a --limit entry is not written as name=value with the limit's own unit, or is given twice.
	LimitSyntax ID = "limit_syntax"
	// LimitRange means that a --limit value is below what can work or contradicts another limit.
	LimitRange ID = "limit_range"
	// DegradeUnknown means that --allow-degraded or the policy's degrade list names a dimension that does not exist.
	DegradeUnknown ID = "degrade_unknown"
)
