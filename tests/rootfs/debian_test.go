package rootfs

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"nsbox/tests/harness"
)

// TestPandasFromADirectory: Debian's own pandas groups the demo's data under the
// sales policy with more memory.
func TestPandasFromADirectory(t *testing.T) {
	root := debianRoot(t)
	repository, err := harness.Repository()
	must(t, err)
	input := filepath.Join(repository, "demo/txhousing.csv")
	want := salesByCity(t, input)
	s := harness.NewSite(t, harness.Callers(t)[0])
	folder := s.Folder()
	run := s.Run(harness.Job{Policy: []harness.Change{rootfs(directory(t, s, root)), harness.Set("memory_workload", 1024),
		{Path: "process_policy.env_allowlist", Value: []any{"PATH", "LANG", "PYTHONDONTWRITEBYTECODE", "OPENBLAS_NUM_THREADS"}}},
		In: []string{s.Copy(input)}, Deliver: folder, Code: `
import os, numpy, pandas
frame = pandas.read_csv("/in/txhousing.csv")
frame.groupby("city")["sales"].sum().astype(int).to_csv("/out/summary.csv", header=False)
print(float(numpy.ones((64, 64)).dot(numpy.ones((64, 64)))[0, 0]), len(os.listdir("/proc/self/task")), sorted(os.listdir("/usr/bin")))
`}).WantOK()
	if got := strings.TrimSpace(string(run.Stdout)); !strings.HasPrefix(got, "64.0 1 ['python3") || strings.Contains(got, "bash") {
		t.Errorf("product, threads and programs: %q", got)
	}
	out, err := os.Open(folder + "/summary.csv")
	must(t, err)
	defer out.Close()
	rows, err := csv.NewReader(out).ReadAll()
	must(t, err)
	if len(rows) != len(want) || len(rows) < 40 {
		t.Errorf("%d cities, want %d", len(rows), len(want))
	}
	for _, r := range rows {
		if len(r) != 2 || r[1] != strconv.Itoa(want[r[0]]) {
			t.Errorf("%v, want %d", r, want[r[0]])
		}
	}
}

// TestThreadsFollowTheCPURate: numpy's OpenBLAS starts as many threads as the
// policy's cpu_rate keeps busy, not one for each of the host's cpus.
func TestThreadsFollowTheCPURate(t *testing.T) {
	s := harness.NewSite(t, harness.Callers(t)[0])
	root, cpus := rootfs(directory(t, s, debianRoot(t))), runtime.NumCPU()
	const tasks = 16
	for _, c := range []struct{ percent, want int }{{50, 1}, {100 * cpus, min(cpus, tasks)}} {
		run := s.Run(harness.Job{Policy: []harness.Change{root, harness.Set("memory_workload", 1024), harness.Set("tasks_job", tasks),
			harness.Set("cpu_rate", c.percent), harness.Set("cpu_total", 30*cpus),
			{Path: "process_policy.env_allowlist", Value: []any{"PATH", "LANG", "PYTHONDONTWRITEBYTECODE", "OPENBLAS_NUM_THREADS"}}}, Code: `
import os, numpy
m = numpy.ones((256, 256))
print(m.dot(m)[0, 0], len(os.listdir("/proc/self/task")))
`})
		if got, want := strings.TrimSpace(string(run.Stdout)), fmt.Sprintf("256.0 %d", c.want); got != want {
			t.Errorf("cpu_rate %d%%: product and threads are %q, want %q\n%s", c.percent, got, want, run.Stderr)
		}
	}
}

// salesByCity is the answer by other means.
func salesByCity(t *testing.T, path string) map[string]int {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	rows, err := csv.NewReader(bytes.NewReader(data)).ReadAll()
	must(t, err)
	city, sales := -1, -1
	for i, name := range rows[0] {
		switch name {
		case "city":
			city = i
		case "sales":
			sales = i
		}
	}
	sum := map[string]int{}
	for _, r := range rows[1:] {
		n, err := strconv.ParseFloat(r[sales], 64)
		if err != nil {
			n = 0
		}
		sum[r[city]] += int(n)
	}
	return sum
}

// TestDemoFromAnImage: the main job's answer is the same from the host's files
// and from an image of the Debian root.
func TestDemoFromAnImage(t *testing.T) {
	out := shared(t)
	digest, err := harness.Image(debianRoot(t), out+"/image")
	must(t, err)
	repository, err := harness.Repository()
	must(t, err)
	s := harness.NewSite(t, harness.Callers(t)[0])
	if add := s.Raw("store", "add", "--state-dir", s.State, out+"/image", digest); add.Status != 0 {
		t.Fatalf("store add: %s", add.Stderr)
	}
	in := []string{s.Copy(filepath.Join(repository, "demo/txhousing.csv")), s.Copy(filepath.Join(repository, "demo/summarise.py"))}
	job := harness.Job{Argv: []string{"python3", "/in/summarise.py"}, In: in}
	host := s.Run(job).WantOK().Result.Artifact
	job.Policy = []harness.Change{rootfs(object{"oci": object{"layout": out + "/image", "digest": digest}})}
	image := s.Run(job).WantOK().Result.Artifact
	if host.SHA256 == "" || host.SHA256 != image.SHA256 {
		t.Errorf("from the host %s, from the image %s", host.SHA256, image.SHA256)
	}
	// The same image whole: its own shell and pip are there, the host's files are not.
	job = harness.Job{Policy: append(job.Policy, programs("any_program_in_root")), Argv: []string{"sh", "-c", "ls /; pip --version"}}
	if got := string(s.Run(job).WantOK().Stdout); !strings.Contains(got, "pip 2") || strings.Contains(got, "home") {
		t.Errorf("the whole root: %s", got)
	}
	preparedFor(t, s, "oci:"+out+"/image@"+digest, object{"oci": object{"layout": out + "/image", "digest": digest}})
}
