package policy

import "time"

// Limits are the resource values in SI units, one field per key of the
// document. Sizes are bytes. Every value is positive except Memory.Swap, which
// is 0; no field means "unlimited".
type Limits struct {
	CPU struct {
		RatePercent int           // cpu_rate, of one core
		Total       time.Duration // cpu_total, of the whole tree
		PerProcess  time.Duration // cpu_per_process_rlimit, whole seconds
	}
	Wall   time.Duration // wall_workload
	Memory struct {
		Bytes int64 // memory_workload, tmpfs pages included
		Swap  int64 // memory_swap
	}
	Tasks    int   // tasks_job
	FDs      int   // fd_per_process
	FileSize int64 // workload_file_size
	Input    int64 // input_bytes
	Scratch  struct {
		Bytes, Inodes int64 // scratch_bytes, scratch_inodes
	}
	Out struct {
		Bytes, Inodes int64 // out_bytes, out_inodes
		FileBytes     int64 // out_file_size_accept
		Files         int   // out_file_count_accept
	}
	Log struct {
		Stdout, Stderr int64 // stdout_bytes, stderr_bytes: kept of each stream
		Runtime        int64 // runtime_log_bytes
	}
	IOWriteRate int64 // io_write_rate, bytes per second; nothing enforces it
	Exporter    struct {
		CPU     time.Duration // exporter_cpu_total
		Memory  int64         // exporter_memory
		Tasks   int           // exporter_tasks
		FDs     int           // exporter_fds
		Wall    time.Duration // exporter_wall
		MaxLine int64         // exporter_max_line
		MaxRows int64         // exporter_max_rows
		Log     int64         // exporter_log_bytes
	}
	Attempt struct {
		ProvisionBoot     time.Duration // budget_provision_boot
		StopProof         time.Duration // budget_stop_proof
		ExporterLifecycle time.Duration // budget_exporter_lifecycle
		Cleanup           time.Duration // budget_cleanup
		Deadline          time.Duration // attempt_hard_deadline
	}
}

// Limits returns the resource values of a policy that Decode accepted.
func (p *Policy) Limits() Limits {
	r, l := &p.Resources, Limits{}
	n := func(entry *resource) int64 {
		for i, e := range r.all() {
			if e == entry {
				base, _ := resourceRows[i].base(e)
				return base
			}
		}
		return 0
	}
	d := func(entry *resource) time.Duration { return time.Duration(n(entry)) }

	l.CPU.RatePercent = int(n(&r.CPURate))
	l.CPU.Total = d(&r.CPUTotal)
	l.CPU.PerProcess = d(&r.CPUPerProcessRlimit)
	l.Wall = d(&r.WallWorkload)
	l.Memory.Bytes = n(&r.MemoryWorkload)
	l.Memory.Swap = n(&r.MemorySwap)
	l.Tasks = int(n(&r.TasksJob))
	l.FDs = int(n(&r.FDPerProcess))
	l.FileSize = n(&r.WorkloadFileSize)
	l.Input = n(&r.InputBytes)
	l.Scratch.Bytes = n(&r.ScratchBytes)
	l.Scratch.Inodes = n(&r.ScratchInodes)
	l.Out.Bytes = n(&r.OutBytes)
	l.Out.Inodes = n(&r.OutInodes)
	l.Out.FileBytes = n(&r.OutFileSizeAccept)
	l.Out.Files = int(n(&r.OutFileCountAccept))
	l.Log.Stdout = n(&r.StdoutBytes)
	l.Log.Stderr = n(&r.StderrBytes)
	l.Log.Runtime = n(&r.RuntimeLogBytes)
	l.IOWriteRate = n(&r.IOWriteRate)
	l.Exporter.CPU = d(&r.ExporterCPUTotal)
	l.Exporter.Memory = n(&r.ExporterMemory)
	l.Exporter.Tasks = int(n(&r.ExporterTasks))
	l.Exporter.FDs = int(n(&r.ExporterFDs))
	l.Exporter.Wall = d(&r.ExporterWall)
	l.Exporter.MaxLine = n(&r.ExporterMaxLine)
	l.Exporter.MaxRows = n(&r.ExporterMaxRows)
	l.Exporter.Log = n(&r.ExporterLogBytes)
	l.Attempt.ProvisionBoot = d(&r.BudgetProvisionBoot)
	l.Attempt.StopProof = d(&r.BudgetStopProof)
	l.Attempt.ExporterLifecycle = d(&r.BudgetExporterLifecycle)
	l.Attempt.Cleanup = d(&r.BudgetCleanup)
	l.Attempt.Deadline = d(&r.AttemptHardDeadline)
	return l
}

// budgets is the time an attempt may need when every part uses its own up.
func (l *Limits) budgets() time.Duration {
	a := &l.Attempt
	return a.ProvisionBoot + l.Wall + a.StopProof + a.ExporterLifecycle + a.Cleanup
}
