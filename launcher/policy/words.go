package policy

import (
	"strconv"
	"strings"
)

// wordRule is one key with fixed text.
type wordRule struct {
	path   string
	word   *Word
	accept []string // the first is the strict one and stands for null and UNKNOWN
	holds  string   // what nsbox does, whichever accepted word is written
	how    openness
}

// openness says which words that claim nothing are taken as the strict one.
type openness uint8

const (
	plain     openness = iota // null, UNKNOWN and UNVERIFIED
	mechanism                 // also UNVERIFIED_… and …_UNVERIFIED: any mechanism serves if it works
	closed                    // none: the strict reading is one nsbox does not offer
)

func (r *wordRule) takes(w Word) bool {
	for _, a := range r.accept {
		if string(w) == a {
			return true
		}
	}
	return r.strictly(w)
}

// strictly reports whether w claims nothing and the strict value stands in.
func (r *wordRule) strictly(w Word) bool {
	switch r.how {
	case plain:
		return w.unclaimed()
	case mechanism:
		return w.partlyUnclaimed()
	}
	return false
}

// wordRules returns the rule of every fixed word of p.
func (p *Policy) wordRules() []wordRule {
	id, fs, net, proc := &p.ExecutionIdentity, &p.Filesystem, &p.Network, &p.ProcessPolicy
	sec, art, life, adv := &p.SecretsPolicy, &p.ArtifactExport, &p.Lifecycle, &p.AdvancedControls
	one := func(s string) []string { return []string{s} }
	return []wordRule{
		{"isolation_backend.name", &p.IsolationBackend.Name, []string{"rootless_container_runtime_UNVERIFIED", "nsbox-namespaces"}, "nsbox's own namespace box is the backend", plain},
		{"isolation_backend.status", &p.IsolationBackend.Status, one("PROPOSED"), "the backend stays a proposal until evidence is recorded", plain},
		{"execution_identity.workload.scope", &id.Workload.Scope, one("container_userns"), "the ids are those of the box's user namespace", plain},
		{"execution_identity.init.scope", &id.Init.Scope, one("container_userns_only_never_host_root"), "host uid 0 is never mapped into the box", plain},
		{"execution_identity.init.setup_caps", &id.Init.SetupCaps, one("UNVERIFIED_scoped_list"), "the set-up holds only the capabilities its steps name", mechanism},
		{"execution_identity.init.caps_dropped_after", &id.Init.CapsDroppedAfter, one("mounts_cgroup_setup_and_fork"), "init drops every capability after mounts, cgroup set-up and fork", plain},
		{"execution_identity.init.host_mapping", &id.Init.HostMapping, one("UNVERIFIED"), "init is mapped to an id other than host root", mechanism},
		{"execution_identity.exporter.scope", &id.Exporter.Scope, one("separate_disposable_container_userns"), "the exporter has its own disposable box", plain},
		{"execution_identity.exporter.host_mapping", &id.Exporter.HostMapping, one("UNVERIFIED"), "the exporter is mapped to an id other than host root", mechanism},
		{"filesystem.input_mode", &fs.InputMode, one("read_only"), "/in is read-only", plain},
		{"filesystem.rootfs_mode", &fs.RootfsMode, one("read_only"), "the root is read-only", plain},
		{"filesystem.scratch_scope", &fs.ScratchScope, []string{"per_job_tmpfs_noexec_nosuid_nodev_destroyed_at_cleanup_never_exported", scratchExec}, "/scratch is a fresh tmpfs per job, nosuid, nodev, noexec unless the policy leaves that word out, and never exported", plain},
		{"filesystem.export_scope", &fs.ExportScope, p.exportScopes(), "/out is a bounded tmpfs per job from which out_file_count_accept files of allowed_names may leave; without a provisioned one the dimension out_storage is degraded", plain},
		{"network.default", &net.Default, one("deny"), "nothing leaves the box", plain},
		p.networkMode(),
		{"network.ingress", &net.Ingress, one("deny"), "nothing can reach into the box", plain},
		{"network.dns", &net.DNS, one("none"), "the box has no resolver", plain},
		{"network.proxy_env", &net.ProxyEnv, one("unset"), "no proxy variable is set", plain},
		{"network.exceptions", &net.Exceptions, one("BLOCKED_none_requested"), "there are no network exceptions", plain},
		{"process_policy.capabilities", &proc.Capabilities, one("none_after_exec"), "every capability set is empty", plain},
		{"process_policy.seccomp.status", &proc.Seccomp.Status, one("UNVERIFIED"), "the filter is required", mechanism},
		{"process_policy.mac", &proc.MAC, p.macs(), "Landlock is required; only the dimension landlock in degrade weakens it, and lets none be written here", mechanism},
		{"process_policy.tree_kill", &proc.TreeKill, one("cgroup_wide_kill_mechanism_UNVERIFIED"), "the whole tree is killed by cgroup.kill or by its pid namespace's end, and proven gone", mechanism},
		{"process_policy.exec_allowlist", &proc.ExecAllowlist, []string{"python_interpreter_only", namedProgramOnly, AnyProgramInRoot}, "the root holds one program: a Python interpreter, or with " + namedProgramOnly + " the program of the command line; with " + AnyProgramInRoot + " all that rootfs names", plain},
		{"secrets_policy.ambient_secrets", &sec.AmbientSecrets, one("none"), "the box inherits no environment, keyring or file", plain},
		{"secrets_policy.brokered_exceptions", &sec.BrokeredExceptions, one("BLOCKED_none_requested"), "no secret is brokered into the box", plain},
		{"artifact_export.validator", &art.Validator, one("exporter_container_uid_" + strconv.Itoa(id.Exporter.UID) + "_no_network"), "the exporter runs in its own box as execution_identity.exporter.uid, without a network", plain},
		{"artifact_export.source_storage_lifetime", &art.SourceStorageLifetime, one("UNVERIFIED_blocks_export_if_unconfirmed"), "nothing is exported unless /out is shown to outlive the box", mechanism},
		{"artifact_export.immutable_copy.path", &art.ImmutableCopy.Path, one("launcher_owned_export_dir"), "the copy is made in a directory of the launcher", plain},
		{"artifact_export.immutable_copy.immutability", &art.ImmutableCopy.Immutability, one("permissions_plus_digest_manifest_strong_immutability_UNVERIFIED"), "the copy is protected by permissions and its digest, no more", mechanism},
		{"artifact_export.delivery", &art.Delivery, one("separate_atomic_publish_after_cleanup_proof"), "an artifact is published atomically, after cleanup is proven", plain},
		{"lifecycle.unknown_state", &life.UnknownState, one("QUARANTINED_DELIVERY_BLOCKED"), "an unknown state is quarantined and delivers nothing", plain},
		{"lifecycle.policy_update_authority", &life.PolicyUpdateAuthority, one("operator_via_launcher_owned_readonly_file_only"), "only the owner of the policy file changes it", plain},
		{"lifecycle.result_authority", &life.ResultAuthority, one("launcher_after_independent_digest_recheck"), "the launcher hashes the copy again before it decides", plain},
		{"advanced_controls.A1.status", &adv.A1.Status, one("APPLIES"), "launcher, init and workload have separate identities", plain},
		{"advanced_controls.A2.status", &adv.A2.Status, one("APPLIES"), "an exit status and capped pipes are the only channels", plain},
		{"advanced_controls.A3.status", &adv.A3.Status, one("APPLIES"), "limits hold for the whole tree", plain},
		{"advanced_controls.A4.status", &adv.A4.Status, one("NOT_APPLICABLE"), "a lock and quarantine serve one host; there are no distributed epochs", closed},
		{"advanced_controls.A5.status", &adv.A5.Status, one("APPLIES"), "artifacts are examined in the exporter's own box", plain},
	}
}

// exportScopes returns the accepted texts: one per name that may leave, or one
// for several files; others where the document asks for less storage.
func (p *Policy) exportScopes() []string {
	if !p.Exports() {
		return []string{"nothing_is_exported"}
	}
	before, after := "per_job_host_dir_bound_at_/out_", "_on_operator_provisioned_bounded_tmpfs"
	if p.OutStorage == OutHeld {
		before, after = "per_job_tmpfs_at_/out_", "_held_by_the_launcher"
	}
	if p.Resources.OutFileCountAccept.Value > 1 {
		return []string{before + "files_of_allowed_names" + after}
	}
	scopes := make([]string, 0, len(p.ArtifactExport.AllowedNames))
	for _, name := range p.ArtifactExport.AllowedNames {
		scopes = append(scopes, before+"single_file_"+name+after)
	}
	return scopes
}

// quoted writes accepted words for a message.
func quoted(words []string) string {
	q := make([]string, len(words))
	for i, w := range words {
		q[i] = strconv.Quote(w)
	}
	return strings.Join(q, " or ")
}
