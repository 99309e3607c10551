package policy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nsbox/launcher/reason"
)

// written puts files into a directory of the caller's and loads the first.
func written(t *testing.T, files ...string) (*Policy, Source, error) {
	t.Helper()
	dir := t.TempDir()
	for i, text := range files {
		if err := os.WriteFile(filepath.Join(dir, string(rune('a'+i))+".json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Load(filepath.Join(dir, "a.json"))
}

func TestExtendsTightens(t *testing.T) {
	p, src, err := written(t, `{"extends": "tool", "policy_id": "mine", "degrade": [],
		"resources": {"wall_workload": {"value": 60}, "stdout_bytes": {"scope": "captured_stream"}},
		"filesystem": {"writable_paths": ["/scratch"], "scratch_scope": "per_job_tmpfs_noexec_nosuid_nodev_destroyed_at_cleanup_never_exported"}}`)
	if err != nil {
		t.Fatal(err)
	}
	base, baseSrc, err := Load("tool")
	if err != nil {
		t.Fatal(err)
	}
	l, was := p.Limits(), base.Limits()
	live, _ := p.LiveStreams()
	if p.PolicyID != "mine" || l.Wall.Seconds() != 60 || l.Tasks != was.Tasks || live || p.ScratchExec() || p.Writable("/tmp") || len(p.Degrade) != 0 || !p.AnyProgram() {
		t.Errorf("got %+v", p)
	}
	if src.Digest == baseSrc.Digest || !strings.HasPrefix(src.Digest, "sha256:") {
		t.Errorf("digest %s, of the base %s", src.Digest, baseSrc.Digest)
	}
	if _, again, err := written(t, `{"extends": "b.json"}`, `{"extends": "tool", "lifecycle": {"concurrency": 2}}`); err != nil || again.Digest == src.Digest {
		t.Errorf("a chain: %v", err)
	}
}

func TestExtendsRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		id   reason.ID
		text string // of the error
		file []string
	}{
		{"more time", reason.PolicyLoosens, "line 2: resources.tasks_job.value", []string{"{\"extends\": \"tool\",\n\"resources\": {\"tasks_job\": {\"value\": 513}}}"}},
		{"more weakness", reason.PolicyLoosens, "degrade", []string{`{"extends": "sales-summary", "degrade": ["memory"]}`}},
		{"more programs", reason.PolicyLoosens, "process_policy.exec_allowlist", []string{`{"extends": "sales-summary", "process_policy": {"exec_allowlist": "named_program_only"}}`}},
		{"fewer denials", reason.PolicyLoosens, "filesystem.denied_mounts", []string{`{"extends": "tool", "filesystem": {"denied_mounts": ["/run"]}}`}},
		{"another root", reason.PolicyLoosens, "rootfs.host.directories", []string{`{"extends": "tool", "rootfs": {"host": {"directories": ["/opt"]}}}`}},
		{"a live stream", reason.PolicyLoosens, "resources.stdout_bytes.scope", []string{`{"extends": "sales-summary", "resources": {"stdout_bytes": {"scope": "kept_of_a_live_stream_without_cap"}}}`}},
		{"a file cannot be loosened", reason.PolicyLoosens, "resources.tasks_job.value", []string{`{"extends": "b.json", "loosen": true, "resources": {"tasks_job": {"value": 9}}}`, `{"extends": "tool", "resources": {"tasks_job": {"value": 8}}}`}},
		{"itself", reason.PolicyInvalid, "itself", []string{`{"extends": "a.json"}`}},
		{"a ring", reason.PolicyInvalid, "itself", []string{`{"extends": "b.json"}`, `{"extends": "a.json"}`}},
		{"no name", reason.PolicyInvalid, "no name of a preset", []string{`{"extends": 1}`}},
		{"no such base", reason.PolicyNotFound, "b.json", []string{`{"extends": "b.json"}`}},
		{"loosen alone", reason.PolicyInvalid, "loosen", []string{`{"loosen": true}`}},
		{"an unknown key", reason.PolicyInvalid, "sudo", []string{`{"extends": "tool", "sudo": true}`}},
		{"invalid whoever says so", reason.PolicyUnenforceable, "no_new_privs", []string{`{"extends": "tool", "loosen": true, "process_policy": {"no_new_privs": false}}`}},
	} {
		p, _, err := written(t, c.file...)
		e := reason.Of(err)
		if e == nil || e.ID != c.id || !strings.Contains(err.Error()+faultText(err), c.text) {
			t.Errorf("%s: %v, policy %v; want %s and %q", c.name, err, p != nil, c.id, c.text)
		}
	}
	// With the operator's word over a preset the same is accepted.
	p, _, err := written(t, `{"extends": "tool", "loosen": true, "resources": {"tasks_job": {"value": 1024}}, "rootfs": {"host": {"directories": ["/usr", "/opt"]}}}`)
	if err != nil || p.Limits().Tasks != 1024 {
		t.Errorf("loosened: %v", err)
	}
}

func faultText(err error) string {
	if e := reason.Of(err); e != nil && e.Err != nil {
		return e.Err.Error()
	}
	return ""
}

// Every leaf that a file can change is either compared or fixed: nothing slips
// through by having no row.
func TestLooserCoversTheDocument(t *testing.T) {
	base, _, err := Load("sales-summary")
	if err != nil {
		t.Fatal(err)
	}
	if got := Looser(base, base); len(got) != 0 {
		t.Errorf("a policy is looser than itself in %v", got)
	}
	changed := 0
	for path, value := range base.values() {
		if text, ok := value.(string); ok && !strings.HasPrefix(path, "resources.") {
			if !tighter(path, text, text+"x") {
				changed++
			}
		}
	}
	if changed < 20 {
		t.Errorf("only %d texts are fixed", changed)
	}
}
