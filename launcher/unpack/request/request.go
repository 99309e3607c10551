// Package request is what the launcher and its unpacker say to each other, apart
// from the code that knows the formats: the launcher must not carry that.
package request

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// StageName is argv[0] of the stage.
const StageName = "nsbox-unpack"

// What a stage can be asked for.
const (
	OpUnpack = "unpack"
	OpWheels = "wheels"
)

// Places inside the box.
const (
	ImageDir  = "/image"
	WheelsDir = "/wheels"
	StoreDir  = "/store"
	TreeName  = "root" // below StoreDir
)

// Request is argv[1] of the stage.
type Request struct {
	Op     string `json:"op"`
	Digest string `json:"digest,omitempty"` // unpack: of the image's manifest
	Bounds Bounds `json:"bounds"`
}

// Bounds end an input that is out of all proportion.
type Bounds struct {
	Entries int   `json:"entries"` // of all layers, or of one wheel
	Bytes   int64 `json:"bytes"`   // of file content
	Depth   int   `json:"depth"`   // directories below one another
	Ratio   int64 `json:"ratio"`   // uncompressed for each compressed byte, once RatioFrom is passed
}

// RatioFrom is how many uncompressed bytes may come out before Ratio counts: a
// small file of blanks compresses a thousandfold and harms nobody.
const RatioFrom = 32 << 20

// DefaultBounds fit what distributions and the scientific stack ship.
func DefaultBounds() Bounds { return Bounds{Entries: 65536, Bytes: 8 << 30, Depth: 64, Ratio: 200} }

// Report is the one line of JSON that the stage prints.
type Report struct {
	OK     bool           `json:"ok"`
	Code   string         `json:"code,omitempty"` // why not
	What   string         `json:"what,omitempty"` // at which entry; the input's own words
	Counts map[string]int `json:"counts,omitempty"`
	Bytes  int64          `json:"bytes"`
}

// MaxReport bounds the line, in bytes.
const MaxReport = 64 << 10

// DecodeReport reads the line strictly.
func DecodeReport(line []byte) (Report, error) {
	var r Report
	if len(line) > MaxReport {
		return r, errors.New("the report is too long")
	}
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&r); err != nil {
		return r, fmt.Errorf("the report is not what was agreed on: %w", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return r, errors.New("text after the report")
	}
	return r, nil
}
