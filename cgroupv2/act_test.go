package cgroupv2

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMain makes the test binary its own workload: static, one file, and so fit
// for a machine that has nothing else.
func TestMain(m *testing.M) {
	if act := os.Getenv("CGROUPV2_TEST_ACT"); act != "" {
		if act == "find 0" {
			fmt.Println("ready")
		}
		bufio.NewReader(os.Stdin).ReadString('\n') // until it has been moved
		os.Exit(play(strings.Fields(act)))
	}
	os.Exit(m.Run())
}

func play(act []string) int {
	n, _ := strconv.Atoi(act[1])
	switch act[0] {
	case "memory": // n MiB in pieces of 8
		var keep [][]byte
		for i := 0; i < n; i += 8 {
			keep = append(keep, touch(8<<20))
			fmt.Println("touched", i+8)
		}
		_ = keep
	case "leave": // the main program exits 0, a child goes on to take n MiB
		if start("memory "+act[1]) != nil {
			return 3
		}
	case "fork": // n children that sleep
		denied := 0
		for range n {
			switch err := exec.Command("/bin/sleep", "1").Start(); {
			case errors.Is(err, unix.EAGAIN):
				denied++
			case err != nil:
				fmt.Println(err)
				return 3
			}
		}
		fmt.Println("denied", denied)
	case "find":
		r, err := Find(realDir())
		if err != nil {
			fmt.Println(err)
			return 3
		}
		fmt.Println(r.Path(), r.Controllers())
		if r.Lack("memory") != nil {
			fmt.Println(r.Lack("memory"))
		}
	case "burn": // n milliseconds of wall time
		for end := time.Now().Add(time.Duration(n) * time.Millisecond); time.Now().Before(end); {
		}
	case "tmpfs": // n MiB into a tmpfs of a user namespace of its own
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = []string{"CGROUPV2_TEST_ACT=fill " + act[1]}
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
		}
		if err := cmd.Run(); err != nil {
			fmt.Println(err)
			return 3
		}
	case "fill":
		if err := unix.Mount("none", "/tmp", "tmpfs", 0, "size=1g"); err != nil {
			fmt.Println("mount", err)
			return 4
		}
		f, err := os.Create("/tmp/f")
		if err != nil {
			return 5
		}
		for range n {
			if _, err := f.Write(make([]byte, 1<<20)); err != nil {
				fmt.Println(err)
				return 6
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	return 0
}

func touch(n int) []byte {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		fmt.Println(err)
		os.Exit(3)
	}
	for i := 0; i < n; i += pageSize {
		b[i] = byte(i>>12) | 1
	}
	return b
}

func start(act string) error {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{"CGROUPV2_TEST_ACT=" + act}
	return cmd.Start()
}
