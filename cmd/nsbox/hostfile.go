package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"nsbox/launcher"
)

// hostFiles is what a newcomer needs to hear after a failure: an argument names a
// file that is here and was not in the box. nsbox never shows one by itself.
// live tells whether the policy lets --ro show one.
func hostFiles(argv []string, shown []launcher.Bind, live bool) []string {
	if len(argv) == 0 {
		return nil
	}
	for _, arg := range argv[1:] {
		if !strings.ContainsAny(arg, "/.") || strings.HasPrefix(arg, "-") || path.IsAbs(arg) && inBox(path.Clean(arg), shown) {
			continue
		}
		st, err := os.Stat(arg)
		if err != nil || path.Clean(arg) == "." || path.Clean(arg) == ".." {
			continue
		}
		whole, err := filepath.Abs(arg)
		if err != nil {
			continue
		}
		inside := "/in/" + path.Base(whole)
		if st.IsDir() {
			inside = "/in"
		}
		next := fmt.Sprintf("next: copy it in with --in %s and name it %s", arg, inside)
		if place := "/src/" + path.Base(whole); live && strings.HasPrefix(whole, "/tmp/") { // the box has a /tmp of its own
			next += fmt.Sprintf("; or show it live with --ro %s:%s and name it %s", arg, place, place)
		} else if live {
			next += fmt.Sprintf("; or show it live with --ro %s and name it %s", arg, whole)
		}
		return []string{fmt.Sprintf("%s is of this host, not of the box", arg), next}
	}
	return nil
}

// inBox: an absolute path that the box may have of its own, or was shown.
func inBox(p string, shown []launcher.Bind) bool {
	below := func(dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }
	if slices.ContainsFunc([]string{"/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/dev", "/proc", "/in", "/out", "/scratch"}, below) {
		return true
	}
	return slices.ContainsFunc(shown, func(b launcher.Bind) bool {
		at := b.Target
		if at == "" {
			at, _ = filepath.Abs(b.Source)
		}
		return below(at)
	})
}
