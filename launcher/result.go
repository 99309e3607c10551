package launcher

import (
	"time"

	"nsbox/exporter"
	"nsbox/launcher/attest"
	"nsbox/launcher/broker"
	"nsbox/launcher/reason"
)

// Workload outcomes. They come from the launcher's own acts and the kernel's
// counters, never from what the program wrote.
const (
	Exited              = "EXITED"                // the program ended by itself; its exit code stands beside it
	Signaled            = "SIGNALED"              // a signal of the box's own making ended the program, as in a crash
	TimeoutWall         = "TIMEOUT_WALL"          // ended by the limit on the program's time
	TimeoutAttempt      = "TIMEOUT_ATTEMPT"       // ended by the limit on the time of the whole attempt
	LimitExceededCPU    = "LIMIT_EXCEEDED_CPU"    // ended by the limit on CPU time
	LimitExceededMemory = "LIMIT_EXCEEDED_MEMORY" // ended by the limit on memory
	LimitExceededOutput = "LIMIT_EXCEEDED_OUTPUT" // ended by the cap of standard output or standard error
	Cancelled           = "CANCELLED"             // ended because nsbox was told to stop
	ExecFailed          = "EXEC_FAILED"           // the program was not found or could not be executed
	SetupFailure        = "SETUP_FAILURE"         // the program was never started; the reason says why
	RefusedBusy         = "REFUSED_BUSY"          // never started: the state directory had no free place
	RefusedPolicy       = "REFUSED_POLICY"        // never started: the policy or a limit was refused
	KilledExternally    = "KILLED_EXTERNALLY"     // something outside of nsbox killed the program
	InternalError       = "INTERNAL_ERROR"        // a fault of nsbox; nothing is claimed about the program
	Unknown             = "UNKNOWN"               // the launcher died before it could record the end, or could not prove the stop
)

// Artifact outcomes.
const (
	ArtifactAccepted    = "ACCEPTED"               // every file in /out passed every check and was copied out
	ArtifactEmpty       = "EMPTY"                  // the program left nothing in /out
	ArtifactRejected    = "REJECTED"               // what was in /out failed a check; reasons says which
	ArtifactNotExported = "NOT_EXPORTED_BY_POLICY" // not looked at, because the program did not exit 0 or the policy lets nothing leave
	ArtifactSealFailed  = "SEAL_FAILED"            // /out could not be sealed, or the exporter gave no verdict: nothing left /out, and it is kept
	ArtifactUnverified  = "COPY_UNVERIFIED"        // the copy was not what the exporter had reported
	ArtifactNotExamined = "NOT_EXAMINED"           // there was nothing to look at, or the box's end was not proven
)

// Cleanup outcomes.
const (
	CleanupVerified    = "VERIFIED"    // everything made for the attempt is proven gone
	CleanupQuarantined = "QUARANTINED" // something is left or not proven gone; nsbox reconcile ends it
)

// Delivery outcomes.
const (
	Delivered          = "DELIVERED"   // the accepted artifact stands at path
	DeliveryNoArtifact = "NO_ARTIFACT" // there was nothing to deliver
	DeliveryBlocked    = "BLOCKED"     // held back: no verdict, quarantined, or the directory could not take it
)

const (
	ResultSchema = "nsbox.result/1"
	BackendName  = "nsbox-namespaces"
)

// Result is the one JSON document of an attempt. Durations are milliseconds,
// sizes bytes. Everything the workload produced stands below Untrusted.
type Result struct {
	Schema      string             `json:"schema"`       // version of this document's shape
	Attempt     string             `json:"attempt"`      // id of the attempt; empty if nothing was started
	Backend     string             `json:"backend"`      // what enforced
	Version     string             `json:"version"`      // of nsbox
	Started     time.Time          `json:"started"`      // UTC
	Workload    WorkloadResult     `json:"workload"`     // how the program ended
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
	Network     *broker.Use        `json:"network"`      // connections to the policy's destinations; null where it lists none
	Untrusted   Untrusted          `json:"untrusted"`    // what the program itself produced
	Attestation []attest.Row       `json:"attestation"`  // one row per restriction: asked, shown, where, how
}

// Reason is reason.Error for machines.
type Reason struct {
	ID   reason.ID `json:"id"`   // stable; see reasons.md
	What string    `json:"what"` // the thing concerned: a path, a key, a step
	Why  string    `json:"why"`  // what is wrong with it
	Next string    `json:"next"` // the next step for a person; may be empty
}

// WorkloadResult says how the workload ended.
type WorkloadResult struct {
	Outcome  string `json:"outcome"`          // a workload outcome
	ExitCode *int   `json:"exit_code"`        // null unless it exited
	Signal   *int   `json:"signal"`           // null unless a signal ended it
	Detail   string `json:"detail,omitempty"` // one line from the launcher, e.g. measured overshoot
}

// ArtifactResult is the exporter's verdict after the launcher's own re-hash.
type ArtifactResult struct {
	Outcome string   `json:"outcome"`          // an artifact outcome
	Reasons []string `json:"reasons"`          // artifact reason codes, empty unless REJECTED
	Name    string   `json:"name,omitempty"`   // one of the policy's allowed names
	Bytes   int64    `json:"bytes"`            // of the accepted file, or of all of them
	Rows    int64    `json:"rows"`             // CSV records or lines of text, a header counted
	SHA256  string   `json:"sha256,omitempty"` // of the accepted file, or of manifest.json, which lists them

	// Files is set where the policy lets more than one file leave; name and rows
	// are each file's own then.
	Files []ArtifactFile `json:"files,omitempty"`
}

// ArtifactFile is one accepted file of several.
type ArtifactFile struct {
	Name   string `json:"name"`   // one of the policy's allowed names
	Type   string `json:"type"`   // csv, text, json or binary
	Bytes  int64  `json:"bytes"`  // of the copy
	Rows   int64  `json:"rows"`   // CSV records or lines of text, a header counted; 0 for other types
	SHA256 string `json:"sha256"` // of the copy
}

// CleanupResult says whether everything the attempt created is proven gone.
type CleanupResult struct {
	Outcome  string   `json:"outcome"`  // a cleanup outcome
	Leftover []string `json:"leftover"` // what is left, empty if VERIFIED
}

// DeliveryResult says where the accepted artifact was published.
type DeliveryResult struct {
	Outcome string `json:"outcome"`        // a delivery outcome
	Path    string `json:"path,omitempty"` // absolute; of the published file, or of the directory of several

	// Paths are those of several files, in the order of artifact.files.
	Paths []string `json:"paths,omitempty"`
}

// PolicyRef names the policy that was obeyed.
type PolicyRef struct {
	ID       string `json:"id"`          // policy_id of the document
	Version  string `json:"version"`     // policy_version of the document
	Workload string `json:"workload_id"` // workload_id of the document
	Source   string `json:"source"`      // file path, or preset:NAME
}

// Degradation is a dimension weakened by the operator's word.
type Degradation struct {
	Dimension string `json:"dimension"`   // as --allow-degraded names it
	Instead   string `json:"instead"`     // what holds in its place
	NotCover  string `json:"not_covered"` // what that does not cover
}

// InputDigest is one staged input file, by its name below /in.
type InputDigest struct {
	Name   string `json:"name"`   // below /in
	Bytes  int64  `json:"bytes"`  // of the copy
	SHA256 string `json:"sha256"` // of the copy
}

// Digests are lower-case hex SHA-256 values with a "sha256:" prefix.
type Digests struct {
	Policy string        `json:"policy"` // the policy file, or the preset
	Plan   string        `json:"plan"`   // what nsbox plan shows, of plan and inputs; empty if the run ended before they were read
	Filter string        `json:"filter"` // the compiled system-call filter
	Inputs []InputDigest `json:"inputs"` // what was copied to /in
}

// Resources are what the launcher measured. CPUUsec is the whole tree's.
type Resources struct {
	CPUUsec       int64   `json:"cpu_usec"`           // user and system time
	CPUSource     string  `json:"cpu_source"`         // cgroup cpu.stat, or sampled
	MaxRSSBytes   int64   `json:"max_rss_bytes"`      // largest resident set that was seen
	WallMS        float64 `json:"wall_ms"`            // from "go" to the end
	CPUOvershoot  int64   `json:"cpu_overshoot_usec"` // used beyond the limit
	WallOvershoot float64 `json:"wall_overshoot_ms"`  // run beyond the limit

	Cgroup *CgroupUse `json:"cgroup"` // null without a job cgroup
}

// CgroupUse is what the kernel counted for the workload's leaf of the job
// cgroup. -1: this kernel does not tell, or the controller is not in force.
type CgroupUse struct {
	MemoryPeak    int64 `json:"memory_peak_bytes"` // memory.peak
	SwapPeak      int64 `json:"swap_peak_bytes"`   // memory.swap.peak
	OOMKills      int64 `json:"oom_kills"`         // at the leaf's own limit or above it
	TasksPeak     int64 `json:"tasks_peak"`        // pids.peak
	TasksDenied   int64 `json:"tasks_denied"`      // forks that failed at pids.max
	ThrottledUsec int64 `json:"throttled_usec"`    // held back by cpu.max
}

// Untrusted holds what the workload produced; it is data and decides nothing.
type Untrusted struct {
	Note   string `json:"note"`   // that this is data and no instruction
	Stdout Stream `json:"stdout"` // of the program
	Stderr Stream `json:"stderr"` // of the program
	// Findings says which entry of /out has which reason, at most 64 of them;
	// names are escaped ASCII.
	Findings []exporter.Finding `json:"findings"`
	Omitted  int                `json:"findings_omitted"` // findings beyond those
}

// Stream is one captured stream. Text is valid UTF-8 of the kept prefix with
// invalid bytes escaped; the exact bytes are in the attempt's directory.
type Stream struct {
	BytesTotal int64  `json:"bytes_total"` // what the program wrote, as far as it was read
	BytesKept  int64  `json:"bytes_kept"`  // at most the policy's cap
	Truncated  bool   `json:"truncated"`   // more was written than kept
	LiveWhole  bool   `json:"live_whole"`  // the policy puts no cap on the live copy: it goes on beyond what is kept
	LiveLost   bool   `json:"live_lost"`   // the caller's end took no more; all kept bytes are in the attempt's directory
	Text       string `json:"text"`        // what was kept, escaped
}
