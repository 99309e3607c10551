package conformance

import (
	"fmt"
	"strings"
)

// coverage maps each key of the policy, enforcement point, blocker, control and
// threat of the specification to where it is obeyed, a test that shows it, and the
// fixtures about it. A key stands for everything below it; the longest row wins.
//
//	key | code | test | fixtures
const coverage = `
policy_id | launcher/policy | TestManifestVerbatim |
policy_version | launcher/policy | TestManifestVerbatim |
workload_id | launcher/policy | TestManifestVerbatim |
isolation_backend | launcher/confirm.go | TestConfirmWritesWhatIsShownAndNothingElse |
execution_identity.workload | nsexec/compile_child.go | TestA1a | A1a
execution_identity.init | nsexec/init.go | TestHostIdentity | A1a
execution_identity.exporter | launcher/export.go | TestExporterKindOfBox | A5b
execution_identity.host_launcher | launcher/restrictions.go | TestTheNamedLauncherMayLaunch | S14
filesystem.input_mode | launcher/rootfs | TestS3 | S3
filesystem.input_paths | launcher/rootfs | TestInputs | S1
filesystem.rootfs_mode | nsexec/compile_root.go | TestS3 | S3
filesystem.scratch_scope | nsexec/compile_root.go | TestView | S6f S7
filesystem.export_scope | launcher/restrictions.go | TestOut | S10
filesystem.denied_mounts | launcher/policy | TestDeniedMountsHitSourcesAndTargets | S2 A2a B1
filesystem.writable_paths | nsexec/landlock.go | TestS3 | S3
network | launcher/endpoint | TestReach | S5 S12 S15 B3
resources.cpu_rate | cgroupv2 | TestRealCPU | S6a
resources.cpu_total | launcher/monitor.go | TestCPUBudget | S6a S13b A3a
resources.cpu_per_process_rlimit | launcher/plan.go | TestProcessCPU | S13b
resources.wall_workload | launcher/monitor.go | TestS13a | S13a
resources.memory_workload | cgroupv2 | TestMemoryVerdict | S6b
resources.memory_swap | cgroupv2 | TestRealSwap | S6b
resources.tasks_job | launcher/limits.go | TestForkBomb | S6c B4
resources.fd_per_process | launcher/plan.go | TestS6d | S6d
resources.input_bytes | launcher/rootfs | TestInputRefusals | S1
resources.scratch_bytes | nsexec/compile_root.go | TestS6f | S6f
resources.scratch_inodes | nsexec/compile_root.go | TestS6f | S6f
resources.workload_file_size | launcher/plan.go | TestFileSize | S6f
resources.out_bytes | nsexec/compile_root.go | TestS6f | S10
resources.out_inodes | nsexec/compile_root.go | TestS6f | S10
resources.out_file_size_accept | exporter | TestContent | S10
resources.out_file_count_accept | exporter | TestS10 | S10
resources.stdout_bytes | launcher/streams.go | TestS6e | S6e A2b
resources.stderr_bytes | launcher/streams.go | TestCaptureCountsAndCutsExactly | S9
resources.runtime_log_bytes | launcher/audit.go | TestAuditIsCapped |
resources.io_write_rate | launcher/restrictions.go | TestEveryRestrictionIsAttested |
resources.exporter_cpu_total | launcher/limits.go | TestExporterLimits | A5a
resources.exporter_memory | launcher/limits.go | TestExporterLimits | A5a
resources.exporter_tasks | launcher/limits.go | TestExporterLimits | A5a
resources.exporter_fds | launcher/export.go | TestA5b | A5b
resources.exporter_wall | launcher/export.go | TestExporterLimits | A5a
resources.exporter_max_line | exporter | TestContent | A5a
resources.exporter_max_rows | exporter | TestContent | A5a
resources.exporter_log_bytes | launcher/export.go | TestExporterLimits | A5b
resources.budget_provision_boot | launcher/setup.go | TestEveryKeyOfThePolicyShowsInThePlan |
resources.budget_stop_proof | launcher/finalize.go | TestEveryKeyOfThePolicyShowsInThePlan |
resources.budget_exporter_lifecycle | launcher/export.go | TestExporterLimits | A5a
resources.budget_cleanup | launcher/finalize.go | TestEveryKeyOfThePolicyShowsInThePlan |
resources.attempt_hard_deadline | launcher/monitor.go | TestEveryKeyOfThePolicyShowsInThePlan |
process_policy.no_new_privs | nsexec/compile_child.go | TestA1a | A1a
process_policy.capabilities | nsexec/caps | TestA1a | A1a B2
process_policy.seccomp | seccompgen | TestDeniedClassesOneByOne | A1a A2a
process_policy.mac | nsexec/landlock.go | TestLandlockAlone | S3 B2
process_policy.tree_kill | cgroupv2 | TestStubbornTrees | S13a
process_policy.descriptors_inherited | nsexec/compile_child.go | TestA1b | A1b
process_policy.env_allowlist | launcher/plan.go | TestEnviron | A1b
process_policy.exec_allowlist | launcher/rootfs | TestOnlyPythonWhereThePolicySaysSo |
secrets_policy | launcher/policy | TestEveryLeafIsCarriedObeyedOrRefused | S2 S17
artifact_export.allowed_types | exporter | TestS4 | S4
artifact_export.allowed_names | exporter | TestS10 | S10
artifact_export.reject | exporter | TestS4 | S4 S16 B6
artifact_export.types | exporter | TestArtifactTypes | S10
artifact_export.csv_formula | exporter | TestFormulas | S9
artifact_export.byte_order_mark | exporter | TestByteOrderMark | S4
artifact_export.validator | launcher/export.go | TestA5b | A5b
artifact_export.source_storage_lifetime | launcher/restrictions.go | TestOut | S14
artifact_export.immutable_copy | launcher/deliver.go | TestLyingExporter | S11
artifact_export.delivery | launcher/deliver.go | TestDeliverNeverOverwrites | S1
lifecycle.events | launcher/journal | TestEventsOfTheEnd | A4-L
lifecycle.concurrency | launcher/slots.go | TestAsManyAsThePolicySays | A4-L S7
lifecycle.auto_rerun_after_ambiguity | launcher/recover.go | TestLiveLookingCgroupRefuses | A4-L
lifecycle.cleanup_retries | launcher/finalize.go | TestBudgetOfCleanup |
lifecycle.unknown_state | launcher/recover.go | TestKillMatrix | A4-L
lifecycle.policy_update_authority | launcher/policy/load.go | TestLoadForeignOwner | S9
lifecycle.result_authority | launcher/export.go | TestLyingExporter | S9 S11
enforcement_points.EP1 | nsexec | TestView | S2 S3
enforcement_points.EP2 | cgroupv2 | TestMemoryVerdict | S6b S6c
enforcement_points.EP3 | launcher/monitor.go | TestCPUBudget | S6a S6e S13a S13b
enforcement_points.EP4 | seccompgen | TestDeniedClassesOneByOne | A1a A2a
enforcement_points.EP5 | nsexec | TestReach | S5 S12
enforcement_points.EP6 | exporter | TestA5b | S4 S10 S11 S16 A5a A5b
enforcement_points.EP7 | launcher/finalize.go | TestKillMatrix | A4-L
enforcement_points.EP8 | launcher/restrictions.go | TestOut | S10
enforcement_points.EP9 | launcher/restrictions.go | TestEveryRestrictionIsAttested |
advanced_controls.A1 | nsexec | TestHostIdentity | A1a A1b
advanced_controls.A2 | seccompgen | TestA2a | A2a A2b S9
advanced_controls.A3 | launcher/monitor.go | TestCPUBudget | S6a S13b A3a
advanced_controls.A4 | launcher/slots.go | TestSecondStartIsRefused | A4-L
advanced_controls.A5 | launcher/export.go | TestA5b | S4 S11 A5a A5b
blockers.B1 | launcher/probe | TestBlockersAreAllThere | S6a S6b S6c
blockers.B2 | launcher/probe | TestBlockersAreAllThere | S14
blockers.B3 | launcher/export.go | TestExporterKindOfBox | S1 A5b
blockers.B4 | launcher/probe | TestDeniedClassesOneByOne | A1a A2a
blockers.B5 | launcher/outslot | TestOutStorage | S10
blockers.B6 | launcher/doctor_blockers.go | TestBlockersAreAllThere | S14
blockers.B7 | launcher/doctor_blockers.go | TestBlockersAreAllThere | S13a
blockers.B8 | launcher/restrictions.go | TestEveryRestrictionIsAttested |
blockers.B9 | launcher/monitor.go | TestCPUBudget | S6a S13b A3a
blockers.B10 | launcher/prep.go | TestPrepRefuses | S8
blockers.B11 | launcher/deliver.go | TestLyingExporter | S11
blockers.B12 | launcher/finalize.go | TestKillMatrix | A4-L
blockers.B13 | launcher/doctor_blockers.go | TestBlockersAreAllThere | S14
degrade | launcher/policy/dimensions.go | TestDegradeNames | S5 B5
evidence | launcher/confirm.go | TestEvidenceConfirmsWhatThisHostShows |
extends | launcher/policy/extends.go | TestExtendsTightens |
loosen | launcher/policy/extends.go | TestExtendsRefuses |
lifecycle.retention | launcher/gc.go | TestRetentionIsThePolicys |
network.connections | launcher/broker | TestByteCaps |
network.destination_rules | launcher/endpoint | TestDestinationsAreDecided | S5 S15
network.unreachable | launcher/network.go | TestUnreachable | S15
out_storage | launcher/outstorage.go | TestOutStorage |
rootfs | launcher/rootfs | TestPinnedDirectory |
matrix.host-secret-read | nsexec/compile_root.go | TestMagicLinks | S2
matrix.write-outside-or-mount-escape | nsexec/compile_root.go | TestS3 | S3 A1a
matrix.export-traversal-link-race | exporter | TestRaces | S4 S11
matrix.egress-or-bypass | launcher/endpoint | TestReach | S5 S12 S15
matrix.resource-exhaustion | launcher/limits.go | TestBombs | S6a S6b S6c S6d S6e S6f S13a S13b A3a
matrix.cross-job-residue | launcher/finalize.go | TestSecondStartIsRefused | S7
matrix.dependency-tampering | launcher/prep.go | TestPrepRefuses | S8
matrix.injection-and-authority | launcher/verdict.go | TestForgedWords | S9 A2b
matrix.oversize-or-disallowed-output | exporter | TestS10 | S10 S16
matrix.privilege-or-control-channel | seccompgen | TestA1a | A1a A1b A2a
matrix.boundary-failure | launcher/provision | TestHostIdentity | S14
matrix.stale-ownership-double-start | launcher/slots.go | TestSecondStartIsRefused | A4-L
matrix.secret-exception | launcher/policy | TestEveryLeafIsCarriedObeyedOrRefused | S17
matrix.io-saturation | launcher/restrictions.go | TestEveryRestrictionIsAttested |
`

// matrix is how many rows the specification's enforcement matrix has.
const matrix = 14

// Row is one line of coverage.
type Row struct {
	Key, Code, Test string
	Fixtures        []string
}

// Coverage is the table, in order.
func Coverage() (rows []Row) {
	for line := range strings.Lines(strings.TrimSpace(coverage)) {
		f := strings.Split(line, "|")
		for i := range f {
			f[i] = strings.TrimSpace(f[i])
		}
		rows = append(rows, Row{f[0], f[1], f[2], strings.Fields(f[3])})
	}
	return rows
}

// CoverageDoc is docs/coverage.md.
func CoverageDoc() string {
	var b strings.Builder
	b.WriteString("# What obeys and shows each key\n\n" +
		"Every key a policy may have, the specification's enforcement points, controls,\n" +
		"blockers and threats (`matrix`), with the code that obeys it, one test that shows\n" +
		"it, and the fixtures of `nsbox verify` about it. A key stands for everything below\n" +
		"it, unless that has a row of its own.\n\n" +
		"<!-- written by make docs; tests/conformance holds it -->\n\n" +
		"| key | code | test | fixtures |\n|---|---|---|---|\n")
	for _, r := range Coverage() {
		fmt.Fprintf(&b, "| `%s` | `%s` | `%s` | %s |\n", r.Key, r.Code, r.Test, strings.Join(r.Fixtures, " "))
	}
	return b.String()
}
