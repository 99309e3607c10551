package exporter

import (
	"bytes"
	"strings"
)

// magicBytes reaches past the tar magic at 257, the farthest in the table.
const magicBytes = 512

// magics names what must not leave even if every byte of it were valid text. A
// compressed or packed file is refused before anything could be tempted to open
// it. Most of the table is refused by the NUL or UTF-8 checks too; the table
// gives the cause a name, and stands where those checks do not reach ("#!", PDF,
// ar, an ASCII cpio). An entry of few printable bytes has a further condition,
// so that an ordinary first column name is not taken for it. To add a format,
// add a line and the same line to the test's samples.
var magics = []struct {
	code   string
	what   string
	offset int
	bytes  string
	also   func(head []byte) bool
}{
	{codeCompressedMagic, "gzip", 0, "\x1f\x8b", nil},
	{codeCompressedMagic, "compress", 0, "\x1f\x9d", nil},
	{codeCompressedMagic, "pack or lzh", 0, "\x1f\xa0", nil},
	{codeCompressedMagic, "bzip2", 0, "BZh", bzip2Block},
	{codeCompressedMagic, "xz", 0, "\xfd7zXZ\x00", nil},
	{codeCompressedMagic, "lzma", 0, "\x5d\x00\x00", nil},
	{codeCompressedMagic, "lzip", 0, "LZIP\x01", nil},
	{codeCompressedMagic, "zstd", 0, "\x28\xb5\x2f\xfd", nil},
	{codeCompressedMagic, "zstd or lz4 skippable frame", 1, "\x2a\x4d\x18", skippableFrame},
	{codeCompressedMagic, "lz4", 0, "\x04\x22\x4d\x18", nil},
	{codeCompressedMagic, "lz4 legacy", 0, "\x02\x21\x4c\x18", nil},
	{codeCompressedMagic, "snappy", 0, "\xff\x06\x00\x00sNaPpY", nil},
	{codeArchiveMagic, "zip", 0, "PK\x03\x04", nil},
	{codeArchiveMagic, "empty zip", 0, "PK\x05\x06", nil},
	{codeArchiveMagic, "spanned zip", 0, "PK\x07\x08", nil},
	{codeArchiveMagic, "tar", 257, "ustar\x00", nil},
	{codeArchiveMagic, "gnu tar", 257, "ustar  \x00", nil},
	{codeArchiveMagic, "7z", 0, "7z\xbc\xaf\x27\x1c", nil},
	{codeArchiveMagic, "rar", 0, "Rar!\x1a\x07", nil},
	{codeArchiveMagic, "ar or deb", 0, "!<arch>\n", nil},
	{codeArchiveMagic, "cpio", 0, "07070", cpioHeader},
	{codeArchiveMagic, "binary cpio", 0, "\xc7\x71", nil},
	{codeArchiveMagic, "cabinet", 0, "MSCF\x00\x00\x00\x00", nil},
	{codeExecutableMagic, "elf", 0, "\x7fELF", nil},
	{codeExecutableMagic, "dos or windows program", 0, "MZ", nulInHeader},
	{codeExecutableMagic, "mach-o 32", 0, "\xfe\xed\xfa\xce", nil},
	{codeExecutableMagic, "mach-o 64", 0, "\xfe\xed\xfa\xcf", nil},
	{codeExecutableMagic, "mach-o 32 reversed", 0, "\xce\xfa\xed\xfe", nil},
	{codeExecutableMagic, "mach-o 64 reversed", 0, "\xcf\xfa\xed\xfe", nil},
	{codeExecutableMagic, "mach-o universal or java class", 0, "\xca\xfe\xba\xbe", nil},
	{codeExecutableMagic, "webassembly", 0, "\x00asm", nil},
	{codeExecutableMagic, "script", 0, "#!", nil},
	{codeDocumentMagic, "pdf", 0, "%PDF-", nil},
	{codeDocumentMagic, "postscript", 0, "%!PS", nil},
	{codeDocumentMagic, "rtf", 0, "{\\rtf", nil},
	{codeDocumentMagic, "ole", 0, "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", nil},
	{codeDocumentMagic, "png", 0, "\x89PNG\r\n\x1a\n", nil},
	{codeDocumentMagic, "jpeg", 0, "\xff\xd8\xff", nil},
	{codeDocumentMagic, "gif", 0, "GIF87a", nil},
	{codeDocumentMagic, "gif", 0, "GIF89a", nil},
	{codeDocumentMagic, "sqlite", 0, "SQLite format 3\x00", nil},
	{codeDocumentMagic, "parquet", 0, "PAR1", nulInHeader},
}

// bzip2Block: a level digit and the magic of a block or of the stream's end.
func bzip2Block(head []byte) bool {
	if len(head) < 10 || head[3] < '1' || head[3] > '9' {
		return false
	}
	block := string(head[4:10])
	return block == "1AY&SY" || block == "\x17\x72\x45\x38\x50\x90"
}

// cpioHeader: an ASCII cpio header is digits only, longer than any number.
func cpioHeader(head []byte) bool {
	const odc = 76 // the shorter of the two header forms
	return len(head) >= odc && strings.IndexByte("127", head[5]) >= 0 &&
		len(bytes.Trim(head[:odc], "0123456789abcdefABCDEF")) == 0
}

// skippableFrame: the first byte of sixteen possible magics.
func skippableFrame(head []byte) bool { return head[0]>>4 == 5 }

func nulInHeader(head []byte) bool { return bytes.IndexByte(head[:min(len(head), 64)], 0) >= 0 }

// magicCheck compares the first bytes of the file with the table. It does so
// after each chunk until it has them all: were it to wait, another checker would
// end the examination of a short file first and the cause would have no name.
type magicCheck struct {
	documents bool // documents, images and databases may pass
	head      [magicBytes]byte
	n         int
}

func (c *magicCheck) Write(chunk []byte) fault {
	if c.n == len(c.head) {
		return fault{}
	}
	c.n += copy(c.head[c.n:], chunk)
	return match(c.head[:c.n], c.documents)
}

func (c *magicCheck) Close() fault { return fault{} }

func match(head []byte, documents bool) fault {
	for _, m := range magics {
		if documents && m.code == codeDocumentMagic {
			continue
		}
		if len(head) >= m.offset && bytes.HasPrefix(head[m.offset:], []byte(m.bytes)) && (m.also == nil || m.also(head)) {
			return fault{m.code, m.what}
		}
	}
	return fault{}
}
