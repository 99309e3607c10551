package launcher

import (
	"fmt"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"nsbox/nsexec"
)

// The texts are those of a Linux 6.1 kernel, cut to what is read, for a plan of
// goodFacts: workload 100001:200001, init 100000:200000, launcher pid 700.

const childStatus = `Name:	nsbox
Umask:	0022
State:	S (sleeping)
Tgid:	702
Pid:	702
PPid:	701
TracerPid:	0
Uid:	100001	100001	100001	100001
Gid:	200001	200001	200001	200001
FDSize:	128
Groups:	 
NStgid:	702	2
NSpid:	702	2
NSpgid:	702	2
NSsid:	702	2
Threads:	1
SigQ:	0/96364
SigPnd:	0000000000000000
ShdPnd:	0000000000000000
SigBlk:	0000000000000000
SigIgn:	0000000000000000
SigCgt:	0000000000000000
CapInh:	0000000000000000
CapPrm:	0000000000000000
CapEff:	0000000000000000
CapBnd:	0000000000000000
CapAmb:	0000000000000000
NoNewPrivs:	1
Seccomp:	2
Seccomp_filters:	2
Cpus_allowed:	4
Cpus_allowed_list:	2
`

const initStatus = `Name:	nsbox-init
Umask:	0000
Pid:	701
PPid:	700
Uid:	100000	100000	100000	100000
Gid:	200000	200000	200000	200000
Groups:	 
NSpid:	701	1
NSsid:	690	0
Threads:	4
SigBlk:	0000000000000000
CapInh:	0000000000000000
CapPrm:	0000000000000000
CapEff:	0000000000000000
CapBnd:	0000000000000000
CapAmb:	0000000000000000
NoNewPrivs:	1
Seccomp:	2
Seccomp_filters:	2
`

const limitsText = `Limit                     Soft Limit           Hard Limit           Units     
Max cpu time              25                   26                   seconds   
Max file size             67108864             67108864             bytes     
Max data size             unlimited            unlimited            bytes     
Max stack size            8388608              8388608              bytes     
Max core file size        1                    1                    bytes     
Max resident set          unlimited            unlimited            bytes     
Max processes             32                   32                   processes 
Max open files            64                   64                   files     
Max locked memory         65536                65536                bytes     
Max address space         unlimited            unlimited            bytes     
Max file locks            unlimited            unlimited            locks     
Max pending signals       256                  256                  signals   
Max msgqueue size         0                    0                    bytes     
Max nice priority         0                    0                    
Max realtime priority     0                    0                    
Max realtime timeout      unlimited            unlimited            us        
`

const netDevText = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:       0       0    0    0    0     0          0         0        0       0    0    0    0     0       0          0
`

// sight is the raw text of everything that is read, as a kernel would show it.
type sight struct {
	self, child, init string
	keyring           int64
	limits, mounts    string
	maskable          []string
	uidMap, gidMap    string
	netDev            string
	fibTrie, ifInet6  string
	ownNS, boxNS      []string
	files             map[int]nsexec.FileID
	held, sealed      string
}

// goodSight shows exactly what pl asks for, under one filter of the launcher's own.
func goodSight(pl *Plan) *seen { return rawSight(pl).parsed() }

func rawSight(pl *Plan) *sight {
	v := &sight{
		self: "Seccomp:\t2\nSeccomp_filters:\t1\n", child: childStatus, init: initStatus, keyring: 1000001,
		limits: limitsText, netDev: netDevText, mounts: mountsOf(&pl.Box), maskable: []string{"keys", "kallsyms"},
	}
	for i, m := range pl.Box.Identity.UIDs {
		g := pl.Box.Identity.GIDs[i]
		// As the kernel pads them.
		v.uidMap += fmt.Sprintf("%10d %10d %10d\n", m.Inside, m.Host, m.Count)
		v.gidMap += fmt.Sprintf("%10d %10d %10d\n", g.Inside, g.Host, g.Count)
	}
	if pl.Box.Identity.Kind == "privileged" {
		v.child = strings.NewReplacer("100001", "1879048193", "200001", "1879048193").Replace(v.child)
		v.init = strings.NewReplacer("100000", "1879048192", "200000", "1879048192").Replace(v.init)
	}
	v.files = map[int]nsexec.FileID{0: {Rdev: unix.Mkdev(1, 3), Type: unix.S_IFCHR}, 1: pipe(91), 2: pipe(92), 3: pipe(93)}
	for line := range strings.Lines(v.mounts) {
		if f := strings.Fields(line); f[4] == pl.Box.Hold {
			v.held = "directory of " + f[2]
		}
	}
	v.sealed = "0555"
	for i, ns := range namespaceNames() {
		v.ownNS = append(v.ownNS, fmt.Sprintf("%s:[%d]", ns, 4026531830+i))
		v.boxNS = append(v.boxNS, fmt.Sprintf("%s:[%d]", ns, 4026532190+i))
	}
	return v
}

func pipe(inode uint64) nsexec.FileID {
	return nsexec.FileID{Dev: 15, Ino: inode, Type: unix.S_IFIFO}
}

// mountsOf writes the mount table of a box by hand, not through wantedMounts.
func mountsOf(s *nsexec.Spec) string {
	var b strings.Builder
	id := 50
	line := func(at, options, fstype, super string) {
		id++
		fmt.Fprintf(&b, "%d 50 0:%d / %s %s - %s none %s\n", id, id, at, options, fstype, super)
	}
	line("/", "ro,nosuid,nodev,relatime", "tmpfs", "rw,size=4096k,nr_inodes=8192,mode=755,inode64")
	for _, n := range s.Root {
		switch n.Kind {
		case nsexec.BindFile:
			line(n.Path, "ro,nosuid,nodev,relatime", "ext4", "rw,errors=remount-ro")
		case nsexec.BindDir:
			options := "ro,nosuid,nodev,relatime"
			if n.Path == "/in" {
				options = "ro,nosuid,nodev,noexec,relatime"
			}
			line(n.Path, options, "ext4", "rw,errors=remount-ro")
		case nsexec.Device:
			line(n.Path, "ro,nosuid,noexec,relatime", "devtmpfs", "rw,size=4k,mode=755")
		case nsexec.Tmpfs:
			line(n.Path, "rw,nosuid,nodev,noexec,relatime", "tmpfs", fmt.Sprintf("rw,size=%dk,nr_inodes=%d,mode=700,uid=100001,gid=200001,inode64", n.Bytes/1024, n.Inodes))
		case nsexec.Proc:
			line(n.Path, "ro,nosuid,nodev,noexec,relatime", "proc", "rw,hidepid=invisible")
			line("/proc/keys", "ro,nosuid,noexec,relatime", "devtmpfs", "rw,size=4k,mode=755")
			line("/proc/kallsyms", "ro,nosuid,noexec,relatime", "devtmpfs", "rw,size=4k,mode=755")
		}
	}
	return b.String()
}

func (v *sight) parsed() *seen {
	mounts, err := mountinfo.GetMountsFromReader(strings.NewReader(v.mounts), nil)
	if err != nil {
		panic(err)
	}
	s := &seen{pid: 700, self: parseStatus([]byte(v.self)), child: parseStatus([]byte(v.child)), init: parseStatus([]byte(v.init)),
		keyring: v.keyring, limits: []byte(v.limits), mounts: mounts, maskable: map[string]bool{},
		uidMap: []byte(v.uidMap), gidMap: []byte(v.gidMap), netDev: []byte(v.netDev), fibTrie: []byte(v.fibTrie), ifInet6: []byte(v.ifInet6),
		ownNS: v.ownNS, boxNS: v.boxNS, files: v.files, held: v.held, sealed: v.sealed}
	for _, m := range v.maskable {
		s.maskable[m] = true
	}
	return s
}

// goodBox is what the confined child and init say of themselves.
func goodBox(pl *Plan) *nsexec.Box {
	u, g := uint32(pl.Box.UID), uint32(pl.Box.GID)
	null := unix.Mkdev(1, 3)
	set := setUpCaps(&pl.Box)
	return &nsexec.Box{InitPID: 701, ChildPID: 702, Init: nsexec.InitReport{Environment: 2, DeathSignal: 9, Streams: [3]uint64{null, null, null}, Descriptors: 0b1111},
		Report: &nsexec.Report{UIDs: [3]uint32{u, u, u}, GIDs: [3]uint32{g, g, g}, Session: 2, Keyring: 2000002, Dir: "/scratch", Hostname: hostname, Domainname: nsexec.NoDomain, Inotify: [2]string{nsexec.InotifyInstances, nsexec.InotifyWatches}, Cgroup: "1:cpu:/\n0::/\n",
			Descriptors: []int{0, 1, 2, 3, nsexec.PrivateDescriptors},
			SetUpCaps:   set, DeathSignal: 9, OldNumber: -int64(unix.EBADF), CloseOnExec: []int64{unix.FD_CLOEXEC},
			Files:    map[int]nsexec.FileID{0: {Rdev: null, Type: unix.S_IFCHR}, 1: pipe(91), 2: pipe(92)},
			Landlock: &nsexec.Tried{Control: 3, Forbidden: []int64{-int64(unix.EACCES)}}, NestedUserNS: -int64(unix.ENOSPC), Filtered: -int64(unix.EPERM)}}
}

// mismatches of a doctored sight and report.
func mismatches(t *testing.T, pl *Plan, doctor func(*sight, *nsexec.Box)) map[string]string {
	t.Helper()
	v, b := rawSight(pl), goodBox(pl)
	if doctor != nil {
		doctor(v, b)
	}
	out := map[string]string{}
	for _, r := range compare(b, &pl.Box, v.parsed()) {
		if r.Status == "mismatch" {
			out[r.Restriction] = r.Shown
		}
	}
	return out
}
