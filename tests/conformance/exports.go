package conformance

import (
	"bytes"
	"compress/gzip"
	"strings"
)

func exportFixtures() []Fixture {
	return []Fixture{
		{ID: "S10", Title: "size, names and count of what leaves", Profile: "TP-PROD", Run: s10,
			Attempt: "a summary.csv of 2 MiB; a wrong name; a second file; 16 MiB in 8 writes",
			Shows:   "the first three are REJECTED, the last meets ENOSPC at the mount's 8 MiB", Cannot: "other quotas of the host"},
		{ID: "S11", Title: "swaps while the exporter looks", Profile: "TP-PROD", Run: s11,
			Attempt: "a racer, not the workload, swaps the file and a link to a secret 50 times while the exporter exists",
			Shows:   "the original's own bytes leave, or nothing", Cannot: "races within the kernel"},
		{ID: "S16", Title: "an archive under the artifact's name", Profile: "TP-PROD", Run: s16,
			Attempt: "one real gzip file of about 100 KiB that expands to 64 MiB of zeros",
			Shows:   "refused by its first bytes, never decompressed", Cannot: "decompression limits: nothing decompresses"},
	}
}

func s10(c *Case) {
	c.exports()
	for _, v := range []struct{ what, code, reason string }{
		{"2 MiB", "put('summary.csv', b'0123456789abcde\\n' * (2 << 16))\n", "too_large"},
		{"wrong name", "put('other.csv', b'a,b\\n')\n", ""},
		{"second file", "put('summary.csv', b'a,b\\n')\nput('second.csv', b'a,b\\n')\n", ""},
	} {
		job, folder := c.leave(v.code)
		run := c.Do(job)
		if v.reason == "" {
			c.WantRejected(run, folder)
		} else {
			c.WantRejected(run, folder, v.reason)
		}
	}
	job, _ := c.leave("n = 0\ntry:\n with open('/out/big', 'wb', buffering=0) as f:\n  for _ in range(8):\n   n += f.write(b'x' * (2 << 20))\nexcept OSError as e: print(n, e.strerror)\n")
	run := c.Do(job)
	got := string(run.Stdout)
	c.Note("16 MiB", strings.TrimSpace(got))
	if !strings.Contains(got, "No space left") {
		c.Errorf("16 MiB in /out: %q", got)
	}
}

func s16(c *Case) {
	c.exports()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	for range 64 {
		if _, err := z.Write(make([]byte, mib)); err != nil {
			c.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		c.Fatal(err)
	}
	c.Note("archive", packed.Len())
	job, folder := c.leave("import shutil\nshutil.copyfile('/in/archive', p)\n")
	job.In = []string{c.File("archive", packed.String())}
	run := c.Do(job)
	c.WantRejected(run, folder)
	if took := run.Result.DurationsMS["export"]; took > 5000 {
		c.Errorf("the export took %.0f ms", took)
	}
}
