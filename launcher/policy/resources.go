package policy

import "time"

// resource is one entry of the manifest's resources object. Value counts Unit;
// times may have a fraction down to a millisecond.
type resource struct {
	Value       float64 `json:"value"`
	Unit        string  `json:"unit"`
	Scope       string  `json:"scope"`
	Provisional bool    `json:"provisional"`
}

// resources has one field per key, in the order of resourceRows.
type resources struct {
	CPURate                 resource `json:"cpu_rate"`
	CPUTotal                resource `json:"cpu_total"`
	CPUPerProcessRlimit     resource `json:"cpu_per_process_rlimit"`
	WallWorkload            resource `json:"wall_workload"`
	MemoryWorkload          resource `json:"memory_workload"`
	MemorySwap              resource `json:"memory_swap"`
	TasksJob                resource `json:"tasks_job"`
	FDPerProcess            resource `json:"fd_per_process"`
	InputBytes              resource `json:"input_bytes"`
	ScratchBytes            resource `json:"scratch_bytes"`
	ScratchInodes           resource `json:"scratch_inodes"`
	WorkloadFileSize        resource `json:"workload_file_size"`
	OutBytes                resource `json:"out_bytes"`
	OutInodes               resource `json:"out_inodes"`
	OutFileSizeAccept       resource `json:"out_file_size_accept"`
	OutFileCountAccept      resource `json:"out_file_count_accept"`
	StdoutBytes             resource `json:"stdout_bytes"`
	StderrBytes             resource `json:"stderr_bytes"`
	RuntimeLogBytes         resource `json:"runtime_log_bytes"`
	IOWriteRate             resource `json:"io_write_rate"`
	ExporterCPUTotal        resource `json:"exporter_cpu_total"`
	ExporterMemory          resource `json:"exporter_memory"`
	ExporterTasks           resource `json:"exporter_tasks"`
	ExporterFDs             resource `json:"exporter_fds"`
	ExporterWall            resource `json:"exporter_wall"`
	ExporterMaxLine         resource `json:"exporter_max_line"`
	ExporterMaxRows         resource `json:"exporter_max_rows"`
	ExporterLogBytes        resource `json:"exporter_log_bytes"`
	BudgetProvisionBoot     resource `json:"budget_provision_boot"`
	BudgetStopProof         resource `json:"budget_stop_proof"`
	BudgetExporterLifecycle resource `json:"budget_exporter_lifecycle"`
	BudgetCleanup           resource `json:"budget_cleanup"`
	AttemptHardDeadline     resource `json:"attempt_hard_deadline"`
}

// all returns the entries in the order of resourceRows.
func (r *resources) all() [resourceCount]*resource {
	return [...]*resource{
		&r.CPURate, &r.CPUTotal, &r.CPUPerProcessRlimit, &r.WallWorkload, &r.MemoryWorkload,
		&r.MemorySwap, &r.TasksJob, &r.FDPerProcess, &r.InputBytes, &r.ScratchBytes,
		&r.ScratchInodes, &r.WorkloadFileSize, &r.OutBytes, &r.OutInodes, &r.OutFileSizeAccept,
		&r.OutFileCountAccept, &r.StdoutBytes, &r.StderrBytes, &r.RuntimeLogBytes, &r.IOWriteRate,
		&r.ExporterCPUTotal, &r.ExporterMemory, &r.ExporterTasks, &r.ExporterFDs, &r.ExporterWall,
		&r.ExporterMaxLine, &r.ExporterMaxRows, &r.ExporterLogBytes, &r.BudgetProvisionBoot, &r.BudgetStopProof,
		&r.BudgetExporterLifecycle, &r.BudgetCleanup, &r.AttemptHardDeadline,
	}
}

// Base quantities: times count nanoseconds, sizes bytes, everything else itself.
const (
	second      = int64(time.Second)
	millisecond = int64(time.Millisecond)
	page        = 4096 // tmpfs rounds its size up to pages, which would loosen it
	maxTime     = 30 * 24 * 3600 * second
	maxSize     = 1 << 50
	maxCapture  = 64 << 20 // kept in the launcher's memory and in the result
)

// resourceRow says how one entry is read. The scope is fixed text: it names the
// place where nsbox enforces the value, and there is only one such place.
type resourceRow struct {
	key     string
	unit    string // the manifest's; a size may be in any unit of its family
	scope   string
	min     int64 // base quantity
	max     int64
	step    int64  // the value has to be a multiple
	limit   string // name for --limit; empty: not on the command line
	example string // value for --limit
}

const resourceCount = 33

var resourceRows = [resourceCount]resourceRow{
	{"cpu_rate", "percent_of_one_core", "job_cgroup", 1, 100000, 1, "cpu_rate", "50%"},
	{"cpu_total", "cpu_seconds", "job_cgroup_aggregate_launcher_monitor", millisecond, maxTime, millisecond, "cpu", "5s"},
	{"cpu_per_process_rlimit", "cpu_seconds", "per_process_additional_not_job_budget", second, maxTime, second, "cpu_process", "5s"},
	{"wall_workload", "seconds", "workload_run_buyer_requested", millisecond, maxTime, millisecond, "wall", "5s"},
	{"memory_workload", "MiB", "job_cgroup_including_scratch_tmpfs_charge", 1 << 20, maxSize, 1, "memory", "128M"},
	{"memory_swap", "MiB", "job_cgroup", 0, 0, 1, "", ""},
	{"tasks_job", "tasks", "job_cgroup_processes_and_threads", 1, 1 << 22, 1, "tasks", "8"},
	{"fd_per_process", "fds", "per_process_RLIMIT_NOFILE", 4, 1 << 20, 1, "fds", "32"},
	{"input_bytes", "MiB", "staged_input_total", 1, maxSize, 1, "input", "16M"},
	{"scratch_bytes", "MiB", "scratch_tmpfs", page, maxSize, page, "scratch", "32M"},
	{"scratch_inodes", "inodes", "scratch_tmpfs", 2, 1 << 40, 1, "scratch_inodes", "128"},
	{"workload_file_size", "MiB", "per_process_RLIMIT_FSIZE", 1, maxSize, 1, "file_size", "32M"},
	{"out_bytes", "MiB", "out_mount_total", page, maxSize, page, "out", "4M"},
	{"out_inodes", "inodes", "out_mount", 2, 1 << 40, 1, "out_inodes", "32"},
	{"out_file_size_accept", "MiB", "per_exported_file_exporter_check", 1, maxSize, 1, "out_file", "512K"},
	{"out_file_count_accept", "files", "export", 1, maxFiles, 1, "", ""},
	{"stdout_bytes", "bytes", "captured_stream", 1, maxCapture, 1, "stdout", "16K"},
	{"stderr_bytes", "bytes", "captured_stream", 1, maxCapture, 1, "stderr", "16K"},
	{"runtime_log_bytes", "bytes", "runtime_and_launcher_collected_logs", 1, maxCapture, 1, "log", "64K"},
	{"io_write_rate", "bytes_per_second", "job_cgroup_io_max_enforcement_BLOCKED_tmpfs_not_covered", 1, maxSize, 1, "", ""},
	{"exporter_cpu_total", "cpu_seconds", "exporter_container_aggregate", millisecond, maxTime, millisecond, "", ""},
	{"exporter_memory", "MiB", "exporter_container", 1 << 20, maxSize, 1, "", ""},
	{"exporter_tasks", "tasks", "exporter_container", 4, 1 << 22, 1, "", ""},
	{"exporter_fds", "fds", "exporter_per_process", 16, 1 << 20, 1, "", ""},
	{"exporter_wall", "seconds", "exporter_lifecycle", millisecond, maxTime, millisecond, "", ""},
	{"exporter_max_line", "bytes", "csv_validation", 1, maxCapture, 1, "line", "4K"},
	{"exporter_max_rows", "rows", "csv_validation", 1, 1 << 40, 1, "rows", "1000"},
	{"exporter_log_bytes", "bytes", "exporter_log_stream", 1, maxCapture, 1, "", ""},
	{"budget_provision_boot", "seconds", "attempt_budget_incl_input_staging", millisecond, maxTime, millisecond, "", ""},
	{"budget_stop_proof", "seconds", "attempt_budget", millisecond, maxTime, millisecond, "", ""},
	{"budget_exporter_lifecycle", "seconds", "attempt_budget", millisecond, maxTime, millisecond, "", ""},
	{"budget_cleanup", "seconds", "attempt_budget", millisecond, maxTime, millisecond, "", ""},
	{"attempt_hard_deadline", "seconds", "attempt_wide_must_be_gte_sum_65", millisecond, maxTime, millisecond, "deadline", "66s"},
}
