package journal

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Read returns the whole records of the journal at path and the number of bytes
// behind them, the torn tail of a crash. Neither a torn tail nor an empty file is
// an error. With ErrCorrupt it still returns the records before the corrupt place.
func Read(path string) (recs []Record, torn int64, err error) {
	dir, err := openDir(path)
	if err != nil {
		return nil, 0, err
	}
	defer dir.Close()
	file, err := openAt(dir, path, unix.O_RDONLY)
	if err != nil {
		return nil, 0, err
	}
	defer file.Close()
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, 0, err
	}
	c, err := scanFile(file)
	return c.recs, size - c.good, err
}

func scanFile(file *os.File) (content, error) {
	info, err := file.Stat()
	if err != nil {
		return content{}, err
	}
	return scan(bufio.NewReader(io.NewSectionReader(file, 0, info.Size())), info.Size())
}

// Repair cuts a torn tail off the journal at path and keeps its bytes beside it
// as path.torn-N, with the first N from 1 that is free. It returns how many bytes
// it cut; everything is durable when it returns. A journal without a tail is left
// alone, and so is a corrupt one (ErrCorrupt). A crash on the way leaves the tail,
// or its copy and the tail, never neither.
func Repair(path string) (cut int64, err error) {
	dir, err := openDir(path)
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	file, err := openAt(dir, path, unix.O_RDWR)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	c, err := scanFile(file)
	if err != nil {
		return 0, err
	}
	if c.good == size && c.good >= headerBytes {
		return 0, nil
	}
	if cut = size - c.good; cut > 0 {
		tail := make([]byte, cut)
		if _, err := file.ReadAt(tail, c.good); err != nil {
			return 0, err
		}
		if err := keepAside(dir, path, tail); err != nil {
			return 0, err
		}
	}
	if err := shorten(file, c.good); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrWrite, err)
	}
	return cut, nil
}

// shorten cuts file to good bytes; if not even the header was whole, it is
// written anew.
func shorten(file *os.File, good int64) error {
	if err := file.Truncate(good); err != nil {
		return err
	}
	if good < headerBytes {
		if _, err := file.WriteAt(header(), 0); err != nil {
			return err
		}
	}
	return file.Sync()
}

func keepAside(dir *os.File, path string, tail []byte) error {
	for n := 1; n <= 1000; n++ {
		name := fmt.Sprintf("%s.torn-%d", filepath.Base(path), n)
		file, err := openAt(dir, filepath.Join(filepath.Dir(path), name), unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return err
		}
		_, err = file.Write(tail)
		if err = errors.Join(err, file.Sync(), file.Close(), syncDir(dir)); err != nil {
			return fmt.Errorf("%w: keep the torn tail as %s: %w", ErrWrite, name, err)
		}
		return nil
	}
	return fmt.Errorf("%w: %s has too many torn tails beside it", ErrWrite, path)
}
