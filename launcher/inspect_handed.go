package launcher

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"nsbox/launcher/attest"
	"nsbox/nsexec"
)

// handed is what the program has open: each descriptor that the launcher knows
// from its own side must be the same file inside, and there must be no other.
func (in *inspection) handed() {
	const where = "the waiting child's own system calls"
	cr, r := attest.ChildRead, in.box.Report
	for _, n := range append([]int{0, 1, 2}, passedNumbers(in.box)...) {
		got, ok := r.Files[n]
		shown := fileText(got)
		if !ok {
			shown = absent
		}
		want := fileText(in.seen.files[n])
		if in.spec.Terminal == nil && n != 0 && n <= 2 && in.seen.files[n].Type != unix.S_IFIFO {
			want = "a pipe"
		}
		in.row(fmt.Sprintf("descriptor-%d", n), want, shown, where+" (fstat); the launcher's own end", cr)
	}
	private := []int{nsexec.PrivateDescriptors}
	if in.spec.Command.Self {
		private = append(private, nsexec.PrivateDescriptors+1)
	}
	in.row("close-on-exec", strings.Repeat("FD_CLOEXEC ", len(private)), flagsText(r.CloseOnExec), where+" (F_GETFD) about what the child keeps until its exec", cr)
	program := []int{0, 1, 2}
	program = append(program, passedNumbers(in.box)...)
	answered := 0
	for i, result := range r.Names {
		if result >= 0 && i < len(in.spec.Open) {
			program = append(program, in.spec.Open[i].To)
		}
		if result > -maxErrno {
			answered++
		}
	}
	if n := len(in.spec.Open); n > 0 {
		in.row("opened-names", fmt.Sprintf("%d answers", n), fmt.Sprintf("%d answers", answered), "steps open-name-N", cr)
	}
	slices.Sort(program)
	in.row("descriptors", fmt.Sprint(program), programDescriptors(r.Descriptors, private, hasProc(in.spec)), where+" (/proc/self/fd, or poll)", cr)
	if in.spec.Hold != "" {
		want := absent
		for _, m := range in.seen.mounts {
			if m.Mountpoint == in.spec.Hold {
				want = fmt.Sprintf("directory of %d:%d", m.Major, m.Minor)
			}
		}
		in.row("held-directory", want, in.seen.held, "fstat of what the launcher got; /proc/PID/mountinfo of the workload", attest.KernelRead)
	}
	if in.spec.Listable >= 0 {
		in.row("sealed-mode", "0555", in.seen.sealed, "fstat of the launcher's own descriptor", attest.KernelRead)
	}
}

const maxErrno = 4096

func passedNumbers(b *nsexec.Box) (to []int) {
	for _, p := range b.Pass {
		to = append(to, p.To)
	}
	return to
}

// programDescriptors drops from a listing what is private to the waiting child,
// which close-on-exec covers, and the listing's own descriptor, which took the
// lowest free number.
func programDescriptors(open, private []int, listed bool) string {
	if open == nil {
		return absent
	}
	open = slices.Clone(open)
	if listed {
		own := 0 // the last before the first gap
		for slices.Contains(open, own+1) {
			own++
		}
		open = slices.DeleteFunc(open, func(fd int) bool { return fd == own })
	}
	return fmt.Sprint(slices.DeleteFunc(open, func(fd int) bool { return slices.Contains(private, fd) }))
}

func flagsText(flags []int64) string {
	s := ""
	for _, f := range flags {
		if f == unix.FD_CLOEXEC {
			s += "FD_CLOEXEC "
		} else {
			s += answer(f) + " "
		}
	}
	return s
}

// answer is a raw result of the kernel for a reader: a number or an errno's name.
func answer(result int64) string {
	if result < 0 && result > -maxErrno {
		if name := unix.ErrnoName(unix.Errno(-result)); name != "" {
			return name
		}
	}
	return fmt.Sprint(result)
}

func fileText(f nsexec.FileID) string {
	kind := map[uint32]string{unix.S_IFIFO: "pipe", unix.S_IFREG: "file", unix.S_IFDIR: "directory", unix.S_IFSOCK: "socket", unix.S_IFBLK: "block device"}[f.Type]
	switch {
	case f.Type == unix.S_IFCHR && unix.Major(f.Rdev) == terminalMajor:
		return fmt.Sprintf("terminal %d of %d:%d", unix.Minor(f.Rdev), unix.Major(f.Dev), unix.Minor(f.Dev))
	case f.Type == unix.S_IFCHR:
		return fmt.Sprintf("device %d:%d", unix.Major(f.Rdev), unix.Minor(f.Rdev))
	case kind == "":
		return absent
	}
	return fmt.Sprintf("%s %d of %d:%d", kind, f.Ino, unix.Major(f.Dev), unix.Minor(f.Dev))
}
