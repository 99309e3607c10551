package rootfs

import (
	"bytes"
	"encoding/binary"
	"sort"
)

// The cache format that glibc has read since 2.2 and written alone since 2.32
// (sysdeps/generic/dl-cache.h): a 48-byte header, 24-byte entries in descending
// order of libCompare, then the strings; offsets count from the header.
const (
	ldMagic      = "glibc-ld.so.cache1.1"
	ldHeaderSize = 48
	ldEntrySize  = 24
	ldLibC6x8664 = 0x0303 // FLAG_ELF_LIBC6 | FLAG_X8664_LIB64
	ldLittle     = 2      // cache_file_new_flags_endian_little
)

// parseLDCache returns name -> path of the baseline x86-64 libraries in a host's
// ld.so.cache. A file it does not understand yields an empty map: the default
// directories remain, and what they lack is reported by name.
func parseLDCache(b []byte) map[string]string {
	out := map[string]string{}
	at := bytes.Index(b, []byte(ldMagic)) // an old-format table may stand before it
	if at < 0 {
		return out
	}
	b = b[at:]
	if len(b) < ldHeaderSize {
		return out
	}
	count := uint64(binary.LittleEndian.Uint32(b[20:]))
	if count > uint64(len(b)-ldHeaderSize)/ldEntrySize {
		return out
	}
	str := func(off uint32) string {
		if uint64(off) >= uint64(len(b)) {
			return ""
		}
		return cString(b[off:])
	}
	for i := uint64(0); i < count; i++ {
		e := b[ldHeaderSize+i*ldEntrySize:]
		flags, hwcap := binary.LittleEndian.Uint32(e), binary.LittleEndian.Uint64(e[16:])
		if flags != ldLibC6x8664 || hwcap != 0 {
			continue
		}
		name, path := str(binary.LittleEndian.Uint32(e[4:])), str(binary.LittleEndian.Uint32(e[8:]))
		if _, seen := out[name]; !seen && name != "" && path != "" {
			out[name] = path
		}
	}
	return out
}

// encodeLDCache renders libs so that the box's loader finds each by its name.
func encodeLDCache(libs []Library) []byte {
	libs = append([]Library(nil), libs...)
	sort.SliceStable(libs, func(i, j int) bool { return libCompare(libs[i].Name, libs[j].Name) > 0 })
	base := ldHeaderSize + ldEntrySize*len(libs)
	var entries, strs []byte
	put := func(s string) uint32 {
		off := uint32(base + len(strs))
		strs = append(append(strs, s...), 0)
		return off
	}
	for _, l := range libs {
		entries = binary.LittleEndian.AppendUint32(entries, ldLibC6x8664)
		entries = binary.LittleEndian.AppendUint32(entries, put(l.Name))
		entries = binary.LittleEndian.AppendUint32(entries, put(l.Path))
		entries = append(entries, make([]byte, 12)...) // osversion, hwcap
	}
	head := make([]byte, ldHeaderSize)
	copy(head, ldMagic)
	binary.LittleEndian.PutUint32(head[20:], uint32(len(libs)))
	binary.LittleEndian.PutUint32(head[24:], uint32(len(strs)))
	head[28] = ldLittle
	return append(append(head, entries...), strs...)
}

// libCompare orders names as glibc's binary search expects: runs of digits by
// value and above any other byte, the rest by byte.
func libCompare(a, b string) int {
	at := func(s string, i int) int {
		if i < len(s) {
			return int(int8(s[i])) // char is signed there
		}
		return 0
	}
	digit := func(c int) bool { return c >= '0' && c <= '9' }
	i, j := 0, 0
	for i < len(a) {
		ca, cb := at(a, i), at(b, j)
		switch {
		case digit(ca) && digit(cb):
			var va, vb int32 // C ints, wrapping included
			for ; digit(at(a, i)); i++ {
				va = va*10 + int32(a[i]-'0')
			}
			for ; digit(at(b, j)); j++ {
				vb = vb*10 + int32(b[j]-'0')
			}
			if va != vb {
				return int(va) - int(vb)
			}
		case digit(ca):
			return 1
		case digit(cb):
			return -1
		case ca != cb:
			return ca - cb
		default:
			i, j = i+1, j+1
		}
	}
	return -at(b, j)
}
