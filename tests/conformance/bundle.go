package conformance

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
)

// bundle is the directory an approver gets. Every file's digest stands in
// manifest.json, which is written last.
type bundle struct {
	dir     string // empty: nothing is kept
	digests map[string]string
	err     error // the first failure
}

func (b *bundle) add(name string, data []byte) {
	if b.dir == "" {
		return
	}
	path := filepath.Join(b.dir, name)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, data, 0o644)
	}
	b.err = errors.Join(b.err, err)
	if b.digests == nil {
		b.digests = map[string]string{}
	}
	sum := sha256.Sum256(data)
	b.digests[name] = "sha256:" + hex.EncodeToString(sum[:])
}

// collect keeps what the fixtures ran on: the host's evidence, the policy and the
// filter. What nsbox cannot say is kept as what it said instead.
func (b *bundle) collect(nsbox string) {
	if b.dir == "" {
		return
	}
	evidence := filepath.Join(b.dir, ".evidence")
	out, err := exec.Command(nsbox, "doctor", "--json", "--evidence", evidence).CombinedOutput()
	if data, readErr := os.ReadFile(evidence); readErr == nil {
		b.add("evidence.json", data)
		os.Remove(evidence)
	} else {
		b.add("evidence-missing.txt", fmt.Appendf(nil, "%v\n%s", err, out))
	}
	for name, args := range map[string][]string{
		"policy.json": {"policy", "show", "sales-summary"}, "seccomp.txt": {"policy", "seccomp"}, "plan.json": {"plan", "--json", "--policy", "sales-summary", "--", "python3", "-c", "pass"},
	} {
		out, err := exec.Command(nsbox, args...).Output()
		if err != nil && len(out) == 0 {
			out = fmt.Appendf(nil, "%v\n", err)
		}
		b.add(name, out)
	}
}

//go:embed page.html
var page string

func (b *bundle) finish(r Report) error {
	if b.dir == "" {
		return nil
	}
	t, err := template.New("page").Parse(page)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := t.Execute(&out, r); err != nil {
		return err
	}
	b.add("report.html", out.Bytes())
	type file struct {
		Name   string `json:"name"`
		SHA256 string `json:"sha256"`
	}
	files := []file{}
	for name, digest := range b.digests {
		files = append(files, file{name, digest})
	}
	sort.Slice(files, func(i, j int) bool { return files[i].Name < files[j].Name })
	data, err := json.MarshalIndent(map[string]any{"schema": ReportSchema, "files": files}, "", "  ")
	if err != nil {
		return err
	}
	return errors.Join(b.err, os.WriteFile(filepath.Join(b.dir, "manifest.json"), append(data, '\n'), 0o644))
}
