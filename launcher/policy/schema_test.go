package policy

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// accepts is as much of JSON Schema as Schema uses.
func accepts(s map[string]any, v any) error {
	if list, ok := s["anyOf"].([]any); ok {
		var last error
		for _, x := range list {
			if last = accepts(x.(map[string]any), v); last == nil {
				return nil
			}
		}
		return last
	}
	kinds := fmt.Sprint(s["type"])
	is := map[string]bool{}
	switch v := v.(type) {
	case nil:
		is["null"] = true
	case bool:
		is["boolean"] = true
	case string:
		is["string"] = true
	case float64:
		is["number"], is["integer"] = true, v == float64(int64(v))
	case []any:
		is["array"] = true
		for i, x := range v {
			if err := accepts(s["items"].(map[string]any), x); err != nil {
				return fmt.Errorf("[%d]%w", i, err)
			}
		}
	case map[string]any:
		is["object"] = true
		properties, _ := s["properties"].(map[string]any)
		for k, x := range v {
			below, ok := properties[k].(map[string]any)
			if !ok {
				return fmt.Errorf(".%s is not known", k)
			}
			if err := accepts(below, x); err != nil {
				return fmt.Errorf(".%s%w", k, err)
			}
		}
		if e, ok := s["else"].(map[string]any); ok && v["extends"] == nil {
			for _, k := range e["required"].([]any) {
				if _, ok := v[k.(string)]; !ok {
					return fmt.Errorf(" lacks %s", k)
				}
			}
		}
	}
	for kind := range is {
		if is[kind] && strings.Contains(kinds, kind) {
			return nil
		}
	}
	return fmt.Errorf(" is %T, want %s", v, kinds)
}

// The schema takes every preset, has every leaf of the document, and can say no.
func TestSchema(t *testing.T) {
	data, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	var s map[string]any
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	decoded := func(text []byte) any {
		var v any
		if err := json.Unmarshal(text, &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, name := range Presets() {
		raw, _ := PresetBytes(name)
		if err := accepts(s, decoded(raw)); err != nil {
			t.Errorf("%s%v", name, err)
		}
		if _, err := Decode(name, raw); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := accepts(s, decoded([]byte(`{"extends": "tool", "resources": {"tasks_job": {"value": 8}}}`))); err != nil {
		t.Errorf("an extending document%v", err)
	}
	// Each leaf of the manifest is known: renamed, it is refused.
	for _, l := range leavesOf("", decoded(manifest(t))) {
		wrong := put(t, decoded(manifest(t)), steps(l.path), map[string]any{"wrong": true})
		if accepts(s, wrong) == nil {
			t.Errorf("%s may be anything", l.path)
		}
	}
	for _, bad := range []string{`{}`, `{"extends": "tool", "sudo": true}`, `{"extends": "tool", "resources": {"tasks_job": {"value": "8"}}}`} {
		if accepts(s, decoded([]byte(bad))) == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}
