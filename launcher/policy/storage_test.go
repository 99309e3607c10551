package policy

import (
	"bytes"
	"testing"

	"nsbox/launcher/reason"
)

// TestOutStorage: the key and filesystem.export_scope say the same, or the
// document is refused.
func TestOutStorage(t *testing.T) {
	const provisioned = "per_job_host_dir_bound_at_/out_single_file_summary.csv_on_operator_provisioned_bounded_tmpfs"
	const held = "per_job_tmpfs_at_/out_single_file_summary.csv_held_by_the_launcher"
	for _, tc := range []struct {
		name, key, scope string
		want             Word
		refused          bool
	}{
		{"left out", ``, provisioned, "", false},
		{"null", `"out_storage": null, `, provisioned, "", false},
		{"provisioned", `"out_storage": "provisioned", `, provisioned, OutProvisioned, false},
		{"held", `"out_storage": "held", `, held, OutHeld, false},
		{"held by the key only", `"out_storage": "held", `, provisioned, "", true},
		{"held by the scope only", ``, held, "", true},
		{"provisioned, scope held", `"out_storage": "provisioned", `, held, "", true},
		{"another word", `"out_storage": "disk", `, provisioned, "", true},
	} {
		doc := replaced(t, `"policy_id"`, tc.key+`"policy_id"`)
		doc = bytes.Replace(doc, []byte(provisioned), []byte(tc.scope), 1)
		p, err := Decode(tc.name, doc)
		if tc.refused {
			if e := reason.Of(err); e == nil || e.ID != reason.PolicyUnenforceable {
				t.Errorf("%s: %v", tc.name, err)
			}
			continue
		}
		if err != nil || p.OutStorage != tc.want {
			t.Errorf("%s: %v, %v", tc.name, p, err)
			continue
		}
		if tc.want == "" {
			continue
		}
		told := false
		for _, n := range Lint(p) {
			told = told || n.Path == "filesystem.export_scope" && n.Text == p.storageNote()
		}
		if !told || p.storageNote() == new(Policy).storageNote() {
			t.Errorf("%s: lint does not tell what the key means", tc.name)
		}
	}
}
