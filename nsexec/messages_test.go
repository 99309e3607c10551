package nsexec

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"nsbox/nsexec/wire"
)

// The table of messages stands once, in wire/doc.go; the code is held to it.
func TestMessageTable(t *testing.T) {
	data, err := os.ReadFile("wire/doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var rows [][]string
	for line := range strings.Lines(string(data)) {
		if row, ok := strings.CutPrefix(line, "//\t"); ok {
			var cells []string
			for c := range strings.SplitSeq(strings.TrimSpace(row), "|") {
				cells = append(cells, strings.TrimSpace(c))
			}
			rows = append(rows, cells)
		}
	}
	find := func(tag byte) []string {
		for _, r := range rows {
			if r[0] == string(tag) {
				return r
			}
		}
		t.Errorf("the table lacks %q", tag)
		return make([]string, 6)
	}
	// What the launcher accepts.
	for tag, size := range map[byte]int{msgStreams: 1, msgListeners: 1, reportTag: reportSize, msgUp: 1 + 8*upWords, msgExit: 1 + 8*3} {
		if got := find(tag)[3]; got != fmt.Sprint(size) {
			t.Errorf("%c has %s bytes in the table, %d in the code", tag, got, size)
		}
		if size == 16 {
			t.Errorf("%c has the length of a failure", tag)
		}
	}
	// What the set-up sends, on which socket, and the descriptors it sends with it.
	p := mustCompile(t, endpointSpec())
	sender := map[string]string{"hand-out": string(byte(msgStreams)), "hand-out-listeners": string(byte(msgListeners)), "ready": string(byte(reportTag))}
	for step, tag := range sender {
		s := p.Steps[positions(p, step)[0]]
		on := map[uintptr]string{fdControl: "control", fdGo: "go", fdChildGo: "go"}[s.Args[0].imm]
		if row := find(tag[0]); row[1] != on || !strings.HasPrefix(strings.ReplaceAll(row[2], "-", ""), s.Stage) {
			t.Errorf("%s is sent by %s on %s; the table says %v", tag, s.Stage, on, row)
		}
	}
	for _, waits := range []struct {
		step string
		tag  byte
	}{{"wait-for-maps", 'M'}, {"wait-for-go", 'G'}} {
		s := p.Steps[positions(p, waits.step)[0]]
		on := map[uintptr]string{fdControl: "control", fdGo: "go", fdChildGo: "go"}[s.Args[0].imm]
		if row := find(waits.tag); row[1] != on || s.Rule != Exactly || fmt.Sprint(s.Want) != row[3] {
			t.Errorf("%s reads on %s; the table says %v", waits.step, on, row)
		}
	}
	b := &Box{spec: workloadSpec()}
	if got := b.descriptorCount([]byte{msgStreams}); got != 4 {
		t.Errorf("with stdin and a held directory S carries %d, want the table's most, 4", got)
	}
	b.spec.Stdin, b.spec.Hold = false, ""
	if got := b.descriptorCount([]byte{msgStreams}); got != 2 {
		t.Errorf("S carries %d, want the table's least, 2", got)
	}
	b.spec.Listen = endpointSpec().Listen
	if got := b.descriptorCount([]byte{msgListeners}); got != len(b.spec.Listen) {
		t.Errorf("L carries %d, want one for each of %d endpoints", got, len(b.spec.Listen))
	}
	for _, other := range [][]byte{{msgUp}, {msgStreams, 0}, {msgListeners, 0}, nil, make([]byte, 16)} {
		if got := b.descriptorCount(other); got != 0 {
			t.Errorf("%q may carry %d descriptors", other, got)
		}
	}
	tags := []string{}
	for _, r := range rows[1:] {
		tags = append(tags, r[0])
	}
	if want := []string{"M", "L", "S", "R", "U", "G", "X", "-"}; !slices.Equal(tags, want) {
		t.Errorf("the table has %v, want %v", tags, want)
	}
}

// Sixteen bytes name a step only if there is one, and only an errno is an error.
func TestFailureMessage(t *testing.T) {
	b := &Box{steps: []Step{{Name: "a", Stage: "setup", Why: "why"}}}
	msg := func(step byte, result int64) []byte {
		m := make([]byte, 16)
		m[4] = step
		for i := range 8 {
			m[8+i] = byte(result >> (8 * i))
		}
		return m
	}
	if err := b.failure(make([]byte, 15)); err != nil {
		t.Errorf("15 bytes: %v", err)
	}
	e, ok := b.failure(msg(0, -int64(unix.EPERM))).(*StepError)
	if !ok || e.Step != "a" || e.Stage != "setup" || e.Why != "why" || e.Errno() != unix.EPERM || e.Unwrap() != unix.EPERM {
		t.Errorf("got %+v", e)
	}
	if !strings.Contains(e.Error(), "setup: a: operation not permitted") {
		t.Errorf("got %q", e.Error())
	}
	e = b.failure(msg(0, 7)).(*StepError)
	if e.Errno() != 0 || e.Unwrap() != nil || !strings.Contains(e.Error(), "unexpected result 7") {
		t.Errorf("got %v", e)
	}
	e, ok = b.failure(msg(1, -38)).(*StepError)
	if !ok || e.Step != "1 of 1" || e.Stage != "box" {
		t.Errorf("a step past the last: %+v", e)
	}
}

// What the child says after go is why its program has not begun; only the end
// of its socket is silence.
func TestLastWord(t *testing.T) {
	failed := make([]byte, 16)
	for name, c := range map[string]struct {
		say  func(peer int)
		step string
	}{
		"nothing":           {func(int) {}, ""},
		"a failure":         {func(p int) { unix.Write(p, failed) }, execStep},
		"another message":   {func(p int) { unix.Write(p, []byte("S")) }, execStep + " or before"},
		"too long a one":    {func(p int) { unix.Write(p, make([]byte, wire.MaxMessage+1)) }, execStep + " or before"},
		"a step beyond all": {func(p int) { unix.Write(p, append([]byte{0, 0, 0, 0, 9}, failed[5:]...)) }, "9 of 1"},
	} {
		conn, peer, err := wire.Pair(highFD)
		if err != nil {
			t.Fatal(err)
		}
		b := &Box{golink: conn, steps: []Step{{Name: execStep}}}
		c.say(peer)
		unix.Close(peer)
		got := ""
		if e := b.lastWord(); e != nil {
			got = e.Step
		}
		if got != c.step {
			t.Errorf("%s: %q, want %q", name, got, c.step)
		}
		conn.Close()
	}
}
