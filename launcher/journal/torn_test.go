package journal

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// sample returns a journal's bytes and the offset behind each record.
func sample(t testing.TB, events ...Event) (data []byte, ends []int64) {
	j, path := create(t)
	for _, e := range events {
		appendAll(t, j, e)
		ends = append(ends, j.size)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data, ends
}

func whole(ends []int64, cut int) (n int, good int64) {
	if cut >= headerBytes {
		good = headerBytes
	}
	for _, end := range ends {
		if end <= int64(cut) {
			n, good = n+1, end
		}
	}
	return n, good
}

func TestTornAtEveryByte(t *testing.T) {
	data, ends := sample(t, Attempt, StagingIntent, BoxIntent, StagingMade)
	dir := t.TempDir()
	for cut := range len(data) + 1 {
		path := filepath.Join(dir, "j")
		if err := os.WriteFile(path, data[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		n, good := whole(ends, cut)
		recs, torn, err := Read(path)
		if err != nil || len(recs) != n || torn != int64(cut)-good {
			t.Fatalf("cut at %d: %d records, %d torn, %v; want %d, %d", cut, len(recs), torn, err, n, int64(cut)-good)
		}
		j, err := Open(path)
		if err != nil {
			t.Fatalf("cut at %d: open: %v", cut, err)
		}
		event := Attempt
		if n > 0 {
			event = BoxUp
			if n < 3 {
				event = CgroupIntent
			}
		}
		if err := errors.Join(j.Append(Record{Event: event}), j.Close()); err != nil {
			t.Fatalf("cut at %d: append: %v", cut, err)
		}
		if recs := mustRead(t, path); len(recs) != n+1 || recs[n].Event != event {
			t.Fatalf("cut at %d: %d records after one more", cut, len(recs))
		}
		aside, err := os.ReadFile(path + ".torn-1")
		if torn > 0 && !bytes.Equal(aside, data[good:cut]) || torn == 0 && !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("cut at %d: kept aside %d bytes, want %d (%v)", cut, len(aside), torn, err)
		}
		os.Remove(path + ".torn-1")
	}
}

// A tail may also be whole in length: blocks that never reached the disk read as
// zeros.
func TestTornByZerosAndNoise(t *testing.T) {
	data, ends := sample(t, Attempt, BoxIntent)
	for name, tail := range map[string][]byte{
		"zeros":             make([]byte, 5000),
		"noise":             bytes.Repeat([]byte{0xa5}, 5000),
		"zeros in a record": append([]byte{20, 0, 0, 0, 1, 2, 3, 4}, make([]byte, 20)...),
	} {
		path := filepath.Join(t.TempDir(), "j")
		if err := os.WriteFile(path, append(bytes.Clone(data), tail...), 0o600); err != nil {
			t.Fatal(err)
		}
		recs, torn, err := Read(path)
		if err != nil || len(recs) != len(ends) || torn != int64(len(tail)) {
			t.Errorf("%s: %d records, %d torn, %v", name, len(recs), torn, err)
		}
		if cut, err := Repair(path); err != nil || cut != torn {
			t.Errorf("%s: repair cut %d, %v", name, cut, err)
		}
		if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, data) {
			t.Errorf("%s: the repaired journal is not the one before (%v)", name, err)
		}
		if cut, err := Repair(path); err != nil || cut != 0 {
			t.Errorf("%s: a second repair cut %d, %v", name, cut, err)
		}
	}
}

func TestFlippedBitsNeverInventRecords(t *testing.T) {
	data, _ := sample(t, Attempt, StagingIntent, BoxIntent)
	path := filepath.Join(t.TempDir(), "j")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	want := mustRead(t, path)
	for bit := range len(data) * 8 {
		flipped := bytes.Clone(data)
		flipped[bit/8] ^= 1 << (bit % 8)
		if err := os.WriteFile(path, flipped, 0o600); err != nil {
			t.Fatal(err)
		}
		recs, torn, err := Read(path)
		if len(recs) >= len(want) || torn == 0 {
			t.Fatalf("bit %d: %d records, %d torn, %v", bit, len(recs), torn, err)
		}
		for i := range recs {
			if recs[i].Event != want[i].Event || !recs[i].Time.Equal(want[i].Time) {
				t.Fatalf("bit %d: record %d is %v", bit, i, recs[i])
			}
		}
	}
}

func TestTailIsCutOnlyOnceItIsKept(t *testing.T) {
	data, _ := sample(t, Attempt)
	dir := t.TempDir()
	path := filepath.Join(dir, "j")
	torn := append(bytes.Clone(data), "tail"...)
	if err := os.WriteFile(path, torn, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".torn-1", []byte("older"), 0o600); err != nil {
		t.Fatal(err)
	}
	if cut, err := Repair(path); cut != 4 || err != nil {
		t.Fatalf("cut %d, %v", cut, err)
	}
	older, _ := os.ReadFile(path + ".torn-1")
	newer, _ := os.ReadFile(path + ".torn-2")
	if string(older) != "older" || string(newer) != "tail" {
		t.Errorf("kept %q and %q", older, newer)
	}

	if err := os.WriteFile(path, torn, 0o600); err != nil {
		t.Fatal(err)
	}
	if os.Remove(path+".torn-1") != nil || os.Mkdir(path+".torn-1", 0o700) != nil {
		t.Fatal("cannot prepare")
	}
	for n := 3; n <= 1000; n++ {
		if err := os.Symlink("/nowhere", filepath.Join(dir, "j.torn-"+itoa(n))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Repair(path); !errors.Is(err, ErrWrite) {
		t.Errorf("repair without a place for the tail: %v", err)
	}
	if after, _ := os.ReadFile(path); !bytes.Equal(after, torn) {
		t.Error("the tail was cut though it could not be kept")
	}
}

func TestWrongOrderInFileIsCorrupt(t *testing.T) {
	data := header()
	for i, e := range []Event{Attempt, Delivered} {
		f, err := frame(Record{Seq: uint64(i + 1), Event: e})
		if err != nil {
			t.Fatal(err)
		}
		data = append(data, f...)
	}
	path := filepath.Join(t.TempDir(), "j")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); !errors.Is(err, ErrCorrupt) {
		t.Errorf("open: %v", err)
	}
	mustRead(t, path) // the frames are fine: Read shows them to whoever looks into it
}

func FuzzScan(f *testing.F) {
	data, _ := sample(f, Attempt, BoxIntent)
	f.Add(data)
	f.Add(data[:len(data)-3])
	f.Add([]byte{})
	f.Add(header())
	all, _ := sample(f, goodAttempt...)
	f.Add(all)
	f.Add(all[:len(all)/2])
	flipped := bytes.Clone(all)
	flipped[len(flipped)/2] ^= 1
	f.Add(flipped)
	f.Add(append(bytes.Clone(data), data[headerBytes:]...))           // numbers that repeat
	f.Add(append(header(), 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0))       // a length beyond any memory
	f.Add(append(header(), bytes.Repeat([]byte{0}, 3*frameBytes)...)) // what a crash leaves of a file that was extended
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := scan(bytes.NewReader(data), int64(len(data)))
		if c.good > int64(len(data)) {
			t.Fatalf("good is %d of %d", c.good, len(data))
		}
		if err != nil && !errors.Is(err, ErrCorrupt) {
			t.Fatalf("unexpected error: %v", err)
		}
		// What was read must read the same again, without the rest.
		again, err := scan(bytes.NewReader(data[:c.good]), c.good)
		if err != nil || again.good != c.good || len(again.recs) != len(c.recs) {
			t.Fatalf("the good part reads differently: %v", err)
		}
		if len(c.recs) > len(data)/frameBytes {
			t.Fatalf("%d records from %d bytes", len(c.recs), len(data))
		}
		_, _ = Replay(c.recs)
	})
}
