package conformance

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"nsbox/launcher"
	"nsbox/tests/harness"
)

func fileFixtures() []Fixture {
	return []Fixture{
		{ID: "S1", Title: "the sanctioned job", Profile: "TP-PROD", Quick: true, Run: s1,
			Attempt: "read one file of 200 rows, write one of at most 2 KiB; 1 run",
			Shows:   "the box does the job it exists for: exit 0, an accepted artifact whose digest equals a reference computed outside",
			Cannot:  "any security property"},
		{ID: "S2", Title: "a secret of the host", Profile: "TP-PROD", Quick: true, Run: s2,
			Attempt: "open a planted token by 6 ways: direct, .., /proc/self/root, init's root, the working directory, a symbolic link",
			Shows:   "the token is not reachable and stands in no output",
			Cannot:  "that a permission check holds: ENOENT shows that the file is not mounted"},
		{ID: "S3", Title: "writes outside /scratch and /out", Profile: "TP-PROD", Quick: true, Run: s3,
			Attempt: "one byte to 8 targets: the root, /in, /etc, /usr, the interpreter, /proc/sys, /sys, by traversal",
			Shows:   "each write fails, and the files of the host are unchanged",
			Cannot:  "resistance to kernel bugs"},
		{ID: "S4", Title: "odd entries in /out", Profile: "TP-PROD", Run: s4,
			Attempt: "leave a symbolic link to a secret, a hard link to an input, a FIFO, a link to a directory; 4 runs",
			Shows:   "each is REJECTED with a reason code and no byte behind it leaves",
			Cannot:  "resistance to a swap while the exporter looks: S11"},
	}
}

func s1(c *Case) {
	var input, want strings.Builder
	input.WriteString("region,amount\n")
	regions := []string{"east", "north", "south", "west"}
	counts, amounts := map[string]int{}, map[string]int{}
	for n := range 200 {
		r := regions[n*7%4]
		fmt.Fprintf(&input, "%s,%d\n", r, 1000+n*37)
		counts[r]++
		amounts[r] += 1000 + n*37
	}
	want.WriteString("region,rows,amount\n")
	for _, r := range regions {
		fmt.Fprintf(&want, "%s,%d,%d\n", r, counts[r], amounts[r])
	}
	c.Control("the run itself", func() {
		job := c.Program("s1.py")
		job.In, job.Deliver = []string{c.File("sales.csv", input.String())}, c.Folder()
		run := c.Do(job).WantOK()
		c.WantDelivered(run, job.Deliver, []byte(want.String()))
	})
}

// WantDelivered wants exactly these bytes, under the digest the result names.
func (c *Case) WantDelivered(r *harness.Run, folder string, want []byte) {
	got, err := os.ReadFile(filepath.Join(folder, "summary.csv"))
	sum := sha256.Sum256(want)
	digest := "sha256:" + hex.EncodeToString(sum[:])
	if a := r.Result.Artifact; err != nil || !bytes.Equal(got, want) || a.Outcome != launcher.ArtifactAccepted || a.SHA256 != digest {
		c.Errorf("artifact %+v, delivered %d bytes (%v), want %d with %s", a, len(got), err, len(want), digest)
	}
	if r.Result.Delivery.Outcome != launcher.Delivered {
		c.Errorf("delivery %+v", r.Result.Delivery)
	}
	c.Note("artifact", digest)
}

// WantRejected wants the artifact refused for all of these reasons, and nothing
// in the folder.
func (c *Case) WantRejected(r *harness.Run, folder string, reasons ...string) {
	a := r.Result.Artifact
	if a.Outcome != launcher.ArtifactRejected || r.Result.Delivery.Outcome == launcher.Delivered || r.Status != launcher.ExitUndelivered {
		c.Errorf("artifact %+v, delivery %+v, exit status %d; want REJECTED and nothing delivered", a, r.Result.Delivery, r.Status)
	}
	for _, want := range reasons {
		if !slices.Contains(a.Reasons, want) {
			c.Errorf("reasons %v, want %s among them", a.Reasons, want)
		}
	}
	c.Note("reason codes", a.Reasons)
	if entries, err := os.ReadDir(folder); err != nil || len(entries) != 0 {
		c.Errorf("the delivery folder holds %v: %v", entries, err)
	}
}

func s2(c *Case) {
	token := c.canaries()[0]
	job := c.Program("s2.py", token)
	run := c.Do(job).WantOK()
	absent := []string{"ENOENT", "EACCES"}
	c.Want(run.Report(), map[string][]string{"direct": absent, "traversal": absent, "own root": absent, "init's root": absent, "working directory": absent, "symbolic link": absent})
	c.Absent(run, Canary)
	// The mount table, as the launcher read it and as the box itself shows it.
	mounts := 0
	for _, row := range run.Result.Attestation {
		if strings.HasPrefix(row.Restriction, "mount ") {
			mounts++
		}
		if strings.Contains(row.Restriction+row.Shown, c.Dir) {
			c.Errorf("the mount table has %s", row.Restriction)
		}
	}
	table := c.Do(c.Program("view.py")).WantOK().Report()["mountinfo"]
	if mounts < 5 || !strings.Contains(table, " /scratch ") || strings.Contains(table, "mock-secret") {
		c.Errorf("%d mounts are attested, the box's own table: %s", mounts, table)
	}
	c.Note("mount table", fmt.Sprintf("%d mounts, none leads to the token", mounts))
	// Afterwards: the control brings the token into the site's own records.
	c.Control("the caller reads the token outside, and a box that is given it finds it", func() {
		if got, err := os.ReadFile(token); err != nil || string(got) != Canary {
			c.Fatalf("read %q: %v", got, err)
		}
		given := job
		given.In, given.Args = []string{c.File("token.txt", Canary)}, []string{token, "/in/token.txt"}
		run := c.Do(given).WantOK()
		if got := run.Report()["control"]; got != "ok "+Canary {
			c.Errorf("the staged token read as %q", got)
		}
		if len(run.Holding(Canary)) < 3 {
			c.Error("the search for the token does not find it where it is")
		}
	})
}

func s3(c *Case) {
	victim := c.File("victim.csv", "a,b\n1,2\n")
	targets := []string{victim, "/etc/passwd", "/etc/hosts", "/proc/sys/kernel/hostname", "/written", "/usr/lib/written", "/sys/kernel/written"}
	before := harness.Fingerprint(c, targets...)
	job := c.Program("s3.py")
	job.In = []string{victim}
	run := c.Do(job).WantOK()
	report := run.Report()
	c.Control("a write to /scratch succeeds", func() { c.Want(report, map[string][]string{"control": {"ok x"}}) })
	denied := []string{"EROFS", "EACCES", "EPERM"}
	c.Want(report, map[string][]string{"root": denied, "in": denied, "etc": denied, "usr": denied, "interpreter": denied, "proc sys": denied,
		"sys": append(denied, "ENOENT"), "traversal": denied, "unchanged": {"True"}, "written": {"False"}})
	if harness.Fingerprint(c, targets...) != before {
		c.Error("a target on the host changed")
	}
}

// leave is a job that makes /out with Python code.
func (c *Case) leave(code string) (harness.Job, string) {
	job := harness.Job{Code: "import os\np = '/out/summary.csv'\ndef put(name, data):\n with open('/out/' + name, 'wb') as f: f.write(data)\n" + code, Deliver: c.Folder(), Policy: c.Profile(c.fixture.Profile)}
	return job, job.Deliver
}

// exports is the control of every fixture about rejected artifacts.
func (c *Case) exports() {
	c.Control("a plain summary.csv of 1 KiB is exported", func() {
		data := bytes.Repeat([]byte("0123456789abcde\n"), 64)
		job, folder := c.leave("put('summary.csv', b'0123456789abcde\\n' * 64)\n")
		c.WantDelivered(c.Do(job).WantOK(), folder, data)
	})
}

func s4(c *Case) {
	c.exports()
	token := c.canaries()[0]
	given := c.File("given.csv", Canary+",1\n")
	// Where the kernel denies a link to another mount, a file with two names of
	// its own stands for it: what the exporter thinks of link counts must show.
	hardLink := "try: os.link('/in/given.csv', p)\nexcept OSError as e:\n print('the kernel denies it:', e.strerror)\n put('summary.csv', b'a,b\\n')\n os.link(p, '/out/other-name')\n"
	for _, v := range []struct{ what, code, reason string }{
		{"symbolic link", fmt.Sprintf("os.symlink(%q, p)\n", token), "symlink"},
		{"hard link", hardLink, "hardlink"},
		{"FIFO", "os.mkfifo(p)\n", "fifo"},
		{"link to a directory", "os.symlink('/', p)\n", "symlink"},
	} {
		before := harness.Fingerprint(c, given, token)
		job, folder := c.leave(v.code)
		job.In = []string{given}
		run := c.Do(job)
		c.Note(v.what+", printed", strings.TrimSpace(string(run.Stdout)))
		c.WantRejected(run, folder, v.reason)
		c.Absent(run, Canary, folder)
		if harness.Fingerprint(c, given, token) != before {
			c.Errorf("%s: what it leads to changed", v.what)
		}
	}
}
