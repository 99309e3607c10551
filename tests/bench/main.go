// Command bench starts a trivial program in nsbox and in bubblewrap, one after
// the other in one run, and prints ratios: absolute times mean little on a
// shared machine. bubblewrap gets an equivalent box: the same files, tmpfs
// sizes, namespaces and the very filter that nsbox loads.
//
//	go run ./tests/bench [-n 60] [-nsbox bin/nsbox]
//
// Two figures are printed. "whole" is the process as a caller sees it, with all
// that bubblewrap does not do: policy, probe, attestation, journal, result.
// "box only" is nsbox's own account of set-up, attestation, run and stop proof
// against the whole of bubblewrap.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"nsbox/launcher"
	"nsbox/launcher/policy"
	"nsbox/launcher/rootfs"
	"nsbox/nsexec"
	"nsbox/tests/harness"
)

const program = "/usr/bin/true"

func main() {
	n := flag.Int("n", 60, "rounds")
	bin := flag.String("nsbox", "bin/nsbox", "the built binary")
	flag.Parse()
	if err := run(*n, *bin); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(n int, bin string) error {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "nsbox-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := &bench{dir: dir, bin: bin, result: dir + "/result.json", phases: map[string][]float64{}}
	if err := b.prepare(); err != nil {
		return err
	}
	cases := []struct {
		name string
		argv []string
	}{
		{"nsbox", b.nsbox(b.policy)},
		{"nsbox from an image", b.nsbox(b.imagePolicy)},
		{"bwrap", b.bwrap},
		{"nsbox version", []string{bin, "version"}},
		{"bare program", []string{program}},
	}
	times := map[string][]float64{}
	for round := range n + 3 {
		for _, c := range cases {
			ms, err := b.once(c.argv)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			if round < 3 { // the first rounds fill caches
				continue
			}
			times[c.name] = append(times[c.name], ms)
			if c.name == "nsbox" {
				if err := b.account(); err != nil {
					return err
				}
			}
		}
	}
	if trees, _ := filepath.Glob(b.dir + "/state/store/entries/*/root"); len(trees) != 1 {
		return fmt.Errorf("the image was not used: the store holds %q", trees)
	}
	b.print(n, times)
	return nil
}

type bench struct {
	dir, bin, result string
	policy           string
	imagePolicy      string // the same program and files, from an image of one layer
	bwrap            []string
	filter           string // for bubblewrap, as descriptor 3
	phases           map[string][]float64
}

// prepare writes a policy that lets the trivial program run, and bubblewrap's
// equivalent of the box that this policy gives.
func (b *bench) prepare() error {
	preset, _ := policy.PresetBytes("sales-summary")
	text := strings.Replace(string(preset), `"python_interpreter_only"`, `"named_program_only"`, 1)
	b.policy = b.dir + "/policy.json"
	if err := os.WriteFile(b.policy, []byte(text), 0o600); err != nil {
		return err
	}
	b.imagePolicy = b.dir + "/image-policy.json"
	filter := b.dir + "/filter.bpf"
	if out, err := exec.Command(b.bin, "policy", "seccomp", "--bpf", filter).CombinedOutput(); err != nil {
		return fmt.Errorf("nsbox policy seccomp: %v: %s", err, out)
	}
	closure, err := rootfs.Resolve(program, nil)
	if err != nil {
		return err
	}
	nodes, err := rootfs.Layout(closure, rootfs.Options{ScratchBytes: 64 << 20, ScratchInodes: 256, OutBytes: 8 << 20, OutInodes: 64, WorkloadUID: 10001, WorkloadGID: 10001, ExporterUID: 20002})
	if err != nil {
		return err
	}
	if err := b.image(text, nodes); err != nil {
		return err
	}
	args := []string{"bwrap", "--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup",
		"--uid", "10001", "--gid", "10001", "--hostname", "nsbox", "--new-session", "--die-with-parent", "--clearenv", "--setenv", "PATH", "/usr/bin:/bin"}
	etc := 0
	for _, node := range nodes {
		switch node.Kind {
		case nsexec.Dir:
			if node.Path != "/" {
				args = append(args, "--dir", node.Path)
			}
		case nsexec.File:
			etc++
			file := fmt.Sprintf("%s/etc-%d", b.dir, etc)
			if err := os.WriteFile(file, node.Data, 0o644); err != nil {
				return err
			}
			args = append(args, "--ro-bind", file, node.Path)
		case nsexec.Symlink:
			args = append(args, "--symlink", node.Source, node.Path)
		case nsexec.BindDir, nsexec.BindFile:
			args = append(args, "--ro-bind", node.Source, node.Path)
		case nsexec.Device:
			args = append(args, "--dev-bind", node.Source, node.Path)
		case nsexec.Tmpfs:
			args = append(args, "--tmpfs", node.Path)
		case nsexec.Proc:
			args = append(args, "--proc", node.Path)
		}
	}
	args = append(args, "--remount-ro", "/", "--chdir", "/scratch", "--seccomp", "3", program)
	b.bwrap, b.filter = args, filter
	return nil
}

// image makes an image of the host files that the box is given, and the policy
// that takes them from there. The first start unpacks it.
func (b *bench) image(text string, nodes []nsexec.Node) error {
	root := b.dir + "/root"
	for _, node := range nodes {
		at := root + node.Path
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		var err error
		switch node.Kind {
		case nsexec.Symlink:
			err = os.Symlink(node.Source, at)
		case nsexec.BindFile:
			var data []byte
			if data, err = os.ReadFile(node.Source); err == nil {
				err = os.WriteFile(at, data, 0o755)
			}
		}
		if err != nil {
			return err
		}
	}
	digest, err := harness.Image(root, b.dir+"/image")
	if err != nil {
		return err
	}
	from := fmt.Sprintf(`"rootfs": {"oci": {"layout": %q, "digest": %q}}, "policy_id"`, b.dir+"/image", digest)
	return os.WriteFile(b.imagePolicy, []byte(strings.Replace(text, `"policy_id"`, from, 1)), 0o600)
}

func (b *bench) nsbox(policyFile string) []string {
	return []string{b.bin, "exec", "--quiet", "--state-dir", b.dir + "/state", "--policy", policyFile, "--allow-degraded", strings.Join(policy.Dimensions(), ","), "--result", b.result, "--", program}
}

func (b *bench) once(argv []string) (ms float64, err error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	if argv[0] == "bwrap" {
		f, err := os.Open(b.filter)
		if err != nil {
			return 0, err
		}
		defer f.Close()
		cmd.ExtraFiles = []*os.File{f}
	}
	start := time.Now()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("%w: %s", err, out)
	}
	return float64(time.Since(start).Microseconds()) / 1000, nil
}

// account reads nsbox's own phases of the last run.
func (b *bench) account() error {
	data, err := os.ReadFile(b.result)
	if err != nil {
		return err
	}
	var r launcher.Result
	if err := json.Unmarshal(data, &r); err != nil {
		return err
	}
	if r.Workload.Outcome != launcher.Exited {
		return fmt.Errorf("the program did not run: %+v", r.Reason)
	}
	for k, v := range r.DurationsMS {
		b.phases[k] = append(b.phases[k], v)
	}
	d := r.DurationsMS
	b.phases["box only"] = append(b.phases["box only"], d["box"]+d["attest"]+d["run"]+d["stop"])
	return nil
}

func (b *bench) print(n int, times map[string][]float64) {
	bw := median(times["bwrap"])
	fmt.Printf("%d rounds, interleaved; ratios to bubblewrap with an equivalent box and filter (median %.2f ms)\n\n", n, bw)
	line := func(name string, ms float64) { fmt.Printf("  %-34s %8.2f ms   × %.2f\n", name, ms, ms/bw) }
	line("whole: nsbox exec", median(times["nsbox"]))
	image := median(times["nsbox from an image"])
	fmt.Printf("  %-34s %8.2f ms   × %.2f of the line above, want at most 1.15\n", "whole: root from an image", image, image/median(times["nsbox"]))
	line("box only", median(b.phases["box only"]))
	line("launcher start (nsbox version)", median(times["nsbox version"]))
	line("the program without any box", median(times["bare program"]))
	fmt.Println("\nby phase:")
	for _, p := range []struct{ key, name string }{
		{"policy", "policy"}, {"probe", "probe"}, {"plan", "plan"}, {"stage", "filters, cgroup, staging"},
		{"box-maps", "id maps (helpers if unprivileged)"}, {"box", "kernel work: set-up of the box"}, {"attest", "attestation"},
		{"journal", "journal, joined before go"}, {"run", "go to end of program"}, {"stop", "stop proof"}, {"export", "export"}, {"cleanup", "clean-up"},
	} {
		if v := b.phases[p.key]; len(v) > 0 {
			line(p.name, median(v))
		}
	}
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2]
}
