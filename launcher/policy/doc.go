// Package policy turns the policy document into a typed value that is either
// wholly obeyable or refused.
//
// The way of a document:
//
//	bytes ─ parse ─▶ tree with line numbers ─ bind ─▶ Policy ─ validate ─▶ Policy or Faults
//
// parse is a strict JSON reader that keeps lines. bind matches the tree with the
// struct Policy, whose json tags are the schema: every key is required unless
// its tag says omitempty, and no other key is known. validate holds what types
// cannot say. All three collect; a person sees every fault of a file at once,
// each with its JSON path, its line and a next step. Only broken syntax ends
// the reading early, because nothing after it can be trusted to be in place.
//
// Every key belongs to one of three kinds, and a test walks every leaf of the
// preset to hold this:
//
//   - obeyed: another value changes what is enforced. The resource values
//     (Limits), ids, env_allowlist (Environ), exec_allowlist (PythonOnly,
//     AnyProgram), rootfs (Root),
//     denied_mounts (Denies, DeniesTarget), allowed_names, cleanup_retries,
//     host_launcher.uid, out_storage, degrade.
//   - carried: names and remarks that identify the policy in the plan and the
//     result. policy_id, policy_version, workload_id, note, reason, blockers,
//     provisional, and a status that claims nothing.
//   - fixed: nsbox does one thing and the key has to say so. Any other value is
//     refused with policy_unenforceable, never read as "close enough".
//
// A fixed word may also be null, "UNKNOWN" or "UNVERIFIED" (and, where the
// question is which mechanism serves, a word starting or ending with
// UNVERIFIED). Such a value claims nothing, so the strict value holds in its
// place: process_policy.mac "UNVERIFIED" means that Landlock is required. Lint
// lists every place where this was done. "CONFIRMED" is refused: a document
// cannot confirm itself.
//
// The package touches the host in Load only, which opens a file once, checks
// the opened descriptor and reads from it.
package policy
