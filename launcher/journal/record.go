package journal

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"
	"unicode/utf8"
)

// Errors a caller decides by. Others wrap what the system said.
var (
	// ErrCorrupt: the file is not a journal, or holds records that no crash of
	// nsbox explains.
	ErrCorrupt = errors.New("journal is corrupt")
	// ErrWrite: a record could not be written or flushed; nothing that depends on
	// it may be done.
	ErrWrite = errors.New("journal cannot be written")
	// ErrOrder: the event must not stand after the ones before it.
	ErrOrder = errors.New("event out of order")
)

// Record is one entry. Append sets Seq, and Time (UTC) if it is zero. Data is
// valid UTF-8 and at most 4 KiB as JSON; text from outside is quoted by the
// caller.
type Record struct {
	Seq   uint64            `json:"seq"`
	Time  time.Time         `json:"time"`
	Event Event             `json:"event"`
	Data  map[string]string `json:"data,omitempty"`
}

const (
	headerBytes  = 16
	frameBytes   = 8
	maxData      = 4 << 10
	maxPayload   = maxData + 512
	maxFileBytes = 1 << 20 // some 200 records of the largest size; an attempt has 30 small ones
	version      = 1
)

var (
	magic   = [8]byte{'n', 's', 'b', 'o', 'x', 'j', 'n', 'l'}
	errTorn = errors.New("torn")
)

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

func header() []byte {
	h := append(make([]byte, 0, headerBytes), magic[:]...)
	h = binary.LittleEndian.AppendUint32(h, version)
	return binary.LittleEndian.AppendUint32(h, checksum(h))
}

// frame returns rec as it stands in the file.
func frame(rec Record) ([]byte, error) {
	for k, v := range rec.Data {
		if !utf8.ValidString(k) || !utf8.ValidString(v) {
			return nil, fmt.Errorf("%w: data of %s is not UTF-8", ErrWrite, rec.Event)
		}
	}
	data, err := json.Marshal(rec.Data)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrWrite, err)
	}
	payload, err := json.Marshal(rec)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrWrite, err)
	}
	if len(data) > maxData || len(payload) > maxPayload {
		return nil, fmt.Errorf("%w: data of %s is %d bytes, want at most %d", ErrWrite, rec.Event, len(data), maxData)
	}
	f := binary.LittleEndian.AppendUint32(make([]byte, 0, frameBytes+len(payload)), uint32(len(payload)))
	f = binary.LittleEndian.AppendUint32(f, checksum(payload))
	return append(f, payload...), nil
}

// content is what a scan of a journal found: the whole records and the offset
// behind the last of them, 0 if not even the header is whole.
type content struct {
	recs []Record
	good int64
}

// scan reads r, a journal of size bytes, until its end, a torn place, or an
// error. Its memory is bounded by maxFileBytes.
func scan(r io.Reader, size int64) (content, error) {
	var c content
	if size > maxFileBytes {
		return c, fmt.Errorf("%w: longer than %d bytes", ErrCorrupt, maxFileBytes)
	}
	head, err := io.ReadAll(io.LimitReader(r, headerBytes))
	if err != nil {
		return c, err
	}
	want := header()
	if !bytes.HasPrefix(want, head) {
		return c, fmt.Errorf("%w: not a journal of this version", ErrCorrupt)
	}
	if len(head) < headerBytes {
		return c, nil
	}
	c.good = headerBytes
	for {
		payload, err := readFrame(r)
		if err == io.EOF || err == errTorn {
			return c, nil
		}
		if err != nil {
			return c, err
		}
		rec, err := parse(payload)
		if err != nil || rec.Seq != uint64(len(c.recs)+1) {
			return c, fmt.Errorf("%w: record %d at byte %d", ErrCorrupt, len(c.recs)+1, c.good)
		}
		c.recs = append(c.recs, rec)
		c.good += frameBytes + int64(len(payload))
	}
}

// readFrame returns the next payload, io.EOF at the end, errTorn if the frame is
// not whole.
func readFrame(r io.Reader) ([]byte, error) {
	var head [frameBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, tornIfShort(err)
	}
	n := binary.LittleEndian.Uint32(head[:4])
	if n == 0 || n > maxPayload {
		return nil, errTorn
	}
	payload := make([]byte, n)
	if _, err := io.ReadFull(r, payload); err != nil {
		return nil, tornIfShort(fmt.Errorf("%w", err))
	}
	if checksum(payload) != binary.LittleEndian.Uint32(head[4:]) {
		return nil, errTorn
	}
	return payload, nil
}

func tornIfShort(err error) error {
	if err == io.EOF {
		return err
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errTorn
	}
	return err
}

func parse(payload []byte) (Record, error) {
	var rec Record
	dec := json.NewDecoder(bytes.NewReader(payload))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&rec); err != nil {
		return rec, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return rec, errors.New("text after the record")
	}
	return rec, nil
}
