package main

import (
	"context"
	"fmt"
	"maps"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"nsbox/launcher"
	"nsbox/launcher/policy"
	"nsbox/launcher/reason"
)

// The commands that fill, show and clean the store of roots and packages.
type storeCommand struct {
	List   storeListFlags   `cmd:""`
	Verify storeListFlags   `cmd:""`
	GC     storeGCFlags     `cmd:"" name:"gc"`
	Rm     storeRmFlags     `cmd:""`
	Add    storeAddFlags    `cmd:""`
	Digest storeDigestFlags `cmd:""`
}

type storeListFlags struct {
	JSON     bool `name:"json"`
	StateDir string
}

type storeGCFlags struct {
	DryRun   bool
	JSON     bool `name:"json"`
	StateDir string
}

type storeRmFlags struct {
	What     string `arg:"" name:"NAME|DIGEST"`
	StateDir string
}

type storeAddFlags struct {
	Layout   string `arg:"" name:"LAYOUT"`
	Digest   string `arg:"" name:"DIGEST"`
	StateDir string
}

type storeDigestFlags struct {
	Dir string `arg:"" name:"DIR"`
}

type prepFlags struct {
	Lock     string `required:""`
	Wheels   string `required:""`
	Name     string `required:""`
	Rootfs   string
	JSON     bool `name:"json"`
	StateDir string
}

const (
	storeUsage = "nsbox store COMMAND"
	prepUsage  = "nsbox prep --lock FILE --wheels DIR --name NAME [--rootfs KIND:PATH@DIGEST]"
)

func storeWording(texts map[string]words) {
	const stateDir = "The state directory; otherwise " + stateDefault + "."
	maps.Copy(texts, map[string]words{
		"prep":             {"", "", "Install wheels that a lock file pins, offline, for rootfs.prepared of a policy."},
		"prep --lock":      {"", "FILE", "Requirements with exact versions and one sha256 each."},
		"prep --wheels":    {"", "DIR", "The wheels, and nothing else: one for each requirement."},
		"prep --name":      {"", "NAME", "What the policy calls them."},
		"prep --rootfs":    {"", "KIND:PATH@DIGEST", "Whose interpreter and pip: directory:PATH@sha256:HEX or oci:LAYOUT@sha256:HEX; otherwise this host's."},
		"prep --json":      {"", "", "Print one JSON document."},
		"prep --state-dir": {"", "DIR", stateDir},

		"store":                    {"", "", "Show, check and clean the store of roots and prepared packages."},
		"store list":               {"", "", "List what is in the store."},
		"store list --json":        {"", "", "Print one JSON document."},
		"store list --state-dir":   {"", "DIR", stateDir},
		"store verify":             {"", "", "Read every byte again and compare it with its digest."},
		"store verify --json":      {"", "", "Print one JSON document."},
		"store verify --state-dir": {"", "DIR", stateDir},
		"store gc":                 {"", "", "Remove what nothing stands for, images and quarantine unused for 14 days, and what dead makers left."},
		"store gc --dry-run":       {"", "", "Say what would be removed, and remove nothing."},
		"store gc --json":          {"", "", "Print one JSON document."},
		"store gc --state-dir":     {"", "DIR", stateDir},
		"store rm":                 {"", "", "Remove prepared packages by name, or an entry by digest."},
		"store rm NAME|DIGEST":     {"", "", "A name, a tree's digest or an image's."},
		"store rm --state-dir":     {"", "DIR", stateDir},
		"store add":                {"", "", "Unpack an image of an OCI layout directory into the store."},
		"store add LAYOUT":         {"", "", "The layout directory."},
		"store add DIGEST":         {"", "", "The digest of the image's manifest."},
		"store add --state-dir":    {"", "DIR", stateDir},
		"store digest":             {"", "", "Print the content digest of a directory, as rootfs.directory takes it."},
		"store digest DIR":         {"", "", "The directory that holds a root."},
	})
}

func prepDetails() string {
	return `
Wheels are compared with the lock by sha256, looked at in a box of their own,
and installed by the root's own pip in a box without a network. A wheel that is
wrong, missing, additional, doubled or malformed, or an archive of sources, is
refused; nothing is then installed, and material and log are in quarantine.

Example:
  nsbox prep --lock requirements.txt --wheels wheels --name tools
`
}

func storeDetails() string {
	return `
Example:
  nsbox store digest /srv/roots/debian12
  nsbox store verify
`
}

// interruptible ends with the signals that ask a program to end.
func interruptible() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
}

// rootArg reads KIND:PATH@DIGEST.
func rootArg(arg string) (policy.RootSource, error) {
	if arg == "" {
		return policy.ClosureRoot{}, nil
	}
	kind, rest, _ := strings.Cut(arg, ":")
	at := strings.LastIndex(rest, "@")
	bad := reason.New(reason.Usage, "--rootfs "+arg, "is not KIND:PATH@DIGEST", "write directory:PATH@sha256:HEX or oci:LAYOUT@sha256:HEX")
	if at < 1 || !policy.ValidDigest(rest[at+1:]) {
		return nil, bad
	}
	path, err := filepath.Abs(rest[:at])
	switch {
	case err != nil:
	case kind == "directory":
		return policy.DirectoryRoot{Path: path, Digest: rest[at+1:]}, nil
	case kind == "oci":
		return policy.OCIRoot{Layout: path, Digest: rest[at+1:]}, nil
	}
	return nil, bad
}

func prepare(c *console, f prepFlags) error {
	source, err := rootArg(f.Rootfs)
	if err != nil {
		return err
	}
	ctx, stop := interruptible()
	defer stop()
	p, err := launcher.Prep(ctx, launcher.PrepRequest{Lock: f.Lock, Wheels: f.Wheels, Root: source, Name: f.Name, StateDir: f.StateDir})
	if err != nil {
		return err
	}
	if f.JSON {
		return c.document(struct {
			Schema string `json:"schema"`
			launcher.Prepared
		}{"nsbox.prep/1", p})
	}
	c.text(fmt.Sprintf("%s: %s for Python %s, %s in the store\n"+
		"in the policy:  \"rootfs\": {\"prepared\": {\"name\": %q, \"digest\": %q}}\n", p.Name, count(int64(p.Wheels), "wheel"), visible(p.Python), bytesText(p.Bytes), p.Name, p.Digest))
	return nil
}

func listStore(c *console, f storeListFlags) error {
	content, err := launcher.StoreList(f.StateDir)
	if err != nil {
		return err
	}
	if f.JSON {
		return c.document(struct {
			Schema string `json:"schema"`
			launcher.StoreContent
		}{"nsbox.store/1", content})
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, i := range content.Items {
		what := append([]string{}, i.Names...)
		for _, image := range i.Images {
			what = append(what, "image "+image[:min(len(image), 19)])
		}
		if i.Note != "" {
			what = append(what, visible(i.Note))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", i.Digest, i.Kind, bytesText(i.Bytes), strings.Join(what, ", "))
	}
	w.Flush()
	for _, q := range content.Quarantine {
		fmt.Fprintf(&b, "quarantine/%s\n", visible(q))
	}
	if b.Len() == 0 {
		b.WriteString("the store is empty\n")
	}
	c.text(b.String())
	return nil
}

func bytesText(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

func verifyStore(c *console, f storeListFlags) error {
	all, err := launcher.StoreVerify(f.StateDir)
	if err != nil {
		return err
	}
	faults := 0
	var b strings.Builder
	for _, v := range all {
		if v.Fault == nil {
			fmt.Fprintf(&b, "ok       %s\n", visible(v.What))
			continue
		}
		faults++
		fmt.Fprintf(&b, "DAMAGED  %s: %s %s\n", visible(v.What), visible(v.Fault.What), visible(v.Fault.Why))
	}
	if f.JSON {
		err = c.document(struct {
			Schema string                   `json:"schema"`
			Checks []launcher.StoreVerified `json:"checks"`
			Faults int                      `json:"faults"`
		}{"nsbox.store-verify/1", append([]launcher.StoreVerified{}, all...), faults})
	} else {
		fmt.Fprintf(&b, "%s, %d damaged\n", count(int64(len(all)), "check"), faults)
		c.text(b.String())
	}
	if err == nil && faults > 0 {
		err = reason.New(reason.StoreDamaged, "the store", fmt.Sprintf("%d of %d checks failed", faults, len(all)), "remove what is damaged with nsbox store rm, and find out who changed it")
	}
	return err
}

func collectStore(c *console, f storeGCFlags) error {
	ctx, stop := interruptible()
	defer stop()
	removed, err := launcher.StoreCollect(ctx, f.StateDir, time.Now(), f.DryRun)
	if err != nil {
		return err
	}
	if f.JSON {
		return c.document(struct {
			Schema  string   `json:"schema"`
			Removed []string `json:"removed"`
			DryRun  bool     `json:"dry_run"`
		}{"nsbox.store-gc/1", removed, f.DryRun})
	}
	return printRemoved(c, removed, f.DryRun)
}

func removeStored(c *console, f storeRmFlags) error {
	ctx, stop := interruptible()
	defer stop()
	removed, err := launcher.StoreRemove(ctx, f.StateDir, f.What)
	if err != nil {
		return err
	}
	return printRemoved(c, removed, false)
}

func printRemoved(c *console, removed []string, dry bool) error {
	word := "removed"
	if dry {
		word = "would remove"
	}
	var b strings.Builder
	for _, r := range removed {
		fmt.Fprintf(&b, "%s %s\n", word, visible(r))
	}
	if b.Len() == 0 {
		b.WriteString("nothing to remove\n")
	}
	c.text(b.String())
	return nil
}

func addToStore(c *console, f storeAddFlags) error {
	ctx, stop := interruptible()
	defer stop()
	m, err := launcher.StoreAdd(ctx, f.StateDir, f.Layout, f.Digest)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("%s: %s, %s\n", m.Digest, fmt.Sprintf("%d entries", m.Entries), bytesText(m.Bytes))
	for _, k := range sortedCounts(m.Left) {
		text += fmt.Sprintf("not taken over: %s %d\n", k, m.Left[k])
	}
	c.text(text)
	return nil
}

func sortedCounts(m map[string]int) []string {
	return slices.Sorted(maps.Keys(m))
}

func digestDirectory(c *console, f storeDigestFlags) error {
	t, err := launcher.StoreDigest(f.Dir)
	if err != nil {
		return err
	}
	c.text(fmt.Sprintf("%s  %s, %s\n", t.Digest, fmt.Sprintf("%d entries", t.Entries), bytesText(t.Bytes)))
	return nil
}
