// Package raw makes the exporter's system calls without telling the Go scheduler.
//
// The policy gives the exporter four tasks. Where an ordinary call takes longer
// than some 20 µs, the runtime's monitor hands the processor to another thread,
// which it makes if none is known to be idle; on a stalled machine one after the
// other is on its way to idle, and the fifth is refused by the kernel, which ends
// the program (exit status 2, "failed to create new OS thread"). A raw call keeps
// the processor, so the monitor has nothing to hand on. The price is that no other
// goroutine runs meanwhile: the exporter has none.
//
// Each function is the call of its name in section 2 of the manual; errors are
// unix.Errno, EINTR among them.
package raw

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

func Pread(fd int, p []byte, at int64) (int, error) {
	n, _, no := unix.RawSyscall6(unix.SYS_PREAD64, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), uintptr(at), 0, 0)
	return count(n, no)
}

func Pwrite(fd int, p []byte, at int64) (int, error) {
	n, _, no := unix.RawSyscall6(unix.SYS_PWRITE64, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), uintptr(at), 0, 0)
	return count(n, no)
}

func Write(fd int, p []byte) (int, error) {
	n, _, no := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	return count(n, no)
}

// Getdents fills p with entries as unix.ParseDirent takes them; 0 is the end.
func Getdents(fd int, p []byte) (int, error) {
	n, _, no := unix.RawSyscall(unix.SYS_GETDENTS64, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	return count(n, no)
}

func Fstat(fd int, st *unix.Stat_t) error {
	_, _, no := unix.RawSyscall(unix.SYS_FSTAT, uintptr(fd), uintptr(unsafe.Pointer(st)), 0)
	return failure(no)
}

func Fstatat(dir int, name string, st *unix.Stat_t, flags int) error {
	text, err := unix.BytePtrFromString(name)
	if err != nil {
		return err
	}
	_, _, no := unix.RawSyscall6(unix.SYS_NEWFSTATAT, uintptr(dir), uintptr(unsafe.Pointer(text)), uintptr(unsafe.Pointer(st)), uintptr(flags), 0, 0)
	return failure(no)
}

func Fcntl(fd, command, arg int) (int, error) {
	n, _, no := unix.RawSyscall(unix.SYS_FCNTL, uintptr(fd), uintptr(command), uintptr(arg))
	return count(n, no)
}

// Rewind is lseek to the beginning.
func Rewind(fd int) error {
	_, _, no := unix.RawSyscall(unix.SYS_LSEEK, uintptr(fd), 0, unix.SEEK_SET)
	return failure(no)
}

func Fsync(fd int) error {
	_, _, no := unix.RawSyscall(unix.SYS_FSYNC, uintptr(fd), 0, 0)
	return failure(no)
}

func Ftruncate(fd int, size int64) error {
	_, _, no := unix.RawSyscall(unix.SYS_FTRUNCATE, uintptr(fd), uintptr(size), 0)
	return failure(no)
}

func Close(fd int) error {
	_, _, no := unix.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0)
	return failure(no)
}

func count(n uintptr, no unix.Errno) (int, error) {
	if no != 0 {
		return 0, no
	}
	return int(n), nil
}

func failure(no unix.Errno) error {
	if no != 0 {
		return no
	}
	return nil
}
