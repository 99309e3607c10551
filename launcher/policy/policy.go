package policy

import (
	"encoding/json"
	"strconv"
	"strings"
)

// Policy is the whole document, key for key. A value made by Decode, Load or
// Tighten is never changed afterwards; copies share its lists.
type Policy struct {
	PolicyID      string `json:"policy_id"`
	PolicyVersion string `json:"policy_version"`
	WorkloadID    string `json:"workload_id"`

	IsolationBackend struct {
		Name   Word `json:"name"`
		Status Word `json:"status"`
	} `json:"isolation_backend"`

	ExecutionIdentity struct {
		Workload struct {
			UID               int   `json:"uid"` // inside the box
			GID               int   `json:"gid"`
			SupplementaryGIDs []int `json:"supplementary_gids"` // always empty
			Scope             Word  `json:"scope"`
		} `json:"workload"`
		Init struct {
			UID              int  `json:"uid"` // always 0, of the box's own user namespace
			Scope            Word `json:"scope"`
			SetupCaps        Word `json:"setup_caps"`
			CapsDroppedAfter Word `json:"caps_dropped_after"`
			HostMapping      Word `json:"host_mapping"`
		} `json:"init"`
		Exporter struct {
			UID         int  `json:"uid"`
			GID         int  `json:"gid"`
			Scope       Word `json:"scope"`
			HostMapping Word `json:"host_mapping"`
		} `json:"exporter"`
		HostLauncher struct {
			UID  *int   `json:"uid"` // the only host uid that may launch; nil: any
			Note string `json:"note"`
		} `json:"host_launcher"`
	} `json:"execution_identity"`

	Filesystem struct {
		InputMode     Word     `json:"input_mode"`
		InputPaths    []string `json:"input_paths"`
		RootfsMode    Word     `json:"rootfs_mode"`
		ScratchScope  Word     `json:"scratch_scope"`
		ExportScope   Word     `json:"export_scope"`
		DeniedMounts  []string `json:"denied_mounts"`
		WritablePaths []string `json:"writable_paths"`
	} `json:"filesystem"`

	Network struct {
		Default             Word     `json:"default"`
		Mode                Word     `json:"mode"`
		Ingress             Word     `json:"ingress"`
		AllowedDestinations []string `json:"allowed_destinations"` // HOST:PORT each; package endpoint has the form
		DNS                 Word     `json:"dns"`
		ProxyEnv            Word     `json:"proxy_env"`
		Exceptions          Word     `json:"exceptions"`

		// What the spec's own document does not have, for policies that list a destination.
		Unreachable      Word              `json:"unreachable,omitempty"` // "refuse" (also if left out) or "per_connection"
		DestinationRules []destinationRule `json:"destination_rules,omitempty"`
		Connections      *Connections      `json:"connections,omitempty"`
	} `json:"network"`

	Resources resources `json:"resources"`

	ProcessPolicy struct {
		NoNewPrivs   bool `json:"no_new_privs"`
		Capabilities Word `json:"capabilities"`
		Seccomp      struct {
			Status        Word     `json:"status"`
			DeniedClasses []string `json:"denied_classes"`
		} `json:"seccomp"`
		MAC                  Word     `json:"mac"`
		TreeKill             Word     `json:"tree_kill"`
		DescriptorsInherited []int    `json:"descriptors_inherited"`
		EnvAllowlist         []string `json:"env_allowlist"`
		ExecAllowlist        Word     `json:"exec_allowlist"`
	} `json:"process_policy"`

	SecretsPolicy struct {
		AmbientSecrets           Word `json:"ambient_secrets"`
		ModelVisibleSecrets      bool `json:"model_visible_secrets"`
		BrokeredExceptions       Word `json:"brokered_exceptions"`
		CredentialSetMustBeEmpty bool `json:"credential_set_must_be_empty"`
	} `json:"secrets_policy"`

	ArtifactExport struct {
		AllowedTypes          []string   `json:"allowed_types"`
		AllowedNames          []string   `json:"allowed_names"`
		Types                 []nameType `json:"types,omitempty"`           // of a name; csv where none is given
		CSVFormula            string     `json:"csv_formula,omitempty"`     // "allow" (also if left out) or "reject"
		ByteOrderMark         string     `json:"byte_order_mark,omitempty"` // "reject" (also if left out) or "allow"
		Reject                []string   `json:"reject"`
		Validator             Word       `json:"validator"`
		SourceStorageLifetime Word       `json:"source_storage_lifetime"`
		ImmutableCopy         struct {
			Path         Word `json:"path"`
			Immutability Word `json:"immutability"`
		} `json:"immutable_copy"`
		Delivery Word `json:"delivery"`
	} `json:"artifact_export"`

	Lifecycle struct {
		Events                  []string `json:"events"`
		Concurrency             int      `json:"concurrency"`
		AutoRerunAfterAmbiguity bool     `json:"auto_rerun_after_ambiguity"`
		CleanupRetries          int      `json:"cleanup_retries"`
		UnknownState            Word     `json:"unknown_state"`
		PolicyUpdateAuthority   Word     `json:"policy_update_authority"`
		ResultAuthority         Word     `json:"result_authority"`

		Retention *Retention `json:"retention,omitempty"`
	} `json:"lifecycle"`

	EnforcementPoints []enforcementPoint `json:"enforcement_points"`

	AdvancedControls struct {
		A1 control `json:"A1"`
		A2 control `json:"A2"`
		A3 control `json:"A3"`
		A4 control `json:"A4"`
		A5 control `json:"A5"`
	} `json:"advanced_controls"`

	Blockers []string `json:"blockers"`

	// OutStorage is whose storage /out is: provisioned (also if left out) or held.
	OutStorage Word `json:"out_storage,omitempty"`

	// Degrade is the operator's word in the file, as --allow-degraded is on the
	// command line. The spec's own document does not have it.
	Degrade []string `json:"degrade,omitempty"`

	// Rootfs is read through Root, Prepared and VerifyBeforeStart.
	Rootfs *rootfsKey `json:"rootfs,omitempty"`

	// Evidence is what every CONFIRMED of the document rests on; the launcher
	// reads it. The spec's own document does not have it.
	Evidence *EvidenceRef `json:"evidence,omitempty"`
}

// EvidenceRef names a document of nsbox doctor and the digest that it bears.
type EvidenceRef struct {
	File   string `json:"file"`
	Digest string `json:"digest"`
}

type enforcementPoint struct {
	ID                   string `json:"id"`
	Component            string `json:"component"`
	ImplementationStatus Word   `json:"implementation_status"`
}

// nameType says what a name's file has to be: csv, text, json or binary, and at
// most how many bytes; left out, out_file_size_accept holds for it.
type nameType struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Bytes *int   `json:"bytes,omitempty"`
}

type control struct {
	Status Word   `json:"status"`
	Reason string `json:"reason"`
}

// Word is a string of the document that may be null there; null is "".
type Word string

// unclaimed reports whether the word says that nothing is known.
func (w Word) unclaimed() bool {
	return w == "" || w == "UNKNOWN" || w == "UNVERIFIED"
}

// partlyUnclaimed is unclaimed, or a word that carries the mark at either end.
func (w Word) partlyUnclaimed() bool {
	return w.unclaimed() || strings.HasPrefix(string(w), "UNVERIFIED_") || strings.HasSuffix(string(w), "_UNVERIFIED")
}

// shown is the word as a person may see it in the file.
func (w Word) shown() string {
	if w == "" {
		return "null"
	}
	return strconv.Quote(string(w))
}

// MarshalJSON writes the word as it stood in the document.
func (w Word) MarshalJSON() ([]byte, error) {
	if w == "" {
		return []byte("null"), nil
	}
	return json.Marshal(string(w))
}

// PythonOnly reports whether the box may hold a Python interpreter and no other
// executable.
func (p *Policy) PythonOnly() bool { return !p.NamedProgramOnly() && !p.AnyProgram() }

// NamedProgramOnly reports whether the box holds exactly the program of the
// command line.
func (p *Policy) NamedProgramOnly() bool { return p.ProcessPolicy.ExecAllowlist == namedProgramOnly }

// AnyProgram reports whether every program of the root may be executed; the
// root is then whole, and not one program's closure.
func (p *Policy) AnyProgram() bool { return p.ProcessPolicy.ExecAllowlist == AnyProgramInRoot }

const namedProgramOnly = "named_program_only"

// AnyProgramInRoot is the exec_allowlist that needs a root of its own (Root).
const AnyProgramInRoot = "any_program_in_root"

// Environ returns the workload's whole environment as NAME=value, in the order
// of env_allowlist. Values are nsbox's own; none is read from the caller. cpus is
// how many the box may use of the host.
func (p *Policy) Environ(cpus int) []string {
	env := make([]string, 0, len(p.ProcessPolicy.EnvAllowlist))
	threads := p.threads(cpus)
	for _, name := range p.ProcessPolicy.EnvAllowlist {
		if value, ok := envValue(name, threads); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// threads is how many a maths library is told to start: as many as cpu_rate keeps
// busy, where the host has so many and tasks_job lets them be. By itself it would
// start one for each of the host's cpus and die at the task limit.
func (p *Policy) threads(cpus int) int {
	l := p.Limits()
	return max(1, min(l.CPU.RatePercent/100, cpus, l.Tasks))
}

// envValue returns the one value a variable can have in a box.
func envValue(name string, threads int) (string, bool) {
	switch name {
	case "PATH":
		return "/usr/local/bin:/usr/bin:/bin", true
	case "LANG", "LC_ALL":
		return "C.UTF-8", true
	case "TZ":
		return "UTC", true
	case "HOME", "TMPDIR":
		return "/scratch", true
	case Term:
		return "dumb", true
	case "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "PYTHONUTF8":
		return "1", true
	case "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS":
		return strconv.Itoa(threads), true
	}
	return "", false
}

const envNames = "PATH, LANG, LC_ALL, TZ, HOME, TMPDIR, TERM, PYTHONDONTWRITEBYTECODE, PYTHONUNBUFFERED, PYTHONUTF8, OMP_NUM_THREADS, OPENBLAS_NUM_THREADS, MKL_NUM_THREADS"
