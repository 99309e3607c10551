package tests

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// foreignNames finds what ties a repository to one place: addresses other than
// those of public documentation, package registries by host, and paths of a
// developer's machine.
func foreignNames(text string) []string {
	var found []string
	documentation := []string{"man7.org", "docs.kernel.org", "www.kernel.org", "kernel.org", "go.dev", "pkg.go.dev", "no-color.org", "json-schema.org", "example.com", "example.org"}
	for _, m := range regexp.MustCompile(`https?://([A-Za-z0-9.-]+)`).FindAllStringSubmatch(text, -1) {
		reserved := strings.HasSuffix(m[1], ".invalid") || strings.HasPrefix(m[1], "10.") // RFC 6761, RFC 1918: nobody's
		if !slices.Contains(documentation, m[1]) && !reserved {
			found = append(found, m[0])
		}
	}
	for _, rule := range []string{
		`\b(deb|archive|security|ports|proxy|sum|registry|index|mirror)\.[a-z-]+\.(org|io|com|dev|net)\b`,
		`(^|[\s"'=:(])/work/[A-Za-z0-9]`,
		`/root/(\.(cache|cargo|config|local|npm)|go)/`,
		`\.pyenv\b`,
	} {
		for _, m := range regexp.MustCompile(rule).FindAllString(text, -1) {
			if !strings.Contains(m, ".example.") {
				found = append(found, m)
			}
		}
	}
	return found
}

func TestRepositoryNamesNoForeignPlace(t *testing.T) {
	dir, files := root(t), 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		switch {
		case d.IsDir() && slices.Contains([]string{".git", "bin", "out"}, name):
			return filepath.SkipDir
		case d.IsDir() || !d.Type().IsRegular() || name == "go.sum" || strings.HasSuffix(name, "repository_test.go"):
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil || bytes.IndexByte(data, 0) >= 0 {
			return err
		}
		files++
		for _, f := range foreignNames(string(data)) {
			t.Errorf("%s names %q", name, f)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 20 {
		t.Errorf("looked at %d files only", files)
	}
	for _, bad := range []string{
		"see https://somewhere.test/x", "deb http://host.test/debian main", "uses proxy.company.io", "cd /work/here", "/root/.local/bin", "x/.pyenv/shims",
	} {
		if foreignNames(bad) == nil {
			t.Errorf("%q passes", bad)
		}
	}
	for _, good := range []string{"https://man7.org/linux", "golang.org/x/sys/unix", "github.com/alecthomas/kong", "the work/ leaf", "/root", "proxy.example.com"} {
		if got := foreignNames(good); got != nil {
			t.Errorf("%q: %v", good, got)
		}
	}
}
