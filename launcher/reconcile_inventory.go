package launcher

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"nsbox/launcher/journal"
)

// parts are the names in the attempt's directory that are not its record.
func (s *state) parts(r *remains) []string {
	names, err := readNames(s.path(r.marker.Attempt))
	if err != nil {
		return nil
	}
	accepted := r.data(journal.CopyVerified, "artifact") == ArtifactAccepted
	return slices.DeleteFunc(names, func(n string) bool {
		switch n {
		case "journal", "stdout", "stderr", "result.json", "exporter.log", nonceName, markerName, "QUARANTINE":
			return true
		case "artifact", manifestName:
			return accepted
		}
		return accepted && strings.HasPrefix(n, "artifact-") || strings.HasPrefix(n, "journal.torn-") || strings.HasPrefix(n, "journal.corrupt-")
	})
}

// inventory says what there is to remove.
func (s *state) inventory(r *remains) []string {
	var list []string
	if dir := r.groupDir(); dir != "" && !missing(dir) {
		list = append(list, "remove "+dir)
	}
	for _, n := range s.parts(r) {
		list = append(list, "remove "+s.path(r.marker.Attempt)+"/"+n)
	}
	if o := r.keepsOut(); o != nil {
		list = append(list, "remove what is in "+o.mount.Path)
	}
	if t := r.temp(); t != "" && !missing(t) {
		list = append(list, "remove "+t)
	}
	return list
}

// groupDir is where the job cgroup was to be.
func (r *remains) groupDir() string {
	where := r.data(journal.CgroupIntent, "root")
	if where == "" {
		where = r.marker.Cgroup
	}
	if where == "" {
		return ""
	}
	return where + "/nsbox-" + r.marker.Attempt
}

// temp is the unpublished copy in the delivery directory, as deliver names it.
func (r *remains) temp() string {
	dir := r.data(journal.DeliverIntent, "dir")
	if dir == "" {
		return ""
	}
	return dir + "/.nsbox-" + r.marker.Attempt
}

func (s *state) removeParts(ctx context.Context, p *prover, id string, r *remains) error {
	g, done, err := p.group(r)
	errs := []error{err}
	if g != nil {
		errs = append(errs, g.Remove(ctx))
		done()
	}
	for _, n := range s.parts(r) {
		errs = append(errs, removeIn(s.path(id), n))
	}
	return errors.Join(append(errs, s.emptyOut(ctx, p, r), r.removeTemp())...)
}

// removeTemp removes what a delivery that was cut off left. Its name has the
// attempt's random id in it.
func (r *remains) removeTemp() error {
	t := r.temp()
	if t == "" || missing(t) {
		return nil
	}
	d, err := os.OpenFile(filepath.Dir(t), os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer d.Close()
	return removeTree(int(d.Fd()), filepath.Base(t))
}

// lookAgain compares what is there with what there may be, whatever the removals
// returned: cgroup, directory, delivery directory, processes.
func (s *state) lookAgain(p *prover, id string, r *remains) error {
	var errs []error
	for _, what := range s.inventory(r) {
		errs = append(errs, errors.New(strings.TrimPrefix(what, "remove ")+" is still there"))
	}
	if r.marker.IDs != nil && p.slots != nil && !r.state.Has(journal.CgroupIntent) {
		ctx, cancel := context.WithTimeout(context.Background(), endGrace)
		defer cancel()
		errs = append(errs, p.slots.vacant(ctx, *r.marker.IDs, r.marker.Exe, r.marker.Attempt))
	}
	return errors.Join(errs...)
}
