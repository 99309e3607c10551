package policy

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// sizeUnit returns how many bytes a unit of the size family counts, or 0.
func sizeUnit(unit string) int64 {
	switch unit {
	case "bytes":
		return 1
	case "KiB":
		return 1 << 10
	case "MiB":
		return 1 << 20
	case "GiB":
		return 1 << 30
	}
	return 0
}

func isTime(unit string) bool { return unit == "seconds" || unit == "cpu_seconds" }

// factor returns the base quantity of one unit, or 0 if the row does not take it.
func (row *resourceRow) factor(unit string) int64 {
	switch {
	case sizeUnit(row.unit) > 0:
		return sizeUnit(unit)
	case unit != row.unit:
		return 0
	case isTime(unit):
		return second
	}
	return 1
}

// units names what the row takes.
func (row *resourceRow) units() string {
	if sizeUnit(row.unit) > 0 {
		return "bytes, KiB, MiB or GiB"
	}
	return row.unit
}

// base returns the entry in base quantities; ok is false if it cannot be
// counted there: another unit, an overflow, a fraction of what has none.
func (row *resourceRow) base(r *resource) (n int64, ok bool) {
	f := row.factor(r.Unit)
	if f == 0 {
		return 0, false
	}
	product := r.Value * float64(f)
	whole := math.Round(product)
	if math.IsNaN(product) || whole < 0 || whole >= 1<<62 {
		return 0, false
	}
	if f != second && r.Value != math.Trunc(r.Value) {
		return 0, false
	}
	return int64(whole), true
}

// outside says why a base quantity is not acceptable, or returns "".
func (row *resourceRow) outside(n int64) string {
	switch {
	case n < row.min:
		return "is below the smallest useful value, " + row.show(row.min)
	case n > row.max:
		return "is above the largest value nsbox takes, " + row.show(row.max)
	case n%row.step != 0:
		return "is not a multiple of " + row.show(row.step)
	}
	return ""
}

// show writes a base quantity for a person.
func (row *resourceRow) show(n int64) string {
	switch {
	case isTime(row.unit):
		return time.Duration(n).String()
	case sizeUnit(row.unit) > 0:
		return showSize(n)
	case row.unit == "percent_of_one_core":
		return strconv.FormatInt(n, 10) + "%"
	}
	if n == 1 {
		return "1 " + strings.TrimSuffix(row.unit, "s")
	}
	return strconv.FormatInt(n, 10) + " " + row.unit
}

func showSize(n int64) string {
	for _, unit := range [...]string{"GiB", "MiB", "KiB"} {
		if size := sizeUnit(unit); n >= size && n%size == 0 {
			return strconv.FormatInt(n/size, 10) + " " + unit
		}
	}
	return strconv.FormatInt(n, 10) + " bytes"
}

// put writes a base quantity into the entry, in the entry's own unit if that
// leaves no fraction of a byte, otherwise in bytes.
func (row *resourceRow) put(r *resource, n int64) {
	f := row.factor(r.Unit)
	if f != second && n%f != 0 {
		r.Unit, f = "bytes", 1
	}
	r.Value = float64(n) / float64(f)
}

// read parses the value of a --limit entry. The error is one line without the name.
func (row *resourceRow) read(value string) (int64, error) {
	switch {
	case isTime(row.unit):
		d, err := time.ParseDuration(value)
		if err != nil || strings.ContainsAny(value, "+-") {
			return 0, fmt.Errorf("%q is no duration", value)
		}
		return int64(d), nil
	case row.unit == "percent_of_one_core":
		digits, ok := strings.CutSuffix(value, "%")
		if !ok {
			return 0, fmt.Errorf("%q is no percentage", value)
		}
		return count(digits, value, 1)
	case sizeUnit(row.unit) > 0:
		return readSize(value)
	}
	return count(value, value, 1)
}

func readSize(value string) (int64, error) {
	digits := strings.TrimRight(value, "KMGTiBbkmg")
	switch value[len(digits):] {
	case "":
		return count(digits, value, 1)
	case "K", "KiB":
		return count(digits, value, 1<<10)
	case "M", "MiB":
		return count(digits, value, 1<<20)
	case "G", "GiB":
		return count(digits, value, 1<<30)
	}
	return 0, fmt.Errorf("%q is no size", value)
}

// count parses plain digits; shown is what the person wrote.
func count(digits, shown string, factor int64) (int64, error) {
	n, err := strconv.ParseUint(digits, 10, 53)
	if err != nil || int64(n) > maxSize/factor {
		return 0, fmt.Errorf("%q is no whole number that nsbox can count", shown)
	}
	return int64(n) * factor, nil
}

// want says how a --limit value is written.
func (row *resourceRow) want() string {
	switch {
	case isTime(row.unit):
		return "a duration with its unit"
	case row.unit == "percent_of_one_core":
		return "percent of one core"
	case sizeUnit(row.unit) > 0:
		return "bytes, or with K, M or G (1024 based)"
	}
	return "a whole number of " + row.unit
}
