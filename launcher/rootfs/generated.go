package rootfs

import (
	"fmt"
	"strconv"

	"nsbox/nsexec"
)

// generatedFiles are the only files below /etc: nothing of the host's /etc is in
// the box, and each of these answers a question that libc or Python asks.
func generatedFiles(c *Closure, o Options) []nsexec.Node {
	file := func(p string, data []byte) nsexec.Node {
		return nsexec.Node{Path: p, Kind: nsexec.File, Data: data, Mode: 0o444, Access: nsexec.Read}
	}
	nodes := []nsexec.Node{
		{Path: "/etc", Kind: nsexec.Dir, Mode: 0o755},
		file("/etc/passwd", passwd(o)),
		file("/etc/group", group(o)),
		file("/etc/hosts", hosts(o.Names)),
		file("/etc/nsswitch.conf", []byte("passwd: files\ngroup: files\nshadow: files\nhosts: files\nnetworks: files\nprotocols: files\nservices: files\n")),
		file("/etc/localtime", utcZone()),
	}
	if !c.Whole {
		nodes = append(nodes, file("/etc/ld.so.cache", encodeLDCache(c.Libraries)))
	}
	return nodes
}

func passwd(o Options) []byte {
	return fmt.Appendf(nil, "init:x:0:0:box init:/:/nonexistent\n"+
		"sandbox:x:%d:%d:workload:/scratch:/nonexistent\n"+
		"exporter:x:%d:%d:exporter:/:/nonexistent\n"+
		"nobody:x:%d:%d:unmapped ids:/:/nonexistent\n",
		o.WorkloadUID, o.WorkloadGID, o.ExporterUID, o.ExporterUID, nobody, nobody)
}

func group(o Options) []byte {
	out := fmt.Appendf(nil, "init:x:0:\nsandbox:x:%d:\n", o.WorkloadGID)
	if o.ExporterUID != o.WorkloadGID {
		out = fmt.Appendf(out, "exporter:x:%d:\n", o.ExporterUID)
	}
	return fmt.Appendf(out, "nogroup:x:%d:\n", nobody)
}

// utcZone is a TZif version 2 file (RFC 9636) for UTC: one type without
// transitions in the 32-bit and the 64-bit block, then the footer.
func utcZone() []byte {
	block := append([]byte("TZif2"), make([]byte, 15)...)
	block = append(block,
		0, 0, 0, 0, // isutcnt
		0, 0, 0, 0, // isstdcnt
		0, 0, 0, 0, // leapcnt
		0, 0, 0, 0, // timecnt
		0, 0, 0, 1, // typecnt
		0, 0, 0, 4, // charcnt
		0, 0, 0, 0, 0, 0, // offset 0, not daylight time, name at 0
		'U', 'T', 'C', 0)
	return append(append(append([]byte(nil), block...), block...), "\nUTC0\n"...)
}

// quote makes a name from outside fit for one line of an error.
func quote(s string) string { return strconv.Quote(s) }
