package launcher

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"nsbox/exporter"
	"nsbox/launcher/journal"
	"nsbox/launcher/reason"
)

const severalAttempt = "01ATTEMPT"

// acceptedSeveral lays the copies of accepted files into an attempt's directory.
func acceptedSeveral(t testing.TB) (copies, []ArtifactFile) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), severalAttempt)
	must(t, os.Mkdir(dir, 0o700))
	c := copiesIn(dir, 3)
	var files []ArtifactFile
	for i, name := range []string{"b.csv", ".hidden", "naïve €.json"} {
		text := fmt.Sprintf("text %d", i)
		must(t, os.WriteFile(c[i], []byte(text), 0o400))
		files = append(files, ArtifactFile{Name: name, Type: "text", Bytes: int64(len(text)), SHA256: fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(text)))})
	}
	return c, files
}

func TestDeliverSeveralPublishesOneDirectory(t *testing.T) {
	c, files := acceptedSeveral(t)
	dir := t.TempDir()
	path, err := deliverSeveral(c, files, dir)
	if err != nil || path != filepath.Join(dir, severalAttempt) {
		t.Fatalf("%s, %v", path, err)
	}
	if got := listing(t, dir); len(got) != 1 {
		t.Errorf("the delivery directory has %v", got)
	}
	if got := listing(t, path); len(got) != 3 || got["b.csv"] != "text 0" || got[".hidden"] != "text 1" || got["naïve €.json"] != "text 2" {
		t.Errorf("published is %v", got)
	}
	info, err := os.Stat(path)
	if mask := unix.Umask(0o022); err != nil || info.Mode().Perm() != 0o755&^os.FileMode(mask) {
		t.Errorf("mode %v under umask %o, %v", info.Mode(), mask, err)
	} else {
		unix.Umask(mask)
	}
	if got := c.delivery(path, ArtifactResult{Files: files}); got.Path != path || got.Paths[2] != filepath.Join(path, "naïve €.json") {
		t.Errorf("%+v", got)
	}
	if got := c.delivery(c[0], ArtifactResult{Files: files[:2]}); got.Path != c.dir() || len(got.Paths) != 2 || got.Paths[1] != c[1] {
		t.Errorf("%+v", got)
	}
}

func TestDeliverSeveralNeverOverwrites(t *testing.T) {
	for name, lay := range map[string]func(t *testing.T, at string){
		"a file":                func(t *testing.T, at string) { must(t, os.WriteFile(at, []byte("old"), 0o644)) },
		"an empty directory":    func(t *testing.T, at string) { must(t, os.Mkdir(at, 0o755)) },
		"a directory with more": func(t *testing.T, at string) { must(t, os.MkdirAll(at+"/b.csv", 0o755)) },
		"a link":                func(t *testing.T, at string) { must(t, os.Symlink(t.TempDir(), at)) },
		"a dangling one":        func(t *testing.T, at string) { must(t, os.Symlink("nothing", at)) },
	} {
		dir := t.TempDir()
		at := filepath.Join(dir, severalAttempt)
		lay(t, at)
		before, err := os.Lstat(at)
		must(t, err)
		c, files := acceptedSeveral(t)
		if _, err := deliverSeveral(c, files, dir); idOf(err) != reason.DeliverExists {
			t.Errorf("%s: %v", name, err)
		}
		after, err := os.Lstat(at)
		if err != nil || !os.SameFile(before, after) || after.Mode() != before.Mode() || len(listing(t, dir)) != 1 {
			t.Errorf("%s: now %v, %v; the directory has %v", name, after, err, listing(t, dir))
		}
	}
}

func TestDeliverSeveralLeavesNothingAfterAFailure(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(c copies, f []ArtifactFile, dir *string)
		want  reason.ID
	}{
		"control": {func(copies, []ArtifactFile, *string) {}, ""},
		"the last changed": {func(c copies, _ []ArtifactFile, _ *string) {
			os.Chmod(c[2], 0o600)
			os.WriteFile(c[2], []byte("evil"), 0o600)
		}, reason.DeliverFailed},
		"the second is gone":    {func(c copies, _ []ArtifactFile, _ *string) { os.Remove(c[1]) }, reason.DeliverFailed},
		"the second is a link":  {func(c copies, _ []ArtifactFile, _ *string) { os.Remove(c[1]); os.Symlink(c[0], c[1]) }, reason.DeliverFailed},
		"no digest":             {func(_ copies, f []ArtifactFile, _ *string) { f[1].SHA256 = "" }, reason.DeliverFailed},
		"one name twice":        {func(_ copies, f []ArtifactFile, _ *string) { f[2].Name = f[0].Name }, reason.DeliverFailed},
		"no directory":          {func(_ copies, _ []ArtifactFile, d *string) { *d += "/nothing" }, reason.DeliverFailed},
		"a directory of temp":   {func(_ copies, _ []ArtifactFile, d *string) { os.Mkdir(*d+"/.nsbox-"+severalAttempt, 0o755) }, reason.DeliverFailed},
		"a link of temp's name": {func(c copies, _ []ArtifactFile, d *string) { os.Symlink(c.dir(), *d+"/.nsbox-"+severalAttempt) }, reason.DeliverFailed},
	} {
		staged, files := acceptedSeveral(t)
		root := t.TempDir()
		dir := root
		c.spoil(staged, files, &dir)
		before := listing(t, root)
		path, err := deliverSeveral(staged, files, dir)
		if idOf(err) != c.want || (path == "") != (c.want != "") {
			t.Errorf("%s: %q, %v; want %q", name, path, err, c.want)
		}
		after := listing(t, root)
		delete(after, severalAttempt)
		if fmt.Sprint(before) != fmt.Sprint(after) || c.want != "" && path != "" {
			t.Errorf("%s: the directory had %v and has %v", name, before, after)
		}
	}
}

// What the exporter says is held against what is in the files.
func TestCopiesAreVerified(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(c copies, f []exporter.File)
		good  bool
	}{
		"control":        {func(copies, []exporter.File) {}, true},
		"another digest": {func(_ copies, f []exporter.File) { f[1].SHA256 = f[0].SHA256 }, false},
		"another size":   {func(_ copies, f []exporter.File) { f[2].Bytes++ }, false},
		"changed bytes":  {func(c copies, _ []exporter.File) { os.Chmod(c[0], 0o600); os.WriteFile(c[0], []byte("text 9"), 0) }, false},
		"swapped": {func(c copies, _ []exporter.File) {
			os.Rename(c[0], c[0]+"x")
			os.Rename(c[1], c[0])
			os.Rename(c[0]+"x", c[1])
		}, false},
		"a link in place": {func(c copies, _ []exporter.File) { os.Rename(c[2], c[2]+"x"); os.Symlink(c[2]+"x", c[2]) }, false},
		"gone":            {func(c copies, _ []exporter.File) { os.Remove(c[2]) }, false},
	} {
		staged, files := acceptedSeveral(t)
		var reported []exporter.File
		for _, f := range files {
			reported = append(reported, exporter.File{Name: f.Name, Type: f.Type, Bytes: f.Bytes, SHA256: f.SHA256})
		}
		c.spoil(staged, reported)
		got, err := staged.verify(reported)
		if (err == nil) != c.good || c.good && fmt.Sprint(got) != fmt.Sprint(files) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestManifestIsReadBackByItsDigest(t *testing.T) {
	dir := t.TempDir()
	_, files := acceptedSeveral(t)
	digest, err := writeManifest(dir, files)
	must(t, err)
	if m, err := readManifest(dir, digest); err != nil || fmt.Sprint(m.Files) != fmt.Sprint(files) {
		t.Errorf("%+v, %v", m, err)
	}
	if _, err := readManifest(dir, digest+"0"); err == nil {
		t.Error("another digest is taken")
	}
	must(t, os.Chmod(dir+"/"+manifestName, 0o600))
	must(t, os.WriteFile(dir+"/"+manifestName, []byte(`{"files":[]}`), 0o600))
	if _, err := readManifest(dir, digest); err == nil {
		t.Error("another manifest is taken")
	}
}

// Only what holds accepted files is kept.
func TestCopiesBeyondTheAcceptedGo(t *testing.T) {
	for slots, want := range map[int][]string{ // what is left if n files are kept
		1: {"manifest.json", "artifact manifest.json"}, // one file has no manifest; what has that name is not its
		3: {"", "artifact manifest.json", "artifact artifact-2 manifest.json", "artifact artifact-2 artifact-3 manifest.json"},
	} {
		for keep, want := range want {
			dir := t.TempDir()
			c := copiesIn(dir, slots)
			open, err := c.create()
			must(t, err)
			for _, f := range open {
				f.Close()
			}
			must(t, os.WriteFile(dir+"/manifest.json", nil, 0o600))
			if _, err := c.create(); err == nil {
				t.Error("files that were there are opened")
			}
			must(t, c.remove(keep))
			must(t, c.remove(keep)) // and again
			entries, err := os.ReadDir(dir)
			must(t, err)
			got := ""
			for i, e := range entries {
				if i > 0 {
					got += " "
				}
				got += e.Name()
			}
			if got != want {
				t.Errorf("%d slots, %d kept: %q, want %q", slots, keep, got, want)
			}
		}
	}
}

// Every policy that is accepted gives the exporter bounds that it takes.
func TestPolicyAndExporterAgree(t *testing.T) {
	for n := 1; n <= 16; n++ {
		for files := 1; files <= 8; files++ {
			var names []string
			for i := range n {
				names = append(names, fmt.Sprintf("f%d", i))
			}
			scope := "per_job_host_dir_bound_at_/out_single_file_f0_on_operator_provisioned_bounded_tmpfs"
			if files > 1 {
				scope = "per_job_host_dir_bound_at_/out_files_of_allowed_names_on_operator_provisioned_bounded_tmpfs"
			}
			p, _, err := preset(t, map[string]any{
				"artifact_export.allowed_names": names, "resources.out_file_count_accept.value": files, "filesystem.export_scope": scope,
				"artifact_export.types":           []map[string]any{{"name": "f0", "type": "binary", "bytes": 1 << 20}},
				"artifact_export.byte_order_mark": "allow",
			})
			if err != nil {
				if n+min(n, files) <= 19 && files < 8 {
					t.Errorf("%d names, %d files: %v", n, files, err)
				}
				continue
			}
			b := ExportBounds(p)
			if err := b.Validate(); err != nil || !b.AllowBOM || b.Rules["f0"].Bytes != 1<<20 {
				t.Errorf("%d names, %d files: %v, %+v", n, files, err, b)
			}
			tighter, err := p.Tighten([]string{"out_file=4096"})
			if err != nil {
				t.Fatal(err)
			}
			if err := ExportBounds(tighter).Validate(); err != nil {
				t.Errorf("tightened: %v", err)
			}
		}
	}
}

// A launcher that died while publishing several files has published all of them
// or none: recovery tells which, and removes what it had begun.
func TestRecoveryOfASeveralDelivery(t *testing.T) {
	for name, c := range map[string]struct {
		lay  func(t *testing.T, dir, id string)
		want string
	}{
		"published": {func(t *testing.T, dir, id string) {
			must(t, os.Mkdir(dir+"/"+id, 0o755))
			must(t, os.WriteFile(dir+"/"+id+"/a.csv", []byte("text a"), 0o644))
			must(t, os.WriteFile(dir+"/"+id+"/b.csv", []byte("text b"), 0o644))
		}, Delivered},
		"nothing begun": {func(*testing.T, string, string) {}, DeliveryBlocked},
		"one file of two": {func(t *testing.T, dir, id string) {
			must(t, os.Mkdir(dir+"/.nsbox-"+id, 0o755))
			must(t, os.WriteFile(dir+"/.nsbox-"+id+"/a.csv", []byte("text a"), 0o644))
		}, DeliveryBlocked},
		"both, not yet renamed": {func(t *testing.T, dir, id string) {
			must(t, os.Mkdir(dir+"/.nsbox-"+id, 0o755))
			must(t, os.WriteFile(dir+"/.nsbox-"+id+"/a.csv", []byte("text a"), 0o644))
			must(t, os.WriteFile(dir+"/.nsbox-"+id+"/b.csv", []byte("tex"), 0o600))
		}, DeliveryBlocked},
		"somebody else's": {func(t *testing.T, dir, id string) {
			must(t, os.Mkdir(dir+"/"+id, 0o755))
			must(t, os.WriteFile(dir+"/"+id+"/a.csv", []byte("text a"), 0o644))
		}, DeliveryBlocked},
	} {
		t.Run(name, func(t *testing.T) {
			s, p := newState(t), newProver(t)
			dir := t.TempDir()
			story := fullStory(dir)
			files := []ArtifactFile{{Name: "a.csv", SHA256: fmt.Sprintf("sha256:%x", sha256.Sum256([]byte("text a")))}, {Name: "b.csv", SHA256: fmt.Sprintf("sha256:%x", sha256.Sum256([]byte("text b")))}}
			kept := t.TempDir()
			digest, err := writeManifest(kept, files)
			must(t, err)
			var id string
			for i := range story {
				switch r := &story[i]; r.Event {
				case journal.CopyVerified:
					r.Data = map[string]string{"artifact": ArtifactAccepted, "sha256": digest, "manifest": manifestName}
				case journal.DeliverIntent:
					// The name is the id, which plant makes: the record is added below.
					id = plant(t, s, marker{Boot: thisBoot, IDs: unusedIDs(), Deliver: dir}, story[:i])
				}
			}
			j, err := journal.Open(s.path(id) + "/journal")
			must(t, err)
			must(t, j.Append(journal.Record{Event: journal.DeliverIntent, Data: map[string]string{"dir": dir, "name": id}}))
			must(t, j.Close())
			must(t, os.Rename(kept+"/"+manifestName, s.path(id)+"/"+manifestName))
			c.lay(t, dir, id)
			before := listing(t, dir)
			delete(before, ".nsbox-"+id)
			mustRecover(t, s, p)
			i := s.info(id)
			if i.Delivery != c.want || i.State != AttemptClosed || i.SHA256 != digest || (i.Path == dir+"/"+id) != (c.want == Delivered) {
				t.Errorf("%+v", i)
			}
			if after := listing(t, dir); fmt.Sprint(after) != fmt.Sprint(before) {
				t.Errorf("the delivery directory has %v, want %v", after, before)
			}
			if missing(s.path(id) + "/" + manifestName) {
				t.Error("the manifest of accepted files is gone")
			}
		})
	}
}
