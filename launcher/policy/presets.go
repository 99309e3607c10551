package policy

import (
	"embed"
	"strings"
)

//go:embed presets/*.json
var presetFiles embed.FS

// Presets lists the policies that are part of nsbox, by name.
func Presets() []string {
	entries, err := presetFiles.ReadDir("presets")
	if err != nil {
		return nil
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".json"))
	}
	return names
}

// PresetBytes returns a preset's exact bytes.
func PresetBytes(name string) ([]byte, bool) {
	// embed.FS takes a slash-separated path; a name with a slash is no preset's.
	if strings.ContainsRune(name, '/') {
		return nil, false
	}
	data, err := presetFiles.ReadFile("presets/" + name + ".json")
	return data, err == nil
}
