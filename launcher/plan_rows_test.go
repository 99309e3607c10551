package launcher

import (
	"strings"

	"nsbox/launcher/reason"
)

// planRows is the table of TestEveryKeyOfThePolicyShowsInThePlan: list indices
// are left out, and a key that ends in .* holds for all below without an own row.
func planRows() map[string]planRow {
	refused := planRow{refused: reason.PolicyUnenforceable}
	fixed := func(to any) planRow { return planRow{to: to, refused: reason.PolicyUnenforceable} }
	name := planRow{carried: "names the document in result and journal; decides nothing"}
	why := planRow{carried: "the authors' prose about a control whose status is held to"}
	m := map[string]planRow{
		"policy_id": name, "policy_version": name, "workload_id": name,
		"blockers[]": {carried: "open questions of the policy's authors, for people"},

		"isolation_backend.*": refused,

		"execution_identity.workload.uid": {plan: []string{"box.identity.uids[].inside", "box.root[/etc/passwd].data", "box.root[/out].uid", "box.root[/scratch].uid",
			"box.uid", "exporter.identity.uids[].inside", "restrictions[ids].requested"}},
		"execution_identity.workload.gid": {plan: []string{"box.gid", "box.identity.gids[].inside", "box.root[/etc/group].data", "box.root[/etc/passwd].data",
			"box.root[/out].gid", "box.root[/scratch].gid", "exporter.identity.gids[].inside", "restrictions[ids].requested"}},
		"execution_identity.workload.supplementary_gids": fixed([]any{4}),
		"execution_identity.exporter.uid": {with: map[string]any{"artifact_export.validator": "exporter_container_uid_20003_no_network"},
			plan: []string{"box.root[/etc/group].data", "box.root[/etc/passwd].data", "exporter.identity.uids[].inside", "exporter.uid"}},
		"execution_identity.exporter.gid": {plan: []string{"exporter.gid", "exporter.identity.gids[].inside"}},
		// goodHost's uid is 1000; TestTheNamedLauncherMayLaunch has the control.
		"execution_identity.host_launcher.uid":  fixed(1001),
		"execution_identity.host_launcher.note": {carried: "a note beside the uid, which is held to"},
		"execution_identity.init.setup_caps":    fixed("all"),
		"execution_identity.*":                  refused,

		"filesystem.denied_mounts[]": {to: "/srv/other", plan: []string{"denied_mounts[]"}},
		"filesystem.*":               refused,

		"network.allowed_destinations": {to: []any{"a.example:443"},
			with: map[string]any{"network.mode": "exact_endpoints", "process_policy.seccomp.denied_classes": strings.Fields("mount unshare ptrace keyctl bpf perf_event_open userfaultfd setns AF_VSOCK socket_non_AF_UNIX_or_TCP")},
			plan: []string{"box.listen[127.64.0.1:443].name", "box.root[/etc/hosts].data", "box.root[/etc/pki*", "box.root[/etc/ssl*", "box.root[/usr/lib/ssl*", "filters.workload",
				"network.*", "restrictions[connections]*", "restrictions[endpoints]*", "restrictions[network]*", "restrictions[system-calls]*"}},
		"network.*": refused,

		"process_policy.env_allowlist[]": {to: "HOME", plan: []string{"box.command.env[]"}},
		// What it decides is in TestOnlyPythonWhereThePolicySaysSo.
		"process_policy.exec_allowlist": {to: "named_program_only", plan: []string{"restrictions[exec].requested"}},
		"process_policy.*":              refused,

		"secrets_policy.*": refused,

		"artifact_export.allowed_names[]": {to: "a.csv", with: map[string]any{"filesystem.export_scope": "per_job_host_dir_bound_at_/out_single_file_a.csv_on_operator_provisioned_bounded_tmpfs"},
			plan: []string{"exporter.bounds.allowed_names[]"}},
		"artifact_export.source_storage_lifetime": fixed("forever"),
		"artifact_export.*":                       refused,

		"lifecycle.concurrency":     {plan: []string{"lifecycle.concurrency"}},
		"lifecycle.cleanup_retries": {plan: []string{"lifecycle.cleanup_retries"}},
		"lifecycle.*":               refused,

		"enforcement_points[].implementation_status": {to: "UNKNOWN", carried: "a claim about evidence; nsbox shows its own and cannot be told"},
		"enforcement_points[].*":                     refused,

		"advanced_controls.A1.reason": why, "advanced_controls.A2.reason": why, "advanced_controls.A3.reason": why,
		"advanced_controls.A4.reason": why, "advanced_controls.A5.reason": why,
		"advanced_controls.*": refused,
	}
	for key, fields := range limitFields() {
		at := "resources." + key
		m[at+".value"] = planRow{plan: fields}
		m[at+".unit"] = planRow{refused: reason.PolicyInvalid}
		m[at+".scope"] = refused
		m[at+".provisional"] = planRow{carried: "says where the number came from; the number is enforced either way"}
	}
	m["resources.memory_swap.value"] = refused
	m["resources.out_file_count_accept.value"] = planRow{plan: limitFields()["out_file_count_accept"],
		with: map[string]any{"filesystem.export_scope": "per_job_host_dir_bound_at_/out_files_of_allowed_names_on_operator_provisioned_bounded_tmpfs"}}
	return m
}

// limitFields names what each resource moves. Those with one field below limits
// are enforced while the attempt runs; TestEveryLimitIsUsed holds that somebody
// reads it there.
func limitFields() map[string][]string {
	rlimit := func(name, field string, more ...string) []string {
		return append([]string{"box.rlimits[" + name + "].hard", "box.rlimits[" + name + "].soft", "limits." + field}, more...)
	}
	return map[string][]string{
		"cpu_rate":                  {"limits.CPU.RatePercent", "restrictions[cpu-rate].requested"},
		"cpu_total":                 {"limits.CPU.Total", "restrictions[cpu-total].requested"},
		"cpu_per_process_rlimit":    rlimit("cpu", "CPU.PerProcess"),
		"wall_workload":             {"limits.Wall", "restrictions[wall].requested"},
		"memory_workload":           {"address_space", "degraded[memory].instead", "limits.Memory.Bytes", "restrictions[memory].primitive", "restrictions[memory].requested"},
		"memory_swap":               nil,
		"tasks_job":                 rlimit("nproc", "Tasks", "restrictions[tasks].requested"),
		"fd_per_process":            rlimit("nofile", "FDs"),
		"input_bytes":               {"limits.Input"},
		"scratch_bytes":             {"box.root[/scratch].bytes", "limits.Scratch.Bytes", "restrictions[scratch].requested"},
		"scratch_inodes":            {"box.root[/scratch].inodes", "limits.Scratch.Inodes", "restrictions[scratch].requested"},
		"workload_file_size":        rlimit("fsize", "FileSize"),
		"out_bytes":                 {"box.root[/out].bytes", "limits.Out.Bytes", "restrictions[out].requested"},
		"out_inodes":                {"box.root[/out].inodes", "exporter.bounds.max_entries", "limits.Out.Inodes", "restrictions[out].requested"},
		"out_file_size_accept":      {"exporter.bounds.file_bytes", "limits.Out.FileBytes"},
		"out_file_count_accept":     {"exporter.bounds.file_count", "limits.Out.Files"},
		"stdout_bytes":              {"limits.Log.Stdout", "restrictions[stdout].requested"},
		"stderr_bytes":              {"limits.Log.Stderr", "restrictions[stderr].requested"},
		"runtime_log_bytes":         {"limits.Log.Runtime"},
		"io_write_rate":             {"limits.IOWriteRate", "restrictions[io-write-rate].requested"},
		"exporter_cpu_total":        {"limits.Exporter.CPU"},
		"exporter_memory":           {"limits.Exporter.Memory"},
		"exporter_tasks":            {"limits.Exporter.Tasks"},
		"exporter_fds":              {"limits.Exporter.FDs"},
		"exporter_wall":             {"limits.Exporter.Wall"},
		"exporter_max_line":         {"exporter.bounds.max_line", "limits.Exporter.MaxLine"},
		"exporter_max_rows":         {"exporter.bounds.max_rows", "limits.Exporter.MaxRows"},
		"exporter_log_bytes":        {"limits.Exporter.Log"},
		"budget_provision_boot":     {"limits.Attempt.ProvisionBoot"},
		"budget_stop_proof":         {"limits.Attempt.StopProof"},
		"budget_exporter_lifecycle": {"limits.Attempt.ExporterLifecycle"},
		"budget_cleanup":            {"limits.Attempt.Cleanup"},
		"attempt_hard_deadline":     {"limits.Attempt.Deadline"},
	}
}
