package crash

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"nsbox/launcher"
)

// severalJob leaves three files, which a policy of its own lets leave.
const severalJob = `for n in "abc": open("/out/" + n, "w").write("text of " + n + "\n")`

func (b *bench) severalPolicy() string {
	b.t.Helper()
	shown, err := b.command("policy", "show", "sales-summary").Output()
	if err != nil {
		b.t.Fatal(err)
	}
	var doc map[string]map[string]any
	var top map[string]any
	if err := json.Unmarshal(shown, &top); err != nil {
		b.t.Fatal(err)
	}
	doc = map[string]map[string]any{}
	for _, key := range []string{"resources", "filesystem", "artifact_export"} {
		doc[key] = top[key].(map[string]any)
	}
	doc["resources"]["out_file_count_accept"].(map[string]any)["value"] = 3
	doc["filesystem"]["export_scope"] = nil // the strict one
	doc["artifact_export"]["allowed_names"] = []string{"a", "b", "c"}
	data, err := json.Marshal(top)
	if err != nil {
		b.t.Fatal(err)
	}
	path := filepath.Join(b.dir, "several.json")
	if err := os.WriteFile(path, data, 0o644); err != nil {
		b.t.Fatal(err)
	}
	return path
}

func (b *bench) several(policy, out string) []string {
	args := b.exec(out, severalJob)
	args[slices.Index(args, "sales-summary")] = policy
	return args
}

// published are the names in a delivery directory that are no temporary ones,
// and whether each is the whole of the three files.
func published(t *testing.T, out string) (names []string, whole bool) {
	t.Helper()
	entries, err := os.ReadDir(out)
	if err != nil {
		t.Fatal(err)
	}
	whole = true
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".nsbox-") {
			continue
		}
		names = append(names, e.Name())
		files, _ := os.ReadDir(filepath.Join(out, e.Name()))
		whole = whole && len(files) == 3
		for _, n := range []string{"a", "b", "c"} {
			data, err := os.ReadFile(filepath.Join(out, e.Name(), n))
			whole = whole && err == nil && string(data) == "text of "+n+"\n"
		}
	}
	return names, whole
}

// TestKillWhileSeveralAreDelivered kills the launcher before each call that
// concerns the copies, their manifest or the delivery directory. At that moment,
// before anything is recovered, all three files are published or none; recovery
// then says which, and leaves nothing half-made.
func TestKillWhileSeveralAreDelivered(t *testing.T) {
	b := newBench(t)
	policy := b.severalPolicy()
	recorded := filepath.Join(b.dir, "recorded")
	mkdir(t, recorded)
	tr, err := trace(b.command(b.several(policy, recorded)...), func(int, point) verdict { return verdict{} })
	if names, whole := published(t, recorded); err != nil || tr.status.ExitStatus() != 0 || len(names) != 1 || !whole {
		t.Fatalf("the recorded run: %v, status %#x, published %q", err, tr.status, names)
	}
	concerns := func(p point) bool {
		for _, part := range []string{"artifact", "manifest", recorded, ".nsbox-", "/recorded/"} {
			if strings.Contains(p.path, part) {
				return true
			}
		}
		// Files are made below the directory's descriptor, by their bare names.
		return slices.Contains([]string{"a", "b", "c"}, p.path)
	}
	before, after, cells := 0, 0, 0
	for n, p := range tr.points {
		if *only >= 0 && n != *only || *only < 0 && !*long && !concerns(p) {
			continue
		}
		cells++
		out := filepath.Join(b.dir, fmt.Sprintf("out-%d", n))
		mkdir(t, out)
		known := b.attempts()
		var said bytes.Buffer
		cmd := b.command(b.several(policy, out)...)
		cmd.Stderr = &said
		if _, err := trace(cmd, func(k int, _ point) verdict { return verdict{kill: k == n} }); err != nil {
			t.Fatal(err)
		}
		fail := func(format string, args ...any) {
			t.Helper()
			t.Errorf("killed at %d of %d, before %s: %s\nits standard error: %s", n, len(tr.points), p, fmt.Sprintf(format, args...), said.String())
		}
		names, whole := published(t, out)
		if len(names) > 1 || !whole {
			fail("a part is published: %q", names)
		}
		if len(names) == 0 {
			before++
		} else {
			after++
		}
		b.noSurvivor(fail)
		b.nextRuns(fail)
		all := b.attempts()
		for _, a := range all[len(known) : len(all)-1] {
			if (a.Delivery == launcher.Delivered) != (len(names) == 1) || len(names) == 1 && a.Path != filepath.Join(out, a.ID) {
				fail("recovery says %q %q, published is %q", a.Delivery, a.Path, names)
			}
		}
		if said, status := b.nsbox("reconcile", "--all", "--state-dir", b.state); status != 0 {
			fail("reconcile ends with %d: %s", status, said)
		}
		if entries, _ := os.ReadDir(out); len(entries) != len(names) {
			fail("after reconcile the delivery directory has %v", entries)
		}
		b.keptAfter(fail, all[len(known):len(all)-1])
	}
	t.Logf("%d points, %d cells: %d before the publication, %d after it", len(tr.points), cells, before, after)
	if *only < 0 && (before < 15 || after < 1) {
		t.Error("too few cells on one side: the tracer looks at the wrong thing")
	}
}

// keptAfter: copies are kept of accepted files only, together with their manifest.
func (b *bench) keptAfter(fail failer, mine []launcher.AttemptInfo) {
	b.t.Helper()
	for _, a := range mine {
		kept, _ := filepath.Glob(a.Dir + "/artifact*")
		list, _ := filepath.Glob(a.Dir + "/manifest*")
		if a.Artifact == launcher.ArtifactAccepted && (len(kept) != 3 || len(list) != 1) || a.Artifact != launcher.ArtifactAccepted && len(kept)+len(list) > 0 {
			fail("artifact %s, kept are %q and %q", a.Artifact, kept, list)
		}
	}
}
