// Command shim stands in for nsbox's stage image in a test's own state
// directory: as nsbox-init it is the real init, as nsbox-export it does what the
// one allowed file, descriptor 5, says in its first line: it attempts what the
// exporter must not be able to do and logs how each attempt ended, or it breaks
// a limit, or it lies. Outside any box it shows that the attempts can succeed.
package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"nsbox/exporter"
	"nsbox/nsexec"
)

func main() {
	if os.Args[0] == nsexec.StageInit {
		os.Exit(nsexec.RunInit())
	}
	// Outside any box there is no request: the numbers are those of one file.
	req := exporter.Request{Names: []exporter.Handle{{FD: 5}}, Staging: []int{4}}
	if len(os.Args) > 1 && json.Unmarshal([]byte(os.Args[1]), &req) != nil {
		os.Exit(2)
	}
	buf := make([]byte, 4096)
	n, err := unix.Pread(req.Names[0].FD, buf, 0)
	if err != nil {
		os.Exit(3)
	}
	orders := strings.Split(strings.TrimSpace(string(buf[:n])), " ")
	switch orders[0] {
	case "attempt":
		attempts(orders[1:])
		os.Exit(9) // without a report: nothing may leave
	case "lie-digest":
		lie("summary.csv", []byte("something else\n"))
	case "lie-second":
		lieOfSecond(req)
	case "lie-name":
		lie("../summary.csv", nil)
	case "silent":
	case "hang":
		for {
			unix.Nanosleep(&unix.Timespec{Sec: 1}, nil)
		}
	case "spin":
		for n := uint64(0); ; n++ { // nothing but processor time
			_ = n
		}
	case "log":
		for range 64 {
			unix.Write(2, make([]byte, 4096))
		}
	case "flood":
		for range 64 {
			unix.Write(1, make([]byte, 4096))
		}
	case "memory":
		for held := [][]byte{}; ; {
			b := make([]byte, 4<<20)
			for i := 0; i < len(b); i += 4096 {
				b[i] = 1
			}
			held = append(held, b)
			unix.Nanosleep(&unix.Timespec{Nsec: 20e6}, nil)
			if len(held) == 100 {
				logResult("memory", fmt.Errorf("400 MiB are held"))
				os.Exit(0)
			}
		}
	}
}

// lie reports data's digest for name, with other bytes in the staging file.
func lie(name string, data []byte) {
	unix.Write(4, []byte("CANARY-"+"7f3a\n"))
	var st unix.Stat_t
	unix.Fstat(5, &st)
	f := exporter.File{Name: name, Type: exporter.TypeCSV, Bytes: st.Size, Rows: 1, SHA256: fmt.Sprintf("sha256:%x", sha256.Sum256(data))}
	f.Source.Size, f.Source.Nlink = st.Size, 1
	line, _ := json.Marshal(exporter.Report{Verdict: exporter.Accepted, Reasons: []exporter.Finding{}, Entries: 1, Files: []exporter.File{f}})
	unix.Write(1, append(line, '\n'))
}

// lieOfSecond copies every file that is there and reports it truly, but for one
// byte of the second copy.
func lieOfSecond(req exporter.Request) {
	report := exporter.Report{Verdict: exporter.Accepted, Reasons: []exporter.Finding{}}
	for _, name := range req.Names {
		buf := make([]byte, 4096)
		n, err := unix.Pread(name.FD, buf, 0)
		if err != nil {
			continue // no such file
		}
		f := exporter.File{Name: name.Name, Type: req.Bounds.Rules[name.Name].Type, Bytes: int64(n), Rows: 1, SHA256: fmt.Sprintf("sha256:%x", sha256.Sum256(buf[:n]))}
		if f.Type == "" {
			f.Type = exporter.TypeCSV
		}
		f.Source.Size, f.Source.Nlink = f.Bytes, 1
		if len(report.Files) == 1 {
			buf[0]++
		}
		unix.Write(req.Staging[len(report.Files)], buf[:n])
		report.Files, report.Entries = append(report.Files, f), report.Entries+1
	}
	line, _ := json.Marshal(report)
	unix.Write(1, append(line, '\n'))
}

func logResult(what string, err error) {
	text := "ok"
	if no, is := err.(unix.Errno); is {
		text = unix.ErrnoName(no)
	} else if err != nil {
		text = err.Error()
	}
	unix.Write(2, []byte(what+"="+text+"\n"))
}

// attempts takes a TCP port on the loopback address and files of the host: one
// that holds a mock secret, one in a home, and a folder.
func attempts(orders []string) {
	port, _ := strconv.Atoi(orders[0])
	secret, home, folder := orders[1], orders[2], orders[3]

	logResult("connect", connect(port))
	logResult("read-secret", read(secret))
	logResult("read-home", read(home))
	logResult("write-host-folder", create(unix.AT_FDCWD, folder+"/written"))
	if unix.Getuid() == 20002 { // outside a box this would be the host's own root
		logResult("write-own-root", create(unix.AT_FDCWD, "/written"))
	}
	logResult("write-out", create(3, "written"))
	logResult("write-out-openat2", create2(3, "written2"))
	logResult("open-out-for-writing", reopen(3, "summary.csv"))
	_, err := unix.Pwrite(5, []byte("x"), 0)
	logResult("write-source", err)
	err = unix.Renameat(3, "summary.csv", 3, "renamed")
	logResult("rename-source", err)
	if err == nil {
		unix.Renameat(3, "renamed", 3, "summary.csv")
	}
	logResult("remove-source", unix.Unlinkat(3, "summary.csv", 0))
	logResult("make-folder", unix.Mkdirat(3, "d", 0o700))
	logResult("chmod-out", unix.Fchmod(3, 0o777))
	logResult("chmod-source", unix.Fchmod(5, 0o777))
	logResult("read-proc", read("/proc/self/status"))
	logResult("list-root", list("/"))
	_, _, no := unix.RawSyscall(unix.SYS_UNSHARE, unix.CLONE_NEWUSER, 0, 0)
	logResult("user-namespace", errOrNil(no))
	logResult("signal-init", unix.Kill(1, 0))
	logResult("fork", fork())
	logResult("uid", fmt.Errorf("%d:%d", unix.Getuid(), unix.Getgid()))
	var caps [2]unix.CapUserData
	unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &caps[0])
	logResult("capabilities", fmt.Errorf("%x", caps[0].Permitted|caps[0].Effective|caps[1].Permitted))
	var files unix.Rlimit
	unix.Getrlimit(unix.RLIMIT_NOFILE, &files)
	logResult("descriptors", fmt.Errorf("%d", files.Max))
	// what the exporter needs, tried last, so that a box that forbids all does not pass
	_, err = unix.Pwrite(4, []byte("x"), 0)
	logResult("write-staging", err)
	_, err = unix.Pread(5, make([]byte, 1), 0)
	logResult("read-source", err)
	logResult("list-out", listFD(3))
	// Last: the limit's signal ends a Go program.
	_, err = unix.Pwrite(4, make([]byte, 4096), 1<<20)
	logResult("write-beyond-the-cap", err)
}

func errOrNil(no unix.Errno) error {
	if no == 0 {
		return nil
	}
	return no
}

func connect(port int) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Connect(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
}

func read(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	buf := make([]byte, 256)
	n, err := unix.Read(fd, buf)
	unix.Write(2, buf[:max(n, 0)])
	unix.Write(2, []byte("\n"))
	return err
}

// fork makes a process that ends at once.
func fork() error {
	pid, _, no := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if no == 0 && pid == 0 {
		unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
	return errOrNil(no)
}

func create(dir int, path string) error {
	fd, err := unix.Openat(dir, path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	unix.Close(fd)
	return err
}

// create2 does what the filter cannot see: openat2's flags are in memory.
func create2(dir int, path string) error {
	fd, err := unix.Openat2(dir, path, &unix.OpenHow{Flags: unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL, Mode: 0o600})
	unix.Close(fd)
	return err
}

func reopen(dir int, path string) error {
	fd, err := unix.Openat2(dir, path, &unix.OpenHow{Flags: unix.O_RDWR})
	unix.Close(fd)
	return err
}

func list(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return listFD(fd)
}

func listFD(fd int) error {
	buf := make([]byte, 4096)
	unix.Seek(fd, 0, 0)
	n, err := unix.ReadDirent(fd, buf)
	if err == nil && n == 0 {
		return unix.ENOTDIR
	}
	return err
}
