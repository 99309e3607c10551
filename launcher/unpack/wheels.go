package unpack

import (
	"archive/zip"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"nsbox/launcher/unpack/request"
)

// wheels looks at every wheel of a directory as an archive: whether it can be
// read to its end, and whether a careless installer could be led astray by it.
func wheels(dir string, b request.Bounds, rep *request.Report) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	left := b.Bytes
	for _, e := range entries {
		if err := wheel(path.Join(dir, e.Name()), b, &left); err != nil {
			return inWheel(e.Name(), err)
		}
		rep.Counts["wheels"]++
	}
	rep.Bytes = b.Bytes - left
	return nil
}

func inWheel(name string, err error) error {
	if f, ok := err.(*fault); ok {
		return refuse(f.code, name+": "+f.what)
	}
	return err
}

func wheel(file string, b request.Bounds, left *int64) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	r, err := zip.OpenReader(file)
	if err != nil {
		return refuse("bad_wheel", err.Error())
	}
	defer r.Close()
	if len(r.File) > b.Entries {
		return refuse("too_many_entries", fmt.Sprintf("%d", len(r.File)))
	}
	seen, metadata, total := map[string]bool{}, 0, int64(0)
	for _, f := range r.File {
		name := strings.TrimSuffix(f.Name, "/")
		switch {
		case name == "" || strings.HasPrefix(name, "/") || strings.ContainsAny(name, "\\\x00") || len(name) > maxPath:
			return refuse("bad_name", f.Name)
		case path.Clean(name) != name || name == ".." || strings.HasPrefix(name, "../"):
			return refuse("name_leads_up", f.Name)
		case strings.Count(name, "/") >= b.Depth:
			return refuse("too_deep", f.Name)
		case seen[strings.ToLower(name)]:
			return refuse("repeated_name", f.Name)
		case f.Mode()&(fs.ModeType&^fs.ModeDir) != 0:
			return refuse("special_file", f.Name)
		case f.Flags&1 != 0:
			return refuse("encrypted", f.Name)
		}
		seen[strings.ToLower(name)] = true
		if strings.HasSuffix(name, ".dist-info/WHEEL") && strings.Count(name, "/") == 1 {
			metadata++
		}
		n, err := through(f, *left)
		if err != nil {
			return err
		}
		*left -= n
		if total += n; total > request.RatioFrom && total/max(info.Size(), 1) > b.Ratio {
			return refuse("compression_ratio", f.Name)
		}
	}
	if metadata != 1 {
		return refuse("bad_wheel", fmt.Sprintf("%d files NAME.dist-info/WHEEL", metadata))
	}
	return nil
}

// through reads one entry to its end, which also checks its CRC.
func through(f *zip.File, left int64) (int64, error) {
	r, err := f.Open()
	if err != nil {
		return 0, refuse("bad_wheel", f.Name+": "+err.Error())
	}
	defer r.Close()
	var n int64
	buf := make([]byte, bufferLen)
	for {
		k, err := r.Read(buf)
		n += int64(k)
		switch {
		case n > left:
			return n, refuse("too_many_bytes", f.Name)
		case n > request.RatioFrom && n/int64(max(f.CompressedSize64, 1)) > request.DefaultBounds().Ratio:
			return n, refuse("compression_ratio", f.Name)
		case err == io.EOF:
			return n, nil
		case err != nil:
			return n, refuse("bad_wheel", f.Name+": "+err.Error())
		}
	}
}
