package tool

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"nsbox/tests/harness"
)

// relocated makes a small Python installation of the distribution's own files, in
// the layout that pyenv, conda and uv share: bin and lib below one directory.
func relocated(t *testing.T, s *harness.Site, name string) (dir, version string) {
	t.Helper()
	dir = filepath.Join(s.Folder(), name)
	const build = `set -e
v=$(/usr/bin/python3 -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
mkdir -p "$1/bin" "$1/lib/$v"
cp /usr/bin/$v "$1/bin/$v"
ln -s $v "$1/bin/python3"; ln -s $v "$1/bin/python"
cd /usr/lib/$v
cp -r *.py encodings collections re importlib json lib-dynload "$1/lib/$v/" 2>/dev/null || cp -r *.py encodings collections importlib json lib-dynload "$1/lib/$v/"
chmod -R a+rX "$1"
echo $v`
	out, err := exec.Command("sh", "-c", build, "sh", dir).Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir, strings.TrimSpace(string(out))
}

// Interpreters that live outside of /usr start when their directories are added:
// conda's environment, uv's virtual environment over an interpreter of its own,
// and pyenv's version, a real one where this machine has it.
func TestInterpretersElsewhere(t *testing.T) {
	harness.ForEach(t, func(t *testing.T, s *harness.Site) {
		dir, v := relocated(t, s, "cpython")
		const where = "import json, sys; print(sys.prefix, sys.base_prefix)"
		j := everyday("python", "-c", where)
		if run := s.Run(j); run.Status == 0 {
			t.Errorf("the control: there is a python: %q", run.Stdout)
		}
		j.Flags = []string{"--rootfs-add", dir + ":/opt/conda/envs/work"}
		if run := s.Run(j).WantOK(); string(run.Stdout) != "/opt/conda/envs/work /opt/conda/envs/work\n" {
			t.Errorf("conda: %q", run.Stdout)
		}

		venv := filepath.Join(s.Folder(), "venv")
		module := filepath.Join(venv, "lib", v, "site-packages", "mod.py")
		for _, d := range []string{filepath.Join(venv, "bin"), filepath.Dir(module)} {
			if err := os.MkdirAll(d, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for name, text := range map[string]string{module: "word = 'installed'\n", filepath.Join(venv, "pyvenv.cfg"): "home = /opt/uv/python/cpython/bin\ninclude-system-site-packages = false\n"} {
			if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink("/opt/uv/python/cpython/bin/"+v, filepath.Join(venv, "bin", "python")); err != nil {
			t.Fatal(err)
		}
		j = everyday("python", "-c", "import mod; print(mod.word); "+where)
		j.Flags = []string{"--rootfs-add", venv + ":/opt/work/.venv", "--rootfs-add", dir + ":/opt/uv/python/cpython"}
		if run := s.Run(j).WantOK(); string(run.Stdout) != "installed\n/opt/work/.venv /opt/uv/python/cpython\n" {
			t.Errorf("uv: %q", run.Stdout)
		}
		j.Flags = j.Flags[:2] // without the interpreter that the environment leads to
		if run := s.Run(j); run.Status != 127 {
			t.Errorf("uv without its interpreter: status %d, %.400s", run.Status, run.Stderr)
		}

		version, place := dir, ":/opt/pyenv/versions/3"
		if s.Caller.UID == 0 {
			version, place = pyenv(dir)
		}
		j = everyday("python3", "-c", "import sys; print(sys.prefix)")
		j.Flags = []string{"--rootfs-add", version + place}
		want := strings.TrimPrefix(place, ":")
		if want == "" {
			want = version
		}
		if run := s.Run(j).WantOK(); string(run.Stdout) != want+"\n" {
			t.Errorf("pyenv's %s: %q", version, run.Stdout)
		}
	})
}

// pyenv is the newest version of root's own pyenv, shown at its own path, or else
// the directory given, at the place where one would be.
func pyenv(miniature string) (dir, place string) {
	root, err := exec.Command("pyenv", "root").Output()
	found, _ := filepath.Glob(strings.TrimSpace(string(root)) + "/versions/3.*/bin/python3")
	if err != nil || len(found) == 0 {
		return miniature, ":/opt/pyenv/versions/3"
	}
	slices.Sort(found)
	return filepath.Dir(filepath.Dir(found[len(found)-1])), ""
}
