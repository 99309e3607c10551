package policy

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nsbox/launcher/reason"
)

// replaced edits the manifest's text, so that keys can be doubled or miscased.
func replaced(t testing.TB, old, text string) []byte {
	t.Helper()
	raw := manifest(t)
	if bytes.Count(raw, []byte(old)) == 0 {
		t.Fatalf("%q is not in the manifest", old)
	}
	return bytes.Replace(raw, []byte(old), []byte(text), 1)
}

func TestStrictDecoding(t *testing.T) {
	const here = -1 // the first line that differs from the manifest's
	deep := strings.Repeat("[", 20) + strings.Repeat("]", 20)
	many := "[" + strings.Repeat(`"x",`, 300) + `"x"]`
	for _, c := range []struct {
		name string
		data []byte
		id   reason.ID
		path string
		line int
		what string
	}{
		{"doubled key", replaced(t, `"policy_id": `, `"policy_id": "A", "policy_id": `), invalid, "policy_id", here, "twice"},
		{"doubled key, equal values", replaced(t, `"ingress": "deny",`, `"ingress": "deny", "ingress": "deny",`), invalid, "network.ingress", here, "twice"},
		{"doubled key at depth", replaced(t, `"value": 32,`, `"value": 32, "value": 9999,`), invalid, "resources.tasks_job.value", here, "twice"},
		{"doubled by escape", replaced(t, `"value": 32,`, `"value": 32, "v\u0061lue": 9999,`), invalid, "resources.tasks_job.value", here, "twice"},
		{"doubled in a list", replaced(t, `"id": "EP2",`, `"id": "EP2", "id": "EP2",`), invalid, "enforcement_points[1].id", here, "twice"},
		{"case", replaced(t, `"policy_id"`, `"Policy_ID"`), invalid, "Policy_ID", here, "by case"},
		{"case at depth", replaced(t, `"tasks_job"`, `"TASKS_JOB"`), invalid, "resources.TASKS_JOB", here, "by case"},
		{"unknown key", replaced(t, `"policy_id"`, `"extra": 1, "policy_id"`), invalid, "extra", here, "not known"},
		{"misspelt key", replaced(t, `"dns": "none"`, `"dnss": "none"`), invalid, "network.dns", 59, "missing"},
		{"unknown resource", replaced(t, `"resources": {`, `"resources": {"memsw": 1,`), invalid, "resources.memsw", here, "not known"},
		{"key with control bytes", replaced(t, `"policy_id"`, `"a\u001b[31m": 1, "policy_id"`), invalid, `"a\x1b[31m"`, here, "not known"},
		{"A6", replaced(t, `"A1": {`, `"A6": {"status":"APPLIES","reason":"x"}, "A1": {`), unenforceable, "advanced_controls.A6", here, "not known"},
		{"trailing text", append(manifest(t), "{}"...), invalid, "", 431, "after the end"},
		{"trailing comma", replaced(t, `"proxy_env": "unset",`, `"proxy_env": "unset",,`), invalid, "", here, "key in double quotes"},
		{"comment", replaced(t, `"policy_id"`, "// hi\n\"policy_id\""), invalid, "", here, "key in double quotes"},
		{"BOM", append([]byte("\xef\xbb\xbf"), manifest(t)...), invalid, "", 1, "byte order mark"},
		{"UTF-16", []byte("\xff\xfe{\x00"), invalid, "", 1, "not valid UTF-8"},
		{"invalid UTF-8", replaced(t, `B13 workstation`, "B13 \xffworkstation"), invalid, "", here, "not valid UTF-8"},
		{"lone surrogate", replaced(t, `B13 workstation`, `B13 \ud800 workstation`), invalid, "", here, "one character"},
		{"raw newline in string", replaced(t, `B13 workstation`, "B13\nworkstation"), invalid, "", here, "control character"},
		{"escaped control", replaced(t, `B13 workstation`, `B13\u001b[2J`), invalid, "blockers[12]", here, "U+001B"},
		{"bidi override", replaced(t, `B13 workstation`, "B13\u202eworkstation"), invalid, "blockers[12]", here, "U+202E"},
		{"empty string", replaced(t, `"0.1.0-draft"`, `""`), invalid, "policy_version", here, "empty"},
		{"long string", replaced(t, `"0.1.0-draft"`, `"`+strings.Repeat("v", 200)+`"`), invalid, "policy_version", here, "200 bytes"},
		{"very long string", replaced(t, `B13 workstation`, strings.Repeat("v", 2000)), invalid, "blockers[12]", here, "bytes long"},
		{"NaN", replaced(t, `"value": 32,`, `"value": NaN,`), invalid, "", here, `"NaN`},
		{"Infinity", replaced(t, `"value": 32,`, `"value": -Infinity,`), invalid, "", here, "no JSON number"},
		{"hexadecimal", replaced(t, `"value": 32,`, `"value": 0x20,`), invalid, "", here, "comma"},
		{"leading zero", replaced(t, `"value": 32,`, `"value": 032,`), invalid, "", here, "no JSON number"},
		{"plus", replaced(t, `"value": 32,`, `"value": +32,`), invalid, "", here, "expected here"},
		{"negative", replaced(t, `"value": 32,`, `"value": -1,`), invalid, "resources.tasks_job.value", here, "negative"},
		{"minus zero", replaced(t, `"value": 0,`, `"value": -0,`), invalid, "resources.memory_swap.value", here, "negative"},
		{"zero tasks", replaced(t, `"value": 32,`, `"value": 0,`), invalid, "resources.tasks_job.value", here, "below"},
		{"fraction of a task", replaced(t, `"value": 32,`, `"value": 1.5,`), invalid, "resources.tasks_job.value", here, "fraction"},
		{"exponent", replaced(t, `"value": 32,`, `"value": 3e1,`), invalid, "resources.tasks_job.value", here, "exponent"},
		{"1e400", replaced(t, `"value": 32,`, `"value": 1e400,`), invalid, "resources.tasks_job.value", here, "exponent"},
		{"beyond 2^53", replaced(t, `"value": 32,`, `"value": 9007199254740993,`), invalid, "resources.tasks_job.value", here, "too large"},
		{"300 digits", replaced(t, `"value": 32,`, `"value": `+strings.Repeat("9", 400)+`,`), invalid, "resources.tasks_job.value", here, "too large"},
		{"many digits", replaced(t, `"value": 32,`, `"value": 1.`+strings.Repeat("0", 40)+`,`), invalid, "resources.tasks_job.value", here, "more digits"},
		{"2^53 itself", replaced(t, `"value": 32,`, `"value": 9007199254740992,`), invalid, "resources.tasks_job.value", here, "too large"},
		{"too many tasks", replaced(t, `"value": 32,`, `"value": 9007199254740991,`), invalid, "resources.tasks_job.value", here, "above"},
		{"overflow after the unit", replaced(t, `"value": 256,`, `"value": 9007199254740991,`), invalid, "resources.memory_workload.value", here, "counted"},
		{"beyond a size", replaced(t, `"value": 256,`, `"value": 9007199254,`), invalid, "resources.memory_workload.value", here, "above"},
		{"microsecond", replaced(t, `"value": 30,`, `"value": 0.0001,`), invalid, "resources.wall_workload.value", here, "below"},
		{"part of a millisecond", replaced(t, `"value": 30,`, `"value": 1.0001,`), invalid, "resources.wall_workload.value", here, "multiple"},
		{"part of a page", replaced(t, `"value": 64,
      "unit": "MiB",
      "scope": "scratch_tmpfs"`, `"value": 5000,
      "unit": "bytes",
      "scope": "scratch_tmpfs"`), invalid, "resources.scratch_bytes.value", here, "multiple of 4 KiB"},
		{"wrong unit", replaced(t, `"unit": "tasks"`, `"unit": "MiB"`), invalid, "resources.tasks_job.unit", here, "not a unit"},
		{"decimal unit", replaced(t, `"unit": "MiB"`, `"unit": "MB"`), invalid, "resources.memory_workload.unit", here, "not a unit"},
		{"wrong scope", replaced(t, `"job_cgroup_processes_and_threads"`, `"host"`), unenforceable, "resources.tasks_job.scope", here, "one place"},
		{"string for number", replaced(t, `"value": 32,`, `"value": "32",`), invalid, "resources.tasks_job.value", here, "a number is wanted"},
		{"number for string", replaced(t, `"unit": "tasks"`, `"unit": 1`), invalid, "resources.tasks_job.unit", here, "a string is wanted"},
		{"null for string", replaced(t, `"SBX-POL-WS-EVAL-001"`, `null`), invalid, "policy_id", here, "a string is wanted"},
		{"number for switch", replaced(t, `"no_new_privs": true`, `"no_new_privs": 1`), invalid, "process_policy.no_new_privs", here, "true or false is wanted"},
		{"object for list", replaced(t, `"supplementary_gids": []`, `"supplementary_gids": {}`), invalid, "execution_identity.workload.supplementary_gids", here, "a list is wanted"},
		{"list for object", replaced(t, `"isolation_backend": {`, `"isolation_backend": [], "x": {`), invalid, "isolation_backend", here, "an object is wanted"},
		{"short deadline", replaced(t, `"value": 70,`, `"value": 64,`), invalid, "resources.attempt_hard_deadline.value", here, "1m5s"},
		{"long wall", replaced(t, `"value": 30,`, `"value": 36,`), invalid, "resources.attempt_hard_deadline.value", 262, "below the sum"},
		{"another storage", replaced(t, `"policy_id"`, `"out_storage": "disk", "policy_id"`), reason.PolicyUnenforceable, "out_storage", here, "provisioned"},
		{"destinations", replaced(t, `"allowed_destinations": []`, `"allowed_destinations": [{"host":"a"}]`), invalid, "network.allowed_destinations[0]", here, "a string is wanted"},
		{"degrade", replaced(t, `"policy_id"`, `"degrade": ["memory", "speed"], "policy_id"`), reason.DegradeUnknown, "degrade[1]", here, "no dimension"},
		{"deep nesting", []byte(deep), invalid, "", 1, "deeper"},
		{"many members", []byte(many), invalid, "", 1, "more than 256"},
		{"unclosed", manifest(t)[:2000], invalid, "", 0, ""},
		{"empty", nil, invalid, "", 1, "empty"},
		{"blank", []byte(" \n\n "), invalid, "", 3, "empty"},
		{"no JSON", []byte("policy: yes\n"), invalid, "", 1, `"policy: yes"`},
		{"a list", []byte("[]"), invalid, "", 1, "an object is wanted"},
		{"a word", []byte("nul"), invalid, "", 1, "expected here"},
		{"NUL bytes", []byte("{\x00}"), invalid, "", 1, "double quotes"},
		{"2 MiB", bytes.Repeat([]byte(" "), 2<<20), reason.PolicyTooLarge, "", 0, "2097152 bytes"},
	} {
		if c.line == here {
			c.line = firstDifference(manifest(t), c.data)
		}
		p, err := Decode("file", c.data)
		if err == nil || p != nil {
			t.Errorf("%s: accepted", c.name)
			continue
		}
		if f := faultsOf(t, err); !tells(f, c.id, c.path, c.line, c.what) {
			t.Errorf("%s: got %+v; want %s at %q line %d with %q", c.name, f, c.id, c.path, c.line, c.what)
		}
	}
}

// firstDifference returns the line, counted from 1, where b leaves a.
func firstDifference(a, b []byte) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return 1 + bytes.Count(a[:n], []byte("\n"))
}

func tells(f Faults, id reason.ID, path string, line int, what string) bool {
	for _, x := range f {
		if x.ID == id && x.Path == path && (line == 0 || x.Line == line) && strings.Contains(x.What, what) {
			return true
		}
	}
	return false
}

// Positive controls: each strays from the manifest's text and is as good.
func TestAccepted(t *testing.T) {
	for _, c := range []struct {
		name string
		data []byte
	}{
		{"CRLF", bytes.ReplaceAll(manifest(t), []byte("\n"), []byte("\r\n"))},
		{"escaped key", replaced(t, `"policy_id"`, `"policy\u005fid"`)},
		{"astral text", replaced(t, `B13 workstation`, `B13 \ud83d\ude00 😀 workstation`)},
		{"half a second", replaced(t, `"value": 30,`, `"value": 0.5,`)},
		{"no blockers", edited(t, map[string]any{"blockers": []any{}})},
		{"degrade twice", edited(t, map[string]any{"degrade": []any{"memory", "memory"}})},
		{"least values", edited(t, map[string]any{"resources.tasks_job.value": 1, "resources.scratch_bytes.value": 4, "resources.scratch_bytes.unit": "KiB", "resources.scratch_inodes.value": 2})},
		{"deadline equals the sum", edited(t, map[string]any{"resources.attempt_hard_deadline.value": 65})},
		{"scope with the sum", edited(t, map[string]any{"resources.wall_workload.value": 20, "resources.attempt_hard_deadline.scope": "attempt_wide_must_be_gte_sum_55"})},
		{"lists in another order", edited(t, map[string]any{"artifact_export.reject[0]": "directory", "artifact_export.reject[3]": "symlink", "filesystem.writable_paths[0]": "/out", "filesystem.writable_paths[1]": "/scratch"})},
		{"another denied class", edited(t, map[string]any{"process_policy.seccomp.denied_classes[+]": "io_uring"})},
		{"two names", edited(t, map[string]any{"artifact_export.allowed_names[+]": "second.csv"})},
		{"nsbox's own name", edited(t, map[string]any{"isolation_backend.name": "nsbox-namespaces"})},
		{"Landlock by name", edited(t, map[string]any{"process_policy.mac": "landlock"})},
		{"no environment", edited(t, map[string]any{"process_policy.env_allowlist": []any{}})},
	} {
		if _, err := Decode("file", c.data); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestRefusedRules(t *testing.T) {
	for _, c := range []struct {
		edits map[string]any
		id    reason.ID
		path  string
		what  string
	}{
		{map[string]any{"execution_identity.workload.uid": 0}, unenforceable, "execution_identity.workload.uid", "root"},
		{map[string]any{"execution_identity.workload.uid": 65534}, invalid, "execution_identity.workload.uid", "ids"},
		{map[string]any{"execution_identity.workload.uid": 20002}, unenforceable, "execution_identity.exporter.uid", "one uid"},
		{map[string]any{"execution_identity.workload.gid": 20002}, unenforceable, "execution_identity.exporter.gid", "one gid"},
		{map[string]any{"execution_identity.exporter.uid": 20003}, unenforceable, "artifact_export.validator", "exporter.uid"},
		{map[string]any{"execution_identity.host_launcher.uid": 0}, unenforceable, "execution_identity.host_launcher.uid", "unprivileged"},
		{map[string]any{"isolation_backend.name": "microvm_UNVERIFIED"}, unenforceable, "isolation_backend.name", "namespace box"},
		{map[string]any{"isolation_backend.status": "CONFIRMED"}, reason.PolicyConfirmedWithoutEvidence, "isolation_backend.status", "itself"},
		{map[string]any{"process_policy.seccomp.status": "CONFIRMED"}, reason.PolicyConfirmedWithoutEvidence, "process_policy.seccomp.status", "itself"},
		{map[string]any{"enforcement_points[3].implementation_status": "CONFIRMED"}, reason.PolicyConfirmedWithoutEvidence, "enforcement_points[3].implementation_status", "itself"},
		{map[string]any{"enforcement_points[3].implementation_status": "DONE"}, unenforceable, "enforcement_points[3].implementation_status", "no status"},
		{map[string]any{"enforcement_points[8]": remove{}}, unenforceable, "enforcement_points", "EP9"},
		{map[string]any{"enforcement_points[8].id": "EP8"}, invalid, "enforcement_points[8].id", "twice"},
		{map[string]any{"advanced_controls.A5": remove{}}, unenforceable, "advanced_controls.A5", "missing"},
		{map[string]any{"advanced_controls.A4.status": "APPLIES"}, unenforceable, "advanced_controls.A4.status", "epochs"},
		{map[string]any{"advanced_controls.A4.status": "UNKNOWN"}, unenforceable, "advanced_controls.A4.status", "epochs"},
		{map[string]any{"advanced_controls.A1.status": "NOT_APPLICABLE"}, unenforceable, "advanced_controls.A1.status", "separate"},
		{map[string]any{"network.mode": "bridge_UNVERIFIED"}, unenforceable, "network.mode", "empty network namespace"},
		{map[string]any{"filesystem.input_paths[+]": "/in"}, invalid, "filesystem.input_paths[1]", "collides"},
		{map[string]any{"filesystem.input_paths[0]": "/out/in"}, invalid, "filesystem.writable_paths[1]", "collides"},
		{map[string]any{"filesystem.writable_paths[+]": "/in/w"}, invalid, "filesystem.writable_paths[2]", "collides"},
		{map[string]any{"filesystem.writable_paths[+]": "/opt"}, unenforceable, "filesystem.writable_paths[2]", "nothing else"},
		{map[string]any{"filesystem.writable_paths[+]": "/tmp/../x"}, invalid, "filesystem.writable_paths[2]", "clean"},
		{map[string]any{"filesystem.writable_paths[1]": remove{}}, unenforceable, "filesystem.writable_paths", "/out"},
		{map[string]any{"filesystem.denied_mounts[+]": "host_usr"}, unenforceable, "filesystem.denied_mounts[10]", "word"},
		{map[string]any{"filesystem.denied_mounts[+]": "/home"}, invalid, "filesystem.denied_mounts[10]", "twice"},
		{map[string]any{"filesystem.denied_mounts[+]": "/a//b"}, invalid, "filesystem.denied_mounts[10]", "clean"},
		{map[string]any{"filesystem.denied_mounts[+]": "/"}, invalid, "filesystem.denied_mounts[10]", "collides"},
		{map[string]any{"filesystem.denied_mounts[+]": "/out/x"}, invalid, "filesystem.denied_mounts[10]", "collides"},
		{map[string]any{"process_policy.descriptors_inherited[+]": 3}, unenforceable, "process_policy.descriptors_inherited", "stdin"},
		{map[string]any{"process_policy.env_allowlist[+]": "AWS_SECRET_ACCESS_KEY"}, unenforceable, "process_policy.env_allowlist[3]", "copies nothing"},
		{map[string]any{"process_policy.env_allowlist[+]": "PATH"}, invalid, "process_policy.env_allowlist[3]", "twice"},
		{map[string]any{"process_policy.seccomp.denied_classes[0]": remove{}}, unenforceable, "process_policy.seccomp.denied_classes", "mount"},
		{map[string]any{"process_policy.seccomp.denied_classes[+]": "read"}, unenforceable, "process_policy.seccomp.denied_classes[10]", "no such class"},
		{map[string]any{"process_policy.exec_allowlist": "any"}, unenforceable, "process_policy.exec_allowlist", "one program"},
		{map[string]any{"process_policy.mac": "none"}, unenforceable, "process_policy.mac", "degrade"},
		{map[string]any{"artifact_export.reject[4]": remove{}}, unenforceable, "artifact_export.reject", "archive_magic"},
		{map[string]any{"artifact_export.allowed_names": []any{}}, invalid, "artifact_export.allowed_names", "0 names"},
		{map[string]any{"artifact_export.allowed_names[0]": "../x"}, invalid, "artifact_export.allowed_names[0]", "slash"},
		{map[string]any{"artifact_export.allowed_names[0]": ".."}, invalid, "artifact_export.allowed_names[0]", "directory"},
		{map[string]any{"artifact_export.allowed_names[0]": strings.Repeat("n", 256)}, invalid, "artifact_export.allowed_names[0]", "longer"},
		{map[string]any{"artifact_export.allowed_names[+]": "summary.csv"}, invalid, "artifact_export.allowed_names[1]", "twice"},
		{map[string]any{"artifact_export.allowed_names[0]": "other.csv"}, unenforceable, "filesystem.export_scope", "allowed_names"},
		{map[string]any{"lifecycle.events[0]": "DELIVER", "lifecycle.events[5]": "STOP_EXECUTION_PROVED"}, unenforceable, "lifecycle.events", "order"},
		{map[string]any{"lifecycle.concurrency": 0}, unenforceable, "lifecycle.concurrency", "1 to 64"},
		{map[string]any{"lifecycle.concurrency": 65}, unenforceable, "lifecycle.concurrency", "1 to 64"},
		{map[string]any{"lifecycle.cleanup_retries": 1000}, invalid, "lifecycle.cleanup_retries", "more than"},
	} {
		_, err := Decode("file", edited(t, c.edits))
		if err == nil {
			t.Errorf("%v: accepted", c.edits)
			continue
		}
		if f := faultsOf(t, err); len(f) > 2 || !tells(f, c.id, c.path, 0, c.what) {
			t.Errorf("%v: got %+v; want little but %s at %s with %q", c.edits, f, c.id, c.path, c.what)
		}
	}
}

// Words that claim nothing are accepted, and Lint says what holds instead.
func TestUnclaimedWordsAreStrict(t *testing.T) {
	for _, r := range decodeManifest(t).wordRules() {
		for _, v := range []any{nil, "UNKNOWN", "UNVERIFIED", "UNVERIFIED_thing", "thing_UNVERIFIED"} {
			name, _ := v.(string)
			want := r.how == plain && !strings.Contains(name, "thing") || r.how == mechanism
			p, err := Decode("file", edited(t, map[string]any{r.path: v}))
			if (err == nil) != want {
				t.Errorf("%s = %v: %v; want accepted %v", r.path, v, err, want)
			}
			if err == nil && r.path != "isolation_backend.name" && !hasNote(Lint(p), r.path, r.holds, false) {
				t.Errorf("%s = %v: lint does not say that %s", r.path, v, r.holds)
			}
		}
	}
}

func TestAllFaultsAtOnceInOrder(t *testing.T) {
	data := replaced(t, `"policy_version"`, `"policy_Version"`)
	for _, edit := range [][2]string{{`"ingress": "deny"`, `"ingress": "allow"`}, {`"value": 32,`, `"value": -1,`}, {`"unit": "fds"`, `"unit": "files"`}, {`"value": 70,`, `"value": 7,`}, {`"model_visible_secrets": false`, `"model_visible_secrets": true`}} {
		if !bytes.Contains(data, []byte(edit[0])) {
			t.Fatal(edit[0])
		}
		data = bytes.Replace(data, []byte(edit[0]), []byte(edit[1]), 1)
	}
	_, err := Decode("bad.json", data)
	var got []string
	f := faultsOf(t, err)
	for _, x := range f {
		got = append(got, x.Path)
	}
	want := []string{"policy_Version", "network.ingress", "resources.tasks_job.value", "resources.fd_per_process.unit", "resources.attempt_hard_deadline.value", "secrets_policy.model_visible_secrets"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if text := err.Error(); !strings.HasPrefix(text, "bad.json: 6 faults: line 3: policy_Version") || strings.Count(text, "\n") != 5 {
		t.Errorf("error text is %q", text)
	}
}

func TestFaultsAreBounded(t *testing.T) {
	var b strings.Builder
	b.WriteString("[")
	for range 250 {
		b.WriteString(`{"a":1,"a":1,"a":1},`)
	}
	b.WriteString("1]")
	_, err := Decode("many", []byte(b.String()))
	if n := len(faultsOf(t, err)); n != maxFaults {
		t.Errorf("%d faults are told", n)
	}
}

func FuzzDecode(f *testing.F) {
	raw := manifest(f)
	f.Add(raw)
	for _, s := range []string{"", "{", `{"a":[1,2,{"b":"\u00e9\ud83d\ude00"}]}`, "[-0.5e+9]", `"\u`, "nul", "{\"a\":1,\"a\":2}", "\xff", `"\`, `{"resources":{"cpu_rate":{"value":1e999}}}`} {
		f.Add([]byte(s))
	}
	for _, cut := range []int{100, 1000, 5000, len(raw) - 2} {
		f.Add(raw[:cut])
		f.Add(append(append([]byte{}, raw[:cut]...), `"x",[]{}`...))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Decode("fuzz", data)
		if (p == nil) != (err != nil) {
			t.Fatalf("policy %v with error %v", p, err)
		}
		if err != nil {
			faultsOf(t, err)
			return
		}
		// What is accepted can be used without a panic, and says so twice the same.
		Lint(p)
		if l := p.Limits(); l.Wall <= 0 || l.Scratch.Bytes <= 0 || l.Out.Inodes <= 0 || l.Attempt.Deadline < l.budgets() {
			t.Fatalf("limits %+v", l)
		}
	})
}
