package policy

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
)

// The keys on content may be left out, and what they say is obeyed or refused.
func TestArtifactTypes(t *testing.T) {
	_, source, err := Load("sales-summary")
	if err != nil {
		t.Fatal(err)
	}
	with := func(text string) (*Policy, error) {
		const before = `"allowed_names"`
		at := bytes.Index(source.Raw, []byte(before))
		return Decode("test", append(append(append([]byte{}, source.Raw[:at]...), text+", "...), source.Raw[at:]...))
	}
	p, err := with(`"csv_formula": "reject", "byte_order_mark": "allow", "types": [{"name": "summary.csv", "type": "json", "bytes": 1048576}]`)
	if err != nil {
		t.Fatal(err)
	}
	if a := p.ArtifactExport; a.CSVFormula != "reject" || a.ByteOrderMark != "allow" || len(a.Types) != 1 || a.Types[0].Type != "json" || *a.Types[0].Bytes != 1<<20 {
		t.Errorf("%+v", a)
	}
	for _, bad := range []string{
		`"csv_formula": "maybe"`, `"csv_formula": null`, `"csv_formula": true`, `"types": [{"name": "x", "type": "csv"}]`, `"types": [{"name": "summary.csv", "type": "exe"}]`,
		`"types": [{"name": "summary.csv"}]`, `"types": {"summary.csv": "csv"}`,
		`"types": [{"name": "summary.csv", "type": "csv"}, {"name": "summary.csv", "type": "json"}]`,
		`"byte_order_mark": "maybe"`, `"byte_order_mark": null`, `"byte_order_mark": true`,
		`"types": [{"name": "summary.csv", "type": "csv", "bytes": 0}]`, `"types": [{"name": "summary.csv", "type": "csv", "bytes": 1048577}]`,
		`"types": [{"name": "summary.csv", "type": "csv", "bytes": -1}]`, `"types": [{"name": "summary.csv", "type": "csv", "bytes": 1.5}]`,
		`"types": [{"name": "summary.csv", "type": "csv", "bytes": "1"}]`, `"types": [{"name": "summary.csv", "type": "csv", "size": 1}]`,
	} {
		if _, err := with(bad); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}

// Several files need a scope that says so, and no more descriptors than a box can
// be handed.
func TestSeveralFiles(t *testing.T) {
	names := func(n int) []string {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf("f%d.csv", i))
		}
		return list
	}
	single := func(name string) string {
		return "per_job_host_dir_bound_at_/out_single_file_" + name + "_on_operator_provisioned_bounded_tmpfs"
	}
	for _, c := range []struct {
		names, files int
		scope, fault string // fault: the path that is told; empty: none
	}{
		{1, 1, single("f0.csv"), ""},
		{16, 1, single("f15.csv"), ""},
		{2, 2, severalFiles, ""},
		{1, 7, severalFiles, ""},
		{12, 7, severalFiles, ""},
		{16, 3, severalFiles, ""},
		{2, 2, single("f0.csv"), "filesystem.export_scope"},
		{2, 1, severalFiles, "filesystem.export_scope"},
		{13, 7, severalFiles, "artifact_export.allowed_names"},
		{16, 4, severalFiles, "artifact_export.allowed_names"},
		{17, 1, single("f0.csv"), "artifact_export.allowed_names"},
		{7, 8, severalFiles, "resources.out_file_count_accept.value"},
		{7, 0, severalFiles, "resources.out_file_count_accept.value"},
	} {
		p, err := Decode("edited", edited(t, map[string]any{"artifact_export.allowed_names": names(c.names), "resources.out_file_count_accept.value": c.files, "filesystem.export_scope": c.scope}))
		var faults Faults
		if errors.As(err, &faults); c.fault == "" && (err != nil || p.Limits().Out.Files != c.files) || c.fault != "" && !faults.at(c.fault) {
			t.Errorf("%d names, %d files, %s: %v", c.names, c.files, c.scope, err)
		}
	}
}
