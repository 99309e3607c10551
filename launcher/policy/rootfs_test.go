package policy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

const someDigest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func rootfsOf(t *testing.T, value any, exec string) *Policy {
	t.Helper()
	p, err := Decode("file", edited(t, map[string]any{"rootfs": value, "process_policy.exec_allowlist": exec}))
	if err != nil {
		t.Fatalf("%v: %v", value, err)
	}
	return p
}

func TestRootSources(t *testing.T) {
	type object = map[string]any
	for _, c := range []struct {
		name  string
		value any
		want  RootSource
	}{
		{"null", nil, ClosureRoot{}},
		{"nothing named", object{}, ClosureRoot{}},
		{"host", object{"host": object{"directories": []any{"/usr", "/opt/tool"}}}, HostRoot{[]string{"/usr", "/opt/tool"}}},
		{"directory", object{"directory": object{"path": "/srv/root", "digest": someDigest}}, DirectoryRoot{"/srv/root", someDigest}},
		{"oci", object{"oci": object{"layout": "/srv/image", "digest": someDigest}, "verify_before_start": true}, OCIRoot{"/srv/image", someDigest}},
		{"prepared alone", object{"prepared": object{"name": "sales-1.0", "digest": someDigest}}, ClosureRoot{}},
	} {
		p := rootfsOf(t, c.value, "python_interpreter_only")
		if got := p.Root(); !cmp.Equal(got, c.want) {
			t.Errorf("%s: %#v, want %#v", c.name, got, c.want)
		}
		if got := p.VerifyBeforeStart(); got != (c.name == "oci") {
			t.Errorf("%s: verified before start: %v", c.name, got)
		}
		if got := p.Prepared(); (got != nil) != (c.name == "prepared alone") {
			t.Errorf("%s: prepared %v", c.name, got)
		}
	}
	if p := rootfsOf(t, object{"host": object{"directories": []any{"/usr"}}}, AnyProgramInRoot); !p.AnyProgram() || p.PythonOnly() || p.NamedProgramOnly() {
		t.Error("any_program_in_root is taken for another rule")
	}
}

func TestRootfsRefusals(t *testing.T) {
	type object = map[string]any
	dir := func(path, digest any) object { return object{"directory": object{"path": path, "digest": digest}} }
	host := func(list ...any) object { return object{"host": object{"directories": append([]any{}, list...)}} }
	prepared := func(name string) object { return object{"prepared": object{"name": name, "digest": someDigest}} }
	many := make([]any, maxDirectories+1)
	for i := range many {
		many[i] = "/d" + string(rune('a'+i%26)) + string(rune('a'+i/26))
	}
	for _, c := range []struct {
		edits map[string]any
		path  string
		what  string
	}{
		{object{"rootfs": "oci"}, "rootfs", "an object is wanted"},
		{object{"rootfs": object{"image": "x"}}, "rootfs.image", "not known"},
		{object{"rootfs": object{"oci": object{"layout": "/a"}}}, "rootfs.oci.digest", "missing"},
		{object{"rootfs": object{"oci": object{"layout": "/a", "digest": someDigest}, "host": object{"directories": []any{"/b"}}}}, "rootfs", "more than one"},
		{object{"rootfs": dir("srv/root", someDigest)}, "rootfs.directory.path", "clean absolute"},
		{object{"rootfs": dir("/srv/../root", someDigest)}, "rootfs.directory.path", "clean absolute"},
		{object{"rootfs": dir("/srv/root", "latest")}, "rootfs.directory.digest", "sha256"},
		{object{"rootfs": dir("/srv/root", someDigest[:70])}, "rootfs.directory.digest", "sha256"},
		{object{"rootfs": dir("/srv/root", "SHA256"+someDigest[6:])}, "rootfs.directory.digest", "sha256"},
		{object{"rootfs": host()}, "rootfs.host.directories", "0 entries"},
		{object{"rootfs": host(many...)}, "rootfs.host.directories", "65 entries"},
		{object{"rootfs": host("/usr", "/usr/lib")}, "rootfs.host.directories[1]", "collides"},
		{object{"rootfs": host("/usr", "/usr")}, "rootfs.host.directories[1]", "collides"},
		{object{"rootfs": prepared("../x")}, "rootfs.prepared.name", "no name"},
		{object{"rootfs": prepared(".hidden")}, "rootfs.prepared.name", "no name"},
		{object{"rootfs": object{"verify_before_start": true}}, "rootfs.verify_before_start", "nothing of this root"},
		{object{"process_policy.exec_allowlist": AnyProgramInRoot}, "process_policy.exec_allowlist", "needs a root"},
		{object{"process_policy.exec_allowlist": AnyProgramInRoot, "rootfs": prepared("x")}, "process_policy.exec_allowlist", "needs a root"},
	} {
		_, err := Decode("file", edited(t, c.edits))
		if err == nil {
			t.Errorf("%v: accepted", c.edits)
			continue
		}
		if f := faultsOf(t, err); len(f) > 1 || !tells(f, invalid, c.path, 0, c.what) {
			t.Errorf("%v: got %+v; want only %q at %s", c.edits, f, c.what, c.path)
		}
	}
	if _, err := Decode("file", edited(t, object{"rootfs": dir("/", someDigest)})); err == nil || !tells(faultsOf(t, err), unenforceable, "rootfs.directory.path", 0, "whole host") {
		t.Errorf("the host's root as a root: %v", err)
	}
}
