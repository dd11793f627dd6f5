package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/junctor-run/junctor/capability"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errDisk = errors.New("no space left on device")

func TestRacingAppendersMakeOneChain(t *testing.T) {
	segs := &memSegments{}
	l := open(t, Config{Segments: segs, SegmentBytes: 64 << 10})
	const writers, each = 16, 60
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := map[uint64]bool{}
	for i := range writers {
		wg.Go(func() {
			for j := range each {
				r := sample()
				r.Metadata.RunID = fmt.Sprintf("run_%d_%d", i, j)
				got, err := l.Append(t.Context(), r, Durability(j%3))
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				seen[got.Seq] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(seen) != writers*each || !seen[1] || !seen[writers*each] {
		t.Fatalf("%d different numbers", len(seen))
	}
	rep := mustVerify(t, segs, nil)
	if rep.Records != writers*each || rep.Segments < 3 {
		t.Fatalf("%+v; want rep.Records = writers * each, rep.Segments at least 3", rep)
	}
}

func TestOneFlushServesAllWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		segs := &memSegments{syncGate: make(chan struct{})}
		l, err := Open(t.Context(), Config{Segments: segs})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		const n = 32
		for range n {
			wg.Go(func() { add(t, l, sample(), Synced) })
		}
		synctest.Wait() // all are written; the first is in the flush, the rest wait for it
		if segs.syncs.Load() != 0 || len(segs.records()) != n {
			t.Fatalf("%d flushes, %d records; want segs.syncs.Load() = 0, len(segs.records()) = %v",
				segs.syncs.Load(), len(segs.records()), n)
		}
		close(segs.syncGate) // the first flush, and a second where the first began before all were written
		wg.Wait()
		if segs.syncs.Load() > 2 {
			t.Fatalf("%d flushes for %d records; want segs.syncs.Load() at most 2", segs.syncs.Load(), n)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestWrittenRecordsShareOneWriteAndAreFlushedByRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		segs := &memSegments{}
		l, err := Open(t.Context(), Config{Segments: segs})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- l.Run(ctx) }()
		add(t, l, sample(), Written)
		if segs.syncs.Load() != 0 {
			t.Fatal("Written waited for a flush; want segs.syncs.Load() = 0")
		}
		segs.writeGate = make(chan struct{})
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() { add(t, l, sample(), Buffered) })
		}
		synctest.Wait()
		close(segs.writeGate)
		wg.Wait()
		if segs.appends.Load() > 3 {
			t.Fatalf("%d writes for 11 records; want segs.appends.Load() at most 3", segs.appends.Load())
		}
		time.Sleep(110 * time.Millisecond) // fake time
		synctest.Wait()
		if segs.syncs.Load() != 1 {
			t.Fatalf("%d flushes after 110 ms; want segs.syncs.Load() = 1", segs.syncs.Load())
		}
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestAFullDiskIsHandledAsTheModeSays(t *testing.T) {
	read, write := capability.EffectRead, capability.EffectWrite
	for _, c := range []struct {
		mode                 Mode
		readOK, writeOK      bool
		keptBegins, keptEnds bool
	}{
		{Strict, false, false, false, true},
		{Standard, true, false, false, true},
		{BestEffort, true, true, true, true},
	} {
		for _, broken := range []string{"write", "flush"} {
			t.Run(string(c.mode)+" "+broken, func(t *testing.T) {
				segs := &memSegments{}
				l := open(t, Config{Segments: segs, Mode: c.mode})
				add(t, l, sample(), Synced)
				if broken == "write" {
					segs.fail(errDisk, nil)
				} else {
					segs.fail(nil, errDisk)
				}
				_, err := l.Append(t.Context(), sample(), Synced)
				if got := err == nil; got != c.writeOK {
					t.Fatalf("synced append: %v; want got = %v", err, c.writeOK)
				}
				if err != nil && (capability.CodeOf(err) != capability.CodeUnavailable || capability.AsError(err).Reason != "audit_unavailable") {
					t.Fatalf("%#v", err)
				}
				if got := l.Ready(false) == nil; got != c.readOK {
					t.Fatalf("ready for a read: %v; want got = %v", got, c.readOK)
				}
				if got := l.Ready(true) == nil; got != c.writeOK {
					t.Fatalf("ready for a write: %v; want got = %v", got, c.writeOK)
				}
				_, err = l.Append(t.Context(), call(CapabilityExecuted, "run_read", read), Written)
				if got := err == nil; got != c.readOK {
					t.Fatalf("append of a read: %v; want got = %v", err, c.readOK)
				}
				_, _ = l.Append(t.Context(), call(CapabilityStarted, "run_begin", write), Buffered)
				_, _ = l.Append(t.Context(), call(CapabilityExecuted, "run_end", write), Synced)

				l.recovery()
				if !l.Health().Broken {
					t.Fatal("recovered on a broken disk")
				}
				segs.fail(nil, nil)
				l.recovery()
				if h := l.Health(); h.Broken || h.Waiting != 0 || h.Lost != 0 {
					t.Fatalf("%+v; want h.Broken = false, h.Waiting = 0, h.Lost = 0", h)
				}
				all := strings.Join(segs.records(), "\n")
				if strings.Count(all, `"event": "audit_degraded"`) != 1 {
					t.Fatalf("no single note of the gap:\n%s\nwant strings.Count(all, `\"event\": \"audit_degraded\"`) = 1", all)
				}
				if strings.Contains(all, "run_begin") != c.keptBegins || strings.Contains(all, "run_end") != c.keptEnds ||
					!strings.Contains(all, "run_read") {
					t.Fatalf("wrong records kept:\n%s\nwant strings.Contains(all, \"run_begin\") = %v, strings.Contains(all, "+
						`"run_end") = %v, all with "run_read"`, all, c.keptBegins, c.keptEnds)
				}
				if err := l.Ready(true); err != nil {
					t.Fatal(err)
				}
				add(t, l, sample(), Synced)
				mustVerify(t, segs, nil)
			})
		}
	}
}

func TestTheRingIsBoundedAndCountsWhatItLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		segs := &memSegments{}
		l, err := Open(t.Context(), Config{Segments: segs, Mode: BestEffort, RingRecords: 10})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- l.Run(ctx) }()
		segs.fail(errDisk, nil)
		for i := range 25 {
			add(t, l, call(CapabilityExecuted, fmt.Sprintf("run_%d", i), capability.EffectRead), Written)
		}
		time.Sleep(time.Second)
		if h := l.Health(); !h.Broken || h.Waiting != 10 || h.Lost != 15 || h.Cause == "" {
			t.Fatalf(`%+v; want h.Broken = true, h.Waiting = 10, h.Lost = 15, h.Cause other than ""`, h)
		}
		segs.fail(nil, nil)
		time.Sleep(200 * time.Millisecond)
		lines := segs.records()
		if len(lines) != 11 || !strings.Contains(lines[0], `"lost": "15"`) || !strings.Contains(lines[1], "run_15") {
			t.Fatalf("%d records:\n%s\nwant len(lines) = 11, lines[0] with \"\\\"lost\\\": \\\"15\\\"\", lines[1] with \"run_15\"",
				len(lines), strings.Join(lines, "\n"))
		}
		cancel()
		<-done
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		mustVerify(t, segs, nil)
	})
}

func TestOpeningClosesTheCallsTheLastProcessLeft(t *testing.T) {
	for _, withHead := range []bool{true, false} {
		t.Run(fmt.Sprintf("head %v", withHead), func(t *testing.T) {
			segs := &memSegments{}
			l := open(t, Config{Segments: segs})
			add(t, l, call(CapabilityStarted, "run_early", capability.EffectWrite), Buffered)
			add(t, l, call(CapabilityStarted, "run_done", capability.EffectWrite), Buffered)
			if withHead {
				l.keeping <- struct{}{}
				if err := l.checkpoint(t.Context()); err != nil {
					t.Fatal(err)
				}
				<-l.keeping
			}
			add(t, l, call(CapabilityExecuted, "run_done", capability.EffectWrite), Synced)
			add(t, l, call(CapabilityStarted, "run_late", capability.EffectAdmin), Buffered)
			dead := segs.clone()
			again := open(t, Config{Segments: dead})
			lines := dead.records()[4:]
			if len(lines) != 2 {
				t.Fatalf("%d notes; want len(lines) = 2", len(lines))
			}
			for i, run := range []string{"run_early", "run_late"} {
				v := decode(t, lines[i])
				m, _ := v["metadata"].(map[string]any)
				if v["event"] != "capability_failed" || m["run_id"] != run || m["reason"] != "interrupted" || v["user_id"] != "agent:claude" {
					t.Fatalf(`%v; want v["event"] = "capability_failed", m["run_id"] = %v, m["reason"] = "interrupted", `+
						`v["user_id"] = "agent:claude"`, v, run)
				}
			}
			_ = again.Close()
			third := open(t, Config{Segments: dead.clone()})
			if third.Health().Seq != 6 {
				t.Fatal("closed twice; want third.Health().Seq = 6")
			}
			mustVerify(t, dead, nil)
		})
	}
}

func TestOpeningNotesATornLineAndACutTail(t *testing.T) {
	segs := &memSegments{}
	l := open(t, Config{Segments: segs})
	for range 5 {
		add(t, l, sample(), Written)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	cut := segs.clone()
	lines := strings.SplitAfter(string(cut.segs[0]), "\n")
	cut.segs[0] = []byte(strings.Join(lines[:4], ""))
	cut.torn = 17
	l = open(t, Config{Segments: cut})
	got := strings.Join(cut.records()[3:], "\n")
	if !strings.Contains(got, `"reason": "torn_line", "bytes": "17"`) ||
		!strings.Contains(got, `"reason": "tail_missing", "expected_seq": "5", "found_seq": "3"`) {
		t.Fatalf("records = %s, want torn_line with 17 bytes, and tail_missing from 5 to 3", got)
	}
	_ = l.Close()
}

func TestABrokenChainIsLeftAsEvidence(t *testing.T) {
	segs := &memSegments{}
	l := open(t, Config{Segments: segs})
	add(t, l, sample(), Written)
	segs.segs[0] = append(segs.segs[0], "garbage\n"...)
	l = open(t, Config{Segments: segs.clone()})
	add(t, l, sample(), Synced)
	got := l.cfg.Segments.(*memSegments)
	if len(got.segs) != 2 || !strings.Contains(string(got.segs[0]), "garbage\n") || !strings.Contains(string(got.segs[1]), "chain_broken") {
		t.Fatalf(`%s; want len(got.segs) = 2, string(got.segs[0]) with "garbage\n", string(got.segs[1]) with "chain_broken"`, got.segs)
	}
	rep, err := l.Verify(t.Context())
	if err != nil || rep.FirstBad == nil || rep.FirstBad.Reason != BadLine || rep.Records != 1 {
		t.Fatalf("%+v %v; want no error, rep.FirstBad not nil, rep.FirstBad.Reason = %v, rep.Records = 1", rep, err, BadLine)
	}
}

func TestTheCopiesHoldTheIdenticalLinesAlsoAfterACrash(t *testing.T) {
	segs, mirror := &memSegments{}, &memMirror{}
	l := open(t, Config{Segments: segs, Mirror: mirror})
	add(t, l, sample(), Written)
	if err := l.mirror.flush(); err != nil {
		t.Fatal(err)
	}
	denied := sample()
	denied.Event, denied.Level = PermissionDenied, ""
	add(t, l, denied, Synced) // not copied when the process dies
	add(t, l, Record{Event: ServerStopped}, Written)
	survived := &memMirror{files: map[Mirrors][]byte{MirrorCapabilities: mirror.files[MirrorCapabilities]}}
	l = open(t, Config{Segments: segs.clone(), Mirror: survived})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	all := segs.records()
	if got, want := string(survived.files[MirrorCapabilities]), all[0]+"\n"+all[1]+"\n"; got != want {
		t.Fatalf("capabilities.log\n%s\nwant\n%s", got, want)
	}
	if got, want := string(survived.files[MirrorSecurity]), all[1]+"\n"; got != want {
		t.Fatalf("security.log\n%s\nwant\n%s", got, want)
	}
}

func TestRefusedCallsAreNotThoseThatNeedAnApproval(t *testing.T) {
	l := open(t, Config{Segments: &memSegments{}, Index: &memIndex{}})
	for i := range 30 {
		r := call(PermissionDenied, fmt.Sprint("run_", i), capability.EffectWrite)
		r.Metadata.Code = capability.CodeDenied
		switch i % 10 {
		case 0: // refused
		case 1:
			r.Event, r.Metadata.Code = ApprovalRequired, capability.CodeApprovalRequired
		default: // as earlier versions recorded it
			r.Metadata.Code = capability.CodeApprovalRequired
		}
		add(t, l, r, Written)
	}
	for _, tt := range []struct {
		q    Query
		want []string
	}{
		{Query{Limit: 2}, []string{"run_20", "run_10"}},
		{Query{Limit: 3}, []string{"run_20", "run_10", "run_0"}},
		{Query{}, []string{"run_20", "run_10", "run_0"}},
		{Query{Limit: 4, Run: "run_10"}, []string{"run_10"}},
		{Query{Limit: 4, Run: "run_12"}, nil},
	} {
		lines, err := l.Denied(t.Context(), tt.q)
		if err != nil {
			t.Fatalf("asking for refused calls: %v", err)
		}
		var got []string
		for _, line := range lines {
			got = append(got, decode(t, string(line))["metadata"].(map[string]any)["run_id"].(string))
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("refused by %+v: got %v, want %v", tt.q, got, tt.want)
		}
	}
}

func TestAFullDiskAtTheStartDelaysTheNotes(t *testing.T) {
	segs := &memSegments{}
	l := open(t, Config{Segments: segs})
	add(t, l, call(CapabilityStarted, "run_begun", capability.EffectWrite), Buffered)
	dead := segs.clone()
	dead.torn = 9
	dead.fail(errDisk, nil)
	l = open(t, Config{Segments: dead})
	if l.Ready(true) == nil || l.Ready(false) != nil {
		t.Fatal("a log that could not be written at the start is ready; want l.Ready(true) not nil, l.Ready(false) = nil")
	}
	l.recovery() // in vain
	dead.fail(nil, nil)
	l.recovery()
	all := strings.Join(dead.records(), "\n")
	for _, want := range []string{`"reason": "torn_line"`, `"reason": "interrupted"`, `"reason": "log_broken"`} {
		if strings.Count(all, want) != 1 {
			t.Fatalf("%s is not there once:\n%s\nwant strings.Count(all, want) = 1", want, all)
		}
	}
	mustVerify(t, dead, nil)
}

func TestAClosedLogRefuses(t *testing.T) {
	l := open(t, Config{Segments: &memSegments{}})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append(t.Context(), sample(), Buffered); err == nil {
		t.Fatal("appended; want an error")
	}
	if l.Ready(false) == nil {
		t.Fatal("ready; want l.Ready(false) not nil")
	}
}

func BenchmarkAppendMemory(b *testing.B) {
	l := open(b, Config{Segments: &memSegments{}, SegmentBytes: 1 << 20})
	r := sample()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := l.Append(context.Background(), r, Written); err != nil {
			b.Fatal(err)
		}
	}
}
