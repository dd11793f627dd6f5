package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
)

// history makes a closed log of several segments with checkpoints.
func history(t testing.TB, n int) (*memSegments, *memIndex) {
	t.Helper()
	segs, index := &memSegments{}, &memIndex{}
	l := open(t, Config{Segments: segs, Index: index, SegmentBytes: 40 << 10})
	for i := range n {
		add(t, l, call(CapabilityExecuted, fmt.Sprintf("run_%03d", i), capability.EffectRead), Written)
		if i%10 == 9 {
			l.keeping <- struct{}{}
			if err := l.checkpoint(t.Context()); err != nil {
				t.Fatal(err)
			}
			<-l.keeping
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return segs, index
}

func TestVerifyNamesTheFirstBadRecord(t *testing.T) {
	segs, index := history(t, 100)
	if rep := mustVerify(t, segs, index); rep.Records != 100 || rep.LastSeq != 100 || rep.FirstSeq != 1 || rep.Segments < 3 {
		t.Fatalf("%+v; want rep.Records = 100, rep.LastSeq = 100, rep.FirstSeq = 1, rep.Segments at least 3", rep)
	}
	mustVerify(t, segs, nil)
	lines := func(b []byte) []string { return strings.SplitAfter(string(b), "\n") }
	first := len(lines(segs.segs[0])) - 2 // records of the first segment
	last := func(m *memSegments) *[]byte { return &m.segs[len(m.segs)-1] }
	for _, c := range []struct {
		name   string
		reason string
		seq    uint64
		files  bool // noticed without the database, too
		break_ func(m *memSegments)
	}{
		{"an edited record", BadHash, 6, true, func(m *memSegments) {
			m.segs[0] = []byte(strings.Replace(string(m.segs[0]), "run_005", "run_905", 1))
		}},
		{"a deleted record", BadSeq, 5, true, func(m *memSegments) {
			l := lines(m.segs[0])
			m.segs[0] = []byte(strings.Join(append(l[:5:5], l[6:]...), ""))
		}},
		{"an inserted record", BadSeq, 6, true, func(m *memSegments) {
			l := lines(m.segs[0])
			m.segs[0] = []byte(strings.Join(append(l[:6:6], l[5:]...), ""))
		}},
		{"a foreign line", BadLine, 3, true, func(m *memSegments) {
			l := lines(m.segs[0])
			m.segs[0] = []byte(l[0] + l[1] + l[2] + "{}\n" + strings.Join(l[3:], ""))
		}},
		{"a cut tail", BadTail, 99, true, func(m *memSegments) {
			l := lines(*last(m))
			*last(m) = []byte(strings.Join(l[:len(l)-3], ""))
		}},
		{"a cut tail and head", BadTail, 99, false, func(m *memSegments) {
			l := lines(*last(m))
			*last(m), m.head = []byte(strings.Join(l[:len(l)-3], "")), nil
		}},
		{"swapped segments", BadStart, 1, true, func(m *memSegments) { m.segs[0], m.segs[1] = m.segs[1], m.segs[0] }},
		{"a removed first segment", BadStart, 1, true, func(m *memSegments) { m.segs = m.segs[1:] }},
		{"a removed middle segment", BadHeader, uint64(first + 1), true, func(m *memSegments) { m.segs = append(m.segs[:1], m.segs[2:]...) }},
		{"an edited header", BadHeader, uint64(first + 1), true, func(m *memSegments) {
			m.segs[1] = []byte(strings.Replace(string(m.segs[1]), `"first_seq":`, `"first_seq":1`, 1))
		}},
		{"a lost newline between segments", BadLine, uint64(first), true, func(m *memSegments) {
			m.segs[0] = m.segs[0][:len(m.segs[0])-9]
		}},
		{"a chain made anew", BadCheckpoint, 10, false, func(m *memSegments) {
			other, _ := history(t, 100)
			m.segs, m.head = forge(t, other), nil
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bad := segs.clone()
			c.break_(bad)
			rep, err := VerifySegments(t.Context(), bad, Proofs{Points: index})
			if err != nil || rep.FirstBad == nil {
				t.Fatalf("not noticed: %+v %v; want no error, rep.FirstBad not nil", rep, err)
			}
			if rep.FirstBad.Reason != c.reason || rep.FirstBad.Seq != c.seq {
				t.Fatalf("%+v, want %s at %d", *rep.FirstBad, c.reason, c.seq)
			}
			rep, err = VerifySegments(t.Context(), bad, Proofs{})
			if err != nil || (rep.FirstBad != nil) != c.files {
				t.Fatalf("from files: %+v %v; want no error, (rep.FirstBad != nil) = %v", rep, err, c.files)
			}
		})
	}
}

// forge rewrites a history with one other record and a right chain.
func forge(t *testing.T, m *memSegments) [][]byte {
	fresh := &memSegments{}
	l := open(t, Config{Segments: fresh, SegmentBytes: 40 << 10})
	for i := range m.records() {
		add(t, l, call(CapabilityExecuted, fmt.Sprintf("run_x%03d", i), capability.EffectRead), Written)
	}
	return fresh.clone().segs
}

func TestVerifyOfALogInUseSeesNoCutTail(t *testing.T) {
	segs, index := &memSegments{}, &memIndex{}
	l := open(t, Config{Segments: segs, Index: index})
	for range 50 {
		add(t, l, sample(), Written)
	}
	rep, err := l.Verify(t.Context())
	if err != nil || rep.FirstBad != nil || rep.Records != 50 {
		t.Fatalf("%+v %v; want no error, rep.FirstBad = nil, rep.Records = 50", rep, err)
	}
}

func FuzzHostileSegmentsNeverPanic(f *testing.F) {
	segs, _ := history(f, 3)
	f.Add(segs.segs[0], segs.head)
	f.Add([]byte("{}\n"), []byte("{}"))
	f.Add([]byte(`", "seq": 1, "prev_hash": "", "hash": ""}`+"\n\n"), []byte{0xff})
	f.Fuzz(func(t *testing.T, data, head []byte) {
		m := &memSegments{segs: [][]byte{data, segs.segs[0], data}, head: head}
		// A segment without one whole line holds no record and so breaks no chain.
		if rep, err := VerifySegments(t.Context(), m, Proofs{}); err == nil && rep.FirstBad == nil && bytes.Contains(data, []byte("\n")) {
			t.Fatal("three segments that cannot follow one another verify; want not (err == nil && rep.FirstBad == nil && " +
				`bytes.Contains(data, []byte("\n")))`)
		}
		l, err := Open(t.Context(), Config{Segments: m, Index: &memIndex{}})
		if err != nil {
			return
		}
		_, _ = l.Append(t.Context(), sample(), Synced)
		_, _ = l.Query(t.Context(), Query{})
		_ = l.Close()
	})
}

func TestQueriesSelectNewestFirstWithAndWithoutIndex(t *testing.T) {
	yes, no := true, false
	for _, indexed := range []bool{true, false} {
		t.Run(fmt.Sprintf("index %v", indexed), func(t *testing.T) {
			cfg := Config{Segments: &memSegments{}, SegmentBytes: 20 << 10}
			if indexed {
				cfg.Index = &memIndex{}
			}
			l := open(t, cfg)
			for i := range 30 {
				r := call(CapabilityExecuted, fmt.Sprintf("run_%02d", i), capability.EffectRead)
				r.Time = r.Time.AddDate(0, 0, i)
				if i%10 == 0 {
					r.Event, r.Success, r.Session = PermissionDenied, OutcomeFailure, "s-2"
				}
				r.Metadata.Provider, r.Metadata.Parent = fmt.Sprint("p", i%2), fmt.Sprint("tsk_", i%7)
				if i == 11 {
					r.Metadata.Decision.Approval = "apr_1"
				}
				if i == 9 {
					r.Metadata.Attrs = append(r.Metadata.Attrs, Attr{Key: "approval", Value: "apr_1"})
				}
				add(t, l, r, Written)
			}
			day := sample().Time
			for _, c := range []struct {
				name string
				q    Query
				want string
			}{
				{"all, limited", Query{Limit: 3}, "29 28 27"},
				{"event", Query{Event: PermissionDenied}, "20 10 00"},
				{"session and paging", Query{Session: "s-2", Before: 21}, "10 00"},
				{"time", Query{Since: day.AddDate(0, 0, 3), Until: day.AddDate(0, 0, 5)}, "04 03"},
				{"failed", Query{Success: &no}, "20 10 00"},
				{"succeeded", Query{Success: &yes, Limit: 1}, "29"},
				{"level", Query{Level: Warning}, "20 10 00"},
				{"run", Query{Run: "run_07"}, "07"},
				{"provider and parent", Query{Provider: "p1", Parent: "tsk_3"}, "17 03"},
				{"approval, asked for and used", Query{Approval: "apr_1"}, "11 09"},
				{"extension and capability", Query{Extension: "tools.postman", Capability: "fs.readText", User: "agent:claude", Limit: 1}, "29"},
				{"nothing", Query{Extension: "x"}, ""},
			} {
				t.Run(c.name, func(t *testing.T) {
					got, err := l.Query(t.Context(), c.q)
					if err != nil {
						t.Fatal(err)
					}
					if d := cmp.Diff(c.want, runs(t, got)); d != "" {
						t.Fatalf("runs(t, got) differs from want (-want +got):\n%s", d)
					}
				})
			}
			if got, err := l.Query(t.Context(), Query{Event: PermissionDenied, Limit: 1}); err != nil || runs(t, got) != "20" {
				t.Fatalf(`runs(t, got) = %v, err = %v, want err == nil && runs(t, got) == "20"`, runs(t, got), err)
			}
			if got, err := l.Query(t.Context(), Query{Run: "run_03"}); err != nil || runs(t, got) != "03" {
				t.Fatalf(`runs(t, got) = %v, err = %v, want err == nil && runs(t, got) == "03"`, runs(t, got), err)
			}
			if got, err := l.Query(t.Context(), Query{Session: "s-2"}); err != nil || len(got) != 3 {
				t.Fatalf("runs(t, got) = %v, err = %v, want err == nil && len(got) == 3", runs(t, got), err)
			}
		})
	}
}

func runs(t *testing.T, lines []json.RawMessage) string {
	var out []string
	for _, ln := range lines {
		m, _ := decode(t, string(ln))["metadata"].(map[string]any)
		out = append(out, strings.TrimPrefix(fmt.Sprint(m["run_id"]), "run_"))
	}
	return strings.Join(out, " ")
}

func TestAnIndexOfOtherSegmentsIsRebuilt(t *testing.T) {
	segs, index := history(t, 30)
	l := open(t, Config{Segments: segs, Index: index})
	if _, err := l.Query(t.Context(), Query{}); err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	other := &memSegments{segs: forge(t, segs)}
	l = open(t, Config{Segments: other, Index: index})
	got, err := l.Query(t.Context(), Query{Limit: 1})
	if err != nil || runs(t, got) != "x029" || index.resets != 1 {
		t.Fatalf(`runs(t, got) = %v, err = %v, index.resets = %v, want err == nil && runs(t, got) == "x029" && index.resets == 1`, runs(t, got),
			err, index.resets)
	}
}

// Records of a home with a key end in a code behind the hash, and segments begin with a header.
func TestAnIndexThatFitsIsNotRebuilt(t *testing.T) {
	for name, key := range map[string][]byte{"without a key": nil, "with a key": bytes.Repeat([]byte{7}, 32)} {
		index := &memIndex{}
		l := open(t, Config{Segments: &memSegments{}, Index: index, SegmentBytes: 4 << 10, Key: key})
		for i := range 40 {
			add(t, l, call(CapabilityExecuted, fmt.Sprintf("run_%03d", i), capability.EffectRead), Written)
			got, err := l.Query(t.Context(), Query{Limit: 1})
			if want := fmt.Sprintf("%03d", i); err != nil || runs(t, got) != want {
				t.Fatalf("%s: got %v, %v; want the record %s", name, got, err, want)
			}
		}
		if index.resets != 0 || len(index.entries) != 40 {
			t.Errorf("%s: got %d resets and %d entries, want 0 and 40", name, index.resets, len(index.entries))
		}
		_ = l.Close()
	}
}

// Earlier builds wrote an attribute with the name of a member, so that the line has it twice.
func TestALineWithAMemberTwiceIsRead(t *testing.T) {
	var v view
	const line = `{"event": "grant_created", "metadata": {"run_id": null, "principal": {"id": "admin:root"}, "principal": "agent:ann"}, "seq": 1}`
	if err := v.read([]byte(line)); err != nil || v.Event != GrantCreated {
		t.Errorf("a line with a member twice: got %v, %v; want grant_created and no error", v.Event, err)
	}
	if err := v.read([]byte(`{"event": `)); err == nil {
		t.Errorf("half of a line: got %v, want an error", v)
	}
}

func TestTailReplaysAndFollows(t *testing.T) {
	l := open(t, Config{Segments: &memSegments{}, SegmentBytes: 20 << 10})
	for i := range 20 {
		add(t, l, call(CapabilityExecuted, fmt.Sprintf("run_%d", i), capability.EffectRead), Written)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seq, more := uint64(15), 0
	for ln, err := range l.Tail(ctx, 15) {
		if err != nil {
			t.Fatal(err)
		}
		if k, ok := parseLink(ln); !ok || k.seq != seq {
			t.Fatalf("got %d, want %d", k.seq, seq)
		}
		seq++
		if seq > 20 && more < 20 {
			more++
			add(t, l, call(CapabilityExecuted, "run_more", capability.EffectRead), Written)
		} else if more == 20 {
			cancel()
		}
	}
	if seq != 41 {
		t.Fatalf("ended at %d; want seq = 41", seq)
	}
}

func TestRetentionRemovesOldSegmentsAndIsToldFromTheft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		segs, index := &memSegments{}, &memIndex{}
		l, err := Open(t.Context(), Config{
			Segments: segs, Index: index, SegmentBytes: 20 << 10, Retain: 48 * time.Hour,
			SyncEvery: 10 * time.Minute,
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- l.Run(ctx) }()
		for i := range 100 {
			r := call(CapabilityExecuted, fmt.Sprintf("run_%d", i), capability.EffectRead)
			r.Time = time.Time{}
			add(t, l, r, Written)
			time.Sleep(time.Hour)
		}
		cancel()
		<-done
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		rep := mustVerify(t, segs, index)
		if rep.FirstSeq < 30 || rep.FirstSeq > 70 || segs.gone == 0 || rep.LastSeq < 100 {
			t.Fatalf("%+v, %d segments removed; want rep.FirstSeq at least 30, rep.FirstSeq at most 70, segs.gone other than 0, "+
				"rep.LastSeq at least 100", rep, segs.gone)
		}
		mustVerify(t, segs, nil)
		if len(index.entries) > 80 || index.resets != 0 {
			t.Fatalf("%d rows, %d resets; want len(index.entries) at most 80, index.resets = 0", len(index.entries), index.resets)
		}
		headless := segs.clone()
		headless.head = nil
		mustVerify(t, headless, index) // the database knows the beginning, too
		stolen := segs.clone()
		stolen.gone++
		rep, err = VerifySegments(t.Context(), stolen, Proofs{Points: index})
		if err != nil || rep.FirstBad == nil || rep.FirstBad.Reason != BadStart {
			t.Fatalf("%+v %v; want no error, rep.FirstBad not nil, rep.FirstBad.Reason = %v", rep, err, BadStart)
		}
	})
}
