package exporter

// The codes are part of nsbox's result: they may be added to, never renamed.
const (
	codeTooManyEntries  = "too_many_entries"
	codeTooManyFiles    = "too_many_files"
	codeNameNotAllowed  = "name_not_allowed"
	codeSymlink         = "symlink"
	codeHardlink        = "hardlink"
	codeFIFO            = "fifo"
	codeSocket          = "socket"
	codeDevice          = "device"
	codeDirectory       = "directory"
	codeUnknownType     = "unknown_type"
	codeWrongOwner      = "wrong_owner"
	codeOtherFilesystem = "other_filesystem"
	codeTooLarge        = "too_large"
	codeOpenFailed      = "open_failed"
	codeListFailed      = "list_failed"
	codeStatFailed      = "stat_failed"
	codeReadFailed      = "read_failed"
	codeWriteFailed     = "write_failed"
	codeChanged         = "changed_during_copy"
	codeArchiveMagic    = "archive_magic"
	codeCompressedMagic = "compressed_magic"
	codeExecutableMagic = "executable_magic"
	codeDocumentMagic   = "document_magic"
	codeBOM             = "bom"
	codeNUL             = "nul_byte"
	codeNotUTF8         = "not_utf8"
	codeBareCR          = "bare_cr"
	codeLineTooLong     = "line_too_long"
	codeTooManyRows     = "too_many_rows"
	codeCSVQuote        = "csv_quote"
	codeCSVFields       = "csv_fields"
	codeCSVFormula      = "csv_formula"
	codeJSONSyntax      = "json_syntax"
	codeJSONDeep        = "json_too_deep"
	codeBadRequest      = "bad_request"
	codeInternal        = "internal_error"
)

var codeTable = []struct{ code, sentence string }{
	{codeTooManyEntries, "/out has more entries than the policy lets the exporter look at"},
	{codeTooManyFiles, "/out has more regular files than the policy accepts"},
	{codeNameNotAllowed, "an entry's name is not one of the allowed names"},
	{codeSymlink, "an entry is a symbolic link"},
	{codeHardlink, "a file has more than one name"},
	{codeFIFO, "an entry is a named pipe"},
	{codeSocket, "an entry is a socket"},
	{codeDevice, "an entry is a device node"},
	{codeDirectory, "an entry is a directory"},
	{codeUnknownType, "an entry is of a type the exporter does not know"},
	{codeWrongOwner, "an entry does not belong to the workload's user and group"},
	{codeOtherFilesystem, "an entry is not on the file system of /out"},
	{codeTooLarge, "the file is larger than the policy accepts, holes included"},
	{codeOpenFailed, "the file could not be opened for the exporter"},
	{codeListFailed, "/out could not be listed"},
	{codeStatFailed, "an entry could not be examined"},
	{codeReadFailed, "the file could not be read"},
	{codeWriteFailed, "the staging file could not be written, emptied or flushed"},
	{codeChanged, "the file, its name or /out changed while it was examined"},
	{codeArchiveMagic, "the file begins like an archive"},
	{codeCompressedMagic, "the file begins like compressed data"},
	{codeExecutableMagic, "the file begins like a program or a script"},
	{codeDocumentMagic, "the file begins like a document, an image or a database"},
	{codeBOM, "the file begins with a byte order mark"},
	{codeNUL, "the file contains a NUL byte"},
	{codeNotUTF8, "the file is not valid UTF-8"},
	{codeBareCR, "the file contains a carriage return without a line feed after it"},
	{codeLineTooLong, "a line, or a CSV record with its quoted line breaks, is longer than the policy accepts"},
	{codeTooManyRows, "the file has more rows than the policy accepts"},
	{codeCSVQuote, "a quote is not where RFC 4180 lets it stand, or is not closed"},
	{codeCSVFields, "a record has another number of fields than the first"},
	{codeCSVFormula, "a cell begins like a spreadsheet formula"},
	{codeJSONSyntax, "the file is not one JSON value"},
	{codeJSONDeep, "the JSON value is nested too deep"},
	{codeBadRequest, "the exporter was started with arguments or descriptors it cannot use"},
	{codeInternal, "the exporter itself failed"},
}

// Codes returns every reason code a Report may carry.
func Codes() []string {
	all := make([]string, 0, len(codeTable))
	for _, c := range codeTable {
		all = append(all, c.code)
	}
	return all
}

// Explain returns one sentence on a reason code, or "" for an unknown code.
func Explain(code string) string {
	for _, c := range codeTable {
		if c.code == code {
			return c.sentence
		}
	}
	return ""
}
