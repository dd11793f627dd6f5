package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/junctor-run/junctor/capability"
)

// memAnchor stores the lines of an anchor in memory.
type memAnchor struct {
	mu    sync.Mutex
	data  []byte
	err   error
	tries int
	block chan struct{} // nil: Write returns at once
}

func (m *memAnchor) Write(ctx context.Context, line []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tries++
	if m.block != nil {
		m.mu.Unlock()
		select {
		case <-m.block:
		case <-ctx.Done():
		}
		m.mu.Lock()
	}
	if m.err == nil {
		m.data = append(append(m.data, line...), '\n')
	}
	return m.err
}

func (m *memAnchor) Read() (io.ReadCloser, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return io.NopCloser(bytes.NewReader(bytes.Clone(m.data))), nil
}

func (m *memAnchor) set(err error) {
	m.mu.Lock()
	m.err = err
	m.mu.Unlock()
}

// session opens the log, appends n records and closes it.
func session(t *testing.T, cfg Config, n int, run string) {
	t.Helper()
	l := open(t, cfg)
	for i := range n {
		add(t, l, call(CapabilityExecuted, fmt.Sprintf("%s_%d", run, i), capability.EffectRead), Written)
	}
	if err := l.Close(); err != nil {
		t.Fatalf("Close: got %v, want no error", err)
	}
}

func (m *memIndex) clone() *memIndex {
	return &memIndex{entries: append([]Entry(nil), m.entries...), pos: m.pos, points: append([]Checkpoint(nil), m.points...)}
}

// reason returns the reason of the first bad record of a verification.
func reason(t *testing.T, segs Segments, p Proofs) (string, VerifyReport) {
	t.Helper()
	rep, err := VerifySegments(t.Context(), segs, p)
	if err != nil {
		t.Fatalf("VerifySegments: got %v, want no error", err)
	}
	if rep.FirstBad == nil {
		return "", rep
	}
	return rep.FirstBad.Reason, rep
}

// TestForgedTailIsFoundAfterAllCodesWereRemoved attacks a log without its key: the hashes do not cover
// the codes, so that a log without any code looks like one from before codes.
func TestForgedTailIsFoundAfterAllCodesWereRemoved(t *testing.T) {
	key := bytes.Repeat([]byte{7}, 32)
	for _, tt := range []struct {
		name string
		head func(doc []byte) []byte
		key  []byte
		want string
	}{
		{"the head is kept", func(doc []byte) []byte { return doc }, key, BadNoMAC},
		{"the head is kept, without the key", func(doc []byte) []byte { return doc }, nil, BadNoMAC},
		{"the head is removed", func([]byte) []byte { return nil }, key, BadNoMAC},
		{"the head is rewritten", func(doc []byte) []byte { return bytes.ReplaceAll(doc, []byte(`"seq"`), []byte(`"seq" `)) }, key, BadNoMAC},
		{"the head has another position", func(doc []byte) []byte {
			return bytes.Replace(doc, []byte(`"seq":10`), []byte(`"seq":9`), 1)
		}, key, BadPoint},
		{"the code of the head is removed", func(doc []byte) []byte {
			at := bytes.Index(doc, []byte(`,"mac"`))
			return append(bytes.Clone(doc[:at]), '}')
		}, key, BadPoint},
	} {
		t.Run(tt.name, func(t *testing.T) {
			segs, index := &memSegments{}, &memIndex{}
			session(t, Config{Segments: segs, Index: index, Key: key}, 10, "run")
			if got, rep := reason(t, segs, Proofs{Points: index, Key: tt.key}); got != "" || rep.MACs != 10 {
				t.Fatalf("verify(genuine) = %q, %+v, want 10 records with codes", got, rep)
			}
			forgeTail(segs, 3, "")
			lines := strings.SplitAfter(string(segs.segs[0]), "\n")
			for i, ln := range lines {
				if at := strings.LastIndex(ln, macKey); at > 0 {
					lines[i] = ln[:at] + "}\n"
				}
			}
			segs.segs[0], segs.head = []byte(strings.Join(lines, "")), tt.head(segs.head)
			if got, rep := reason(t, segs, Proofs{Points: index, Key: tt.key}); got != tt.want {
				t.Errorf("verify(codes removed, 3 records forged) = %q, %+v, want %q", got, rep, tt.want)
			}
		})
	}
}

func TestForgedCheckpointsAreFound(t *testing.T) {
	key := bytes.Repeat([]byte{7}, 32)
	for _, tt := range []struct {
		name  string
		forge func(p []Checkpoint) []Checkpoint
		want  string
	}{
		{"another code", func(p []Checkpoint) []Checkpoint { p[1].MAC = strings.Repeat("ab", macLen); return p }, BadPoint},
		{"no code after one with a code", func(p []Checkpoint) []Checkpoint { p[1].MAC = ""; return p }, BadPoint},
		{"later start of the codes", func(p []Checkpoint) []Checkpoint { p[0].Coded = 9; return p }, BadPoint},
		{"another time", func(p []Checkpoint) []Checkpoint { p[0].At = p[0].At.Add(time.Hour); return p }, BadPoint},
		{"one of another record", func(p []Checkpoint) []Checkpoint { p[0].Seq--; return p }, BadPoint},
		{"none before codes", func(p []Checkpoint) []Checkpoint {
			return append([]Checkpoint{{Seq: p[0].Seq, Hash: p[0].Hash}}, p[1:]...)
		}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			segs, index := &memSegments{}, &memIndex{}
			session(t, Config{Segments: segs, Index: index, Key: key}, 5, "a")
			session(t, Config{Segments: segs, Index: index, Key: key}, 5, "b")
			if len(index.points) != 2 {
				t.Fatalf("checkpoints: got %d, want 2", len(index.points))
			}
			index.points = tt.forge(index.points)
			if got, rep := reason(t, segs, Proofs{Points: index, Key: key}); got != tt.want {
				t.Errorf("verify = %q, %+v, want %q", got, rep, tt.want)
			}
		})
	}
}

// TestOlderCopyOfTheWholeHomeIsFoundByTheAnchor replaces segments, head and database together, which
// nothing inside the home can reveal.
func TestOlderCopyOfTheWholeHomeIsFoundByTheAnchor(t *testing.T) {
	key := bytes.Repeat([]byte{7}, 32)
	segs, index, anchor := &memSegments{}, &memIndex{}, &memAnchor{}
	cfg := Config{Segments: segs, Index: index, Key: key, Anchor: anchor, Gateway: "gw"}
	session(t, cfg, 5, "a")
	oldSegs, oldIndex := segs.clone(), index.clone()
	session(t, cfg, 5, "b")
	proofs := func(index *memIndex, key []byte) Proofs {
		return Proofs{Points: index, Key: key, Anchors: bytes.NewReader(anchor.data)}
	}
	if got, rep := reason(t, segs, proofs(index, key)); got != "" || rep.Anchors != 2 {
		t.Fatalf("verify(genuine) = %q, %+v, want 2 checkpoints of the anchor", got, rep)
	}
	for _, k := range [][]byte{key, nil} {
		if got, rep := reason(t, oldSegs, proofs(oldIndex, k)); got != BadTail || rep.FirstBad.Seq != 6 {
			t.Errorf("verify(older copy, key %v) = %q, %+v, want %q at record 6", k != nil, got, rep, BadTail)
		}
	}
	// A server continues the older copy beyond the point where the other one was.
	session(t, Config{Segments: oldSegs, Index: oldIndex, Key: key, Anchor: anchor, Gateway: "renamed"}, 3, "c")
	session(t, Config{Segments: oldSegs, Index: oldIndex, Key: key, Anchor: anchor, Gateway: "renamed"}, 6, "d")
	if got, rep := reason(t, oldSegs, proofs(oldIndex, key)); got != BadAnchor || rep.FirstBad.Seq != 10 {
		t.Errorf("verify(older copy that continued) = %q, %+v, want %q at record 10", got, rep, BadAnchor)
	}
	// The log itself reports it too.
	l := open(t, Config{Segments: oldSegs, Index: oldIndex, Key: key, Anchor: anchor})
	if rep, err := l.Verify(t.Context()); err != nil || rep.FirstBad == nil || rep.FirstBad.Reason != BadAnchor {
		t.Errorf("Verify(older copy that continued) = %+v, %v, want %q", rep, err, BadAnchor)
	}
}

func TestAnchorLinesOfOthersChangeNothing(t *testing.T) {
	key, other := bytes.Repeat([]byte{7}, 32), bytes.Repeat([]byte{8}, 32)
	mine, theirs := &memAnchor{}, &memAnchor{}
	segs := &memSegments{}
	session(t, Config{Segments: segs, Key: key, Anchor: mine}, 5, "a")
	session(t, Config{Segments: &memSegments{}, Key: other, Anchor: theirs}, 9, "b")
	good := string(mine.data)
	for _, tt := range []struct {
		name, text, want string
		agreed, skipped  uint64
	}{
		{"only its own", good, "", 1, 0},
		{"in lines of syslog", "Nov 26 03:52:21 host junctor: " + good, "", 1, 0},
		{"those of another log", string(theirs.data) + good + string(theirs.data), "", 1, 0},
		{"forged ones", strings.Replace(good, `"seq":5`, `"seq":50`, 1) + good, "", 1, 1},
		{"one without a code", good[:strings.Index(good, `,"mac"`)] + "}\n" + good, "", 1, 1},
		{"a torn line before", good[:40] + good, "", 1, 0},
		{"a line without end", strings.Repeat("x", 3*MaxLine) + "\n" + good, "", 1, 0},
		{"no JSON", `{"audit_anchor":` + "\n{}\n" + good, "", 1, 0},
		{"nothing", "", "", 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, rep := reason(t, segs, Proofs{Key: key, Anchors: strings.NewReader(tt.text)})
			if got != tt.want || rep.Anchors != tt.agreed || rep.AnchorsSkipped != tt.skipped {
				t.Errorf("verify = %q, %d agreed, %d skipped, want %q, %d, %d", got, rep.Anchors, rep.AnchorsSkipped, tt.want, tt.agreed, tt.skipped)
			}
		})
	}
}

func TestAnchorThatFailsDelaysNothingAndIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		anchor := &memAnchor{err: errors.New("no route"), block: make(chan struct{})}
		l := open(t, Config{Segments: &memSegments{}, Key: []byte("k"), Anchor: anchor})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- l.Run(ctx) }()
		add(t, l, sample(), Written)
		time.Sleep(time.Second) // of the bubble: the first checkpoint is due, and its write to the anchor hangs
		begin := time.Now()
		add(t, l, sample(), Synced)
		if took := time.Since(begin); took > time.Second {
			t.Errorf("append beside an anchor that hangs: got %v, want no delay", took)
		}
		close(anchor.block)
		time.Sleep(time.Second)
		if h := l.Health(); h.AnchorCause != "no route" || h.Anchored != 0 || h.Broken {
			t.Errorf("Health = %+v, want the cause of the anchor and a log that works", h)
		}
		anchor.set(nil)
		time.Sleep(2 * time.Minute)
		if h := l.Health(); h.AnchorCause != "" || h.Anchored != 2 {
			t.Errorf("Health(anchor is back) = %+v, want record 2 anchored", h)
		}
		add(t, l, sample(), Written)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: got %v, want no error", err)
		}
		if err := l.Close(); err != nil {
			t.Errorf("Close: got %v, want no error", err)
		}
		if n := bytes.Count(anchor.data, []byte("\n")); n < 2 || !bytes.Contains(anchor.data, []byte(`"seq":3`)) {
			t.Errorf("anchor after Close = %s, want the last record in it", anchor.data)
		}
	})
}

// TestNumbersGoOnUnderAnotherKey opens a log whose key was lost and made again.
func TestNumbersGoOnUnderAnotherKey(t *testing.T) {
	for name, key := range map[string]string{"another key": "two", "a forged head": "one"} {
		segs, index := &memSegments{}, &memIndex{}
		session(t, Config{Segments: segs, Index: index, Key: []byte("one")}, 5, "a")
		if key == "one" {
			segs.head = bytes.Replace(segs.head, []byte(`"seq":5`), []byte(`"seq":4`), 1)
		}
		l := open(t, Config{Segments: segs, Index: index, Key: []byte(key)})
		if got := add(t, l, sample(), Synced); got.Seq != 7 { // 6 reports the head
			t.Errorf("%s: number of the next record = %d, want 7", name, got.Seq)
		}
		if text := string(bytes.Join(segs.segs, nil)); !strings.Contains(text, BadPoint) {
			t.Errorf("%s: the log = %s, want a record about the head", name, text)
		}
		if err := l.Close(); err != nil {
			t.Errorf("%s: Close: got %v, want no error", name, err)
		}
	}
}
