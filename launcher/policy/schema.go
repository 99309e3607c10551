package policy

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
)

// Schema is a JSON Schema (2020-12) of a policy document, for editors: it
// completes keys and words and marks the wrong ones. What it accepts is not
// therefore a policy; Decode decides.
func Schema() ([]byte, error) {
	p := new(Policy)
	words := map[string]wordRule{}
	for _, r := range p.wordRules() {
		words[r.path] = r
	}
	s := schemaOf(reflect.TypeFor[Policy](), "", words)
	properties := s["properties"].(map[string]any)
	properties["extends"] = map[string]any{"type": "string", "description": "a preset or a file that this document changes", "examples": Presets()}
	properties["loosen"] = map[string]any{"type": "boolean", "description": "the preset that is extended may be made looser"}
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "nsbox policy"
	// A whole document has every key; one that extends another has those it changes.
	required := s["required"]
	delete(s, "required")
	s["if"] = map[string]any{"required": []string{"extends"}}
	s["then"] = map[string]any{}
	s["else"] = map[string]any{"required": required}
	return json.MarshalIndent(s, "", "  ")
}

func schemaOf(t reflect.Type, path string, words map[string]wordRule) map[string]any {
	if t == reflect.TypeFor[Word]() {
		s := map[string]any{"type": []string{"string", "null"}}
		if r, ok := words[path]; ok {
			s["description"], s["examples"] = r.holds, r.accept
		}
		return s
	}
	switch t.Kind() {
	case reflect.Struct:
		properties, required := map[string]any{}, []string{}
		for i := range t.NumField() {
			key, options, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
			below := strings.TrimPrefix(path+"."+key, ".")
			properties[key] = schemaOf(t.Field(i).Type, below, words)
			if options != "omitempty" {
				required = append(required, key)
			}
		}
		if row := slices.IndexFunc(resourceRows[:], func(r resourceRow) bool { return "resources."+r.key == path }); row >= 0 {
			r := resourceRows[row]
			properties["unit"] = map[string]any{"type": "string", "examples": []string{r.unit}}
			properties["scope"] = map[string]any{"type": "string", "examples": []string{r.scope}}
		}
		s := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
		if path == "" {
			s["required"] = required
		}
		return s
	case reflect.Slice:
		return map[string]any{"type": "array", "items": schemaOf(t.Elem(), path+"[]", words)}
	case reflect.Pointer:
		return map[string]any{"anyOf": []any{schemaOf(t.Elem(), path, words), map[string]any{"type": "null"}}}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int:
		return map[string]any{"type": "integer", "minimum": 0}
	case reflect.Float64:
		return map[string]any{"type": "number", "minimum": 0}
	}
	return map[string]any{"type": "string"}
}
