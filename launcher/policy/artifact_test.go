package policy

import (
	"bytes"
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
	p, err := with(`"csv_formula": "reject", "types": [{"name": "summary.csv", "type": "json"}]`)
	if err != nil {
		t.Fatal(err)
	}
	if a := p.ArtifactExport; a.CSVFormula != "reject" || len(a.Types) != 1 || a.Types[0].Type != "json" {
		t.Errorf("%+v", a)
	}
	for _, bad := range []string{
		`"csv_formula": "maybe"`, `"csv_formula": null`, `"csv_formula": true`, `"types": [{"name": "x", "type": "csv"}]`, `"types": [{"name": "summary.csv", "type": "exe"}]`,
		`"types": [{"name": "summary.csv"}]`, `"types": {"summary.csv": "csv"}`,
		`"types": [{"name": "summary.csv", "type": "csv"}, {"name": "summary.csv", "type": "json"}]`,
	} {
		if _, err := with(bad); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}
