package launcher

import (
	"time"

	"nsbox/exporter"
	"nsbox/launcher/attest"
	"nsbox/launcher/reason"
)

// Workload outcomes. They come from the launcher's own acts and the kernel's
// counters, never from what the program wrote.
const (
	Exited              = "EXITED"
	Signaled            = "SIGNALED"
	TimeoutWall         = "TIMEOUT_WALL"
	TimeoutAttempt      = "TIMEOUT_ATTEMPT"
	LimitExceededCPU    = "LIMIT_EXCEEDED_CPU"
	LimitExceededMemory = "LIMIT_EXCEEDED_MEMORY"
	LimitExceededOutput = "LIMIT_EXCEEDED_OUTPUT"
	Cancelled           = "CANCELLED"
	ExecFailed          = "EXEC_FAILED"
	SetupFailure        = "SETUP_FAILURE"
	RefusedBusy         = "REFUSED_BUSY"
	RefusedPolicy       = "REFUSED_POLICY"
	KilledExternally    = "KILLED_EXTERNALLY"
	InternalError       = "INTERNAL_ERROR"
	Unknown             = "UNKNOWN"
)

// Artifact outcomes.
const (
	ArtifactAccepted    = "ACCEPTED"
	ArtifactEmpty       = "EMPTY"
	ArtifactRejected    = "REJECTED"
	ArtifactNotExported = "NOT_EXPORTED_BY_POLICY"
	ArtifactSealFailed  = "SEAL_FAILED"
	ArtifactUnverified  = "COPY_UNVERIFIED"
	ArtifactNotExamined = "NOT_EXAMINED"
	CleanupVerified     = "VERIFIED"
	CleanupQuarantined  = "QUARANTINED"
	Delivered           = "DELIVERED"
	DeliveryNoArtifact  = "NO_ARTIFACT"
	DeliveryBlocked     = "BLOCKED"
	ResultSchema        = "nsbox.result/1"
	BackendName         = "nsbox-namespaces"
)

// Result is the one JSON document of an attempt. Durations are milliseconds,
// sizes bytes. Everything the workload produced stands below Untrusted.
type Result struct {
	Schema      string             `json:"schema"`  // version of this document's shape
	Attempt     string             `json:"attempt"` // id of the attempt; empty if nothing was started
	Backend     string             `json:"backend"` // what enforced
	Version     string             `json:"version"` // of nsbox
	Started     time.Time          `json:"started"` // UTC
	Workload    WorkloadResult     `json:"workload"`
	Artifact    ArtifactResult     `json:"artifact"`     // what became of the file in /out
	Cleanup     CleanupResult      `json:"cleanup"`      // whether everything made for the attempt is proven gone
	Delivery    DeliveryResult     `json:"delivery"`     // whether the artifact was published
	ExitStatus  int                `json:"exit_status"`  // what nsbox itself exits with
	Reason      *Reason            `json:"reason"`       // the first failing step of nsbox, or null
	Policy      PolicyRef          `json:"policy"`       // the policy that was obeyed
	Degraded    []Degradation      `json:"degraded"`     // what was enforced more weakly, by the operator's word
	Digests     Digests            `json:"digests"`      // of what went in and of the rules
	DurationsMS map[string]float64 `json:"durations_ms"` // by phase; "total" is the whole of Run
	Resources   Resources          `json:"resources"`    // measured use
	Untrusted   Untrusted          `json:"untrusted"`    // what the program itself produced
	Attestation []attest.Row       `json:"attestation"`  // one row per restriction: asked, shown, where, how
}

// Reason is reason.Error for machines.
type Reason struct {
	ID   reason.ID `json:"id"`
	What string    `json:"what"`
	Why  string    `json:"why"`
	Next string    `json:"next"`
}

// WorkloadResult says how the workload ended. ExitCode is null unless it
// exited; Signal is null unless a signal ended it.
type WorkloadResult struct {
	Outcome  string `json:"outcome"`
	ExitCode *int   `json:"exit_code"`
	Signal   *int   `json:"signal"`
	Detail   string `json:"detail,omitempty"` // one line from the launcher, e.g. measured overshoot
}

// ArtifactResult is the exporter's verdict after the launcher's own re-hash.
type ArtifactResult struct {
	Outcome string   `json:"outcome"`
	Reasons []string `json:"reasons"` // exporter reason codes, empty unless REJECTED
	Name    string   `json:"name,omitempty"`
	Bytes   int64    `json:"bytes"`
	Rows    int64    `json:"rows"`
	SHA256  string   `json:"sha256,omitempty"`
}

// CleanupResult says whether everything the attempt created is proven gone.
type CleanupResult struct {
	Outcome  string   `json:"outcome"`
	Leftover []string `json:"leftover"`
}

// DeliveryResult says where the accepted artifact was published.
type DeliveryResult struct {
	Outcome string `json:"outcome"`
	Path    string `json:"path,omitempty"`
}

// PolicyRef names the policy that was obeyed.
type PolicyRef struct {
	ID       string `json:"id"`
	Version  string `json:"version"`
	Workload string `json:"workload_id"`
	Source   string `json:"source"` // file path, or preset:NAME
}

// Degradation is a dimension weakened by the operator's word.
type Degradation struct {
	Dimension string `json:"dimension"`
	Instead   string `json:"instead"`     // what holds in its place
	NotCover  string `json:"not_covered"` // what that does not cover
}

// InputDigest is one staged input file, by its name below /in.
type InputDigest struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Digests are lower-case hex SHA-256 values with a "sha256:" prefix.
type Digests struct {
	Policy string        `json:"policy"`
	Plan   string        `json:"plan"`
	Filter string        `json:"filter"`
	Inputs []InputDigest `json:"inputs"`
}

// Resources are what the launcher measured. CPUUsec is the whole tree's.
type Resources struct {
	CPUUsec       int64   `json:"cpu_usec"`
	CPUSource     string  `json:"cpu_source"` // cgroup cpu.stat, or sampled
	MaxRSSBytes   int64   `json:"max_rss_bytes"`
	WallMS        float64 `json:"wall_ms"`
	CPUOvershoot  int64   `json:"cpu_overshoot_usec"`
	WallOvershoot float64 `json:"wall_overshoot_ms"`

	Cgroup *CgroupUse `json:"cgroup"` // null without a job cgroup
}

// CgroupUse is what the kernel counted for the workload's leaf of the job
// cgroup. -1: this kernel does not tell, or the controller is not in force.
type CgroupUse struct {
	MemoryPeak    int64 `json:"memory_peak_bytes"`
	SwapPeak      int64 `json:"swap_peak_bytes"`
	OOMKills      int64 `json:"oom_kills"` // at the leaf's own limit or above it
	TasksPeak     int64 `json:"tasks_peak"`
	TasksDenied   int64 `json:"tasks_denied"` // forks that failed at pids.max
	ThrottledUsec int64 `json:"throttled_usec"`
}

// Untrusted holds what the workload produced; it is data and decides nothing.
type Untrusted struct {
	Note   string `json:"note"`
	Stdout Stream `json:"stdout"`
	Stderr Stream `json:"stderr"`
	// Findings says which entry of /out has which reason, at most 64 of them;
	// names are escaped ASCII.
	Findings []exporter.Finding `json:"findings"`
	Omitted  int                `json:"findings_omitted"`
}

// Stream is one captured stream. Text is valid UTF-8 of the kept prefix with
// invalid bytes escaped; the exact bytes are in the attempt's directory.
type Stream struct {
	BytesTotal int64  `json:"bytes_total"`
	BytesKept  int64  `json:"bytes_kept"`
	Truncated  bool   `json:"truncated"`
	LiveLost   bool   `json:"live_lost"` // the caller's end took no more; all kept bytes are in the attempt's directory
	Text       string `json:"text"`
}
