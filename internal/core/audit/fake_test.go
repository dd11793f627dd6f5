package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
)

// memSegments keeps segments in memory and breaks on demand.
type memSegments struct {
	gone      int // segments removed
	mu        sync.Mutex
	segs      [][]byte
	head      []byte
	torn      int64
	synced    int // bytes of all segments known to be durable
	syncs     atomic.Int64
	appends   atomic.Int64
	appendErr error
	syncErr   error
	syncGate  chan struct{} // a flush waits for it when set
	writeGate chan struct{}
}

func (m *memSegments) Append(lines []byte) error {
	if m.writeGate != nil {
		<-m.writeGate
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.appendErr != nil {
		return m.appendErr
	}
	if len(m.segs) == 0 {
		return errors.New("no segment")
	}
	m.appends.Add(1)
	last := len(m.segs) - 1
	m.segs[last] = append(m.segs[last], lines...)
	return nil
}

func (m *memSegments) total() (n int) {
	for _, s := range m.segs {
		n += len(s)
	}
	return n
}

func (m *memSegments) Sync() error {
	m.mu.Lock()
	n, gate := m.total(), m.syncGate
	m.mu.Unlock()
	if gate != nil {
		<-gate
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.syncErr != nil {
		return m.syncErr
	}
	m.syncs.Add(1)
	m.synced = n
	return nil
}

func (m *memSegments) Rotate(header []byte) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.appendErr != nil {
		return 0, m.appendErr
	}
	m.segs = append(m.segs, slices.Clone(header))
	m.synced = m.total()
	return uint64(len(m.segs)), nil
}

func (m *memSegments) List() ([]SegmentInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []SegmentInfo
	for i, s := range m.segs {
		if i < m.gone {
			continue
		}
		list = append(list, SegmentInfo{uint64(i + 1), int64(len(s))})
	}
	return list, nil
}

func (m *memSegments) Open(id uint64, offset int64) (io.ReadCloser, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if id == 0 || id > uint64(len(m.segs)) || offset > int64(len(m.segs[id-1])) {
		return nil, errors.New("no such place")
	}
	return io.NopCloser(bytes.NewReader(slices.Clone(m.segs[id-1][offset:]))), nil
}

func (m *memSegments) Remove(id uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if int(id) != m.gone+1 {
		return errors.New("not the oldest segment")
	}
	m.gone++
	m.segs[id-1] = nil
	return nil
}

func (m *memSegments) Torn() int64               { return m.torn }
func (m *memSegments) LoadHead() ([]byte, error) { return m.head, nil }
func (m *memSegments) SaveHead(doc []byte) error { m.head = slices.Clone(doc); return nil }
func (m *memSegments) Close() error              { return nil }

func (m *memSegments) fail(appendErr, syncErr error) {
	m.mu.Lock()
	m.appendErr, m.syncErr = appendErr, syncErr
	m.mu.Unlock()
}

// records returns the lines of all segments without headers.
func (m *memSegments) records() (out []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.segs {
		for i, ln := range bytes.Split(bytes.TrimSuffix(s, []byte("\n")), []byte("\n")) {
			if i > 0 {
				out = append(out, string(ln))
			}
		}
	}
	return out
}

func (m *memSegments) clone() *memSegments {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &memSegments{head: slices.Clone(m.head), gone: m.gone}
	for _, s := range m.segs {
		c.segs = append(c.segs, slices.Clone(s))
	}
	return c
}

type memMirror struct {
	mu    sync.Mutex
	files map[Mirrors][]byte
}

func (m *memMirror) Append(f Mirrors, lines []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.files == nil {
		m.files = map[Mirrors][]byte{}
	}
	m.files[f] = append(m.files[f], lines...)
	return nil
}

func (m *memMirror) LastLine(f Mirrors) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := bytes.SplitAfter(m.files[f], []byte("\n"))
	if len(all) < 2 {
		return nil, nil
	}
	return all[len(all)-2], nil
}

func (m *memMirror) Close() error { return nil }

// memIndex is the reference implementation of Index.
type memIndex struct {
	entries []Entry
	pos     Position
	points  []Checkpoint
	resets  int
}

func (m *memIndex) Position(context.Context) (Position, error) { return m.pos, nil }
func (m *memIndex) Add(_ context.Context, e []Entry, at Position) error {
	m.entries, m.pos = append(m.entries, e...), at
	return nil
}

func (m *memIndex) Forget(_ context.Context, seq uint64) error {
	m.entries = slices.DeleteFunc(m.entries, func(e Entry) bool { return e.Seq < seq })
	m.points = slices.DeleteFunc(m.points, func(c Checkpoint) bool { return c.Seq+1 < seq })
	return nil
}

func (m *memIndex) Reset(context.Context) error {
	m.entries, m.pos = nil, Position{}
	m.resets++
	return nil
}

func (m *memIndex) Find(_ context.Context, q Query) (out []Entry, _ error) {
	for _, e := range slices.Backward(m.entries) {
		if q.Match(e) && len(out) < q.Limit {
			out = append(out, e)
		}
	}
	return out, nil
}

func (m *memIndex) Usage(context.Context, UsageQuery) ([]Usage, error) { return nil, nil }

func (m *memIndex) AddCheckpoint(_ context.Context, c Checkpoint) error {
	m.points = append(m.points, c)
	slices.SortFunc(m.points, func(a, b Checkpoint) int { return int(a.Seq) - int(b.Seq) })
	return nil
}

func (m *memIndex) Checkpoints(_ context.Context, after uint64, limit int) (out []Checkpoint, _ error) {
	for _, c := range m.points {
		if c.Seq > after && len(out) < limit {
			out = append(out, c)
		}
	}
	return out, nil
}

func open(t testing.TB, cfg Config) *Log {
	t.Helper()
	l, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func add(t testing.TB, l *Log, r Record, d Durability) Receipt {
	t.Helper()
	got, err := l.Append(t.Context(), r, d)
	if err != nil {
		t.Fatalf("append %s: %v", r.Event, err)
	}
	return got
}

func call(e Event, run string, effect capability.Effect) Record {
	r := sample()
	r.Event, r.Metadata.RunID, r.Metadata.Effect = e, run, effect
	return r
}

func sample() Record {
	return Record{
		Time: time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC), Logger: "invoke", Event: CapabilityExecuted,
		Extension: "tools.postman", Action: "fs.readText", Runner: "endpoint", Session: "s-1", User: "agent:claude",
		Success: OutcomeSuccess, Duration: 1500 * time.Microsecond,
		Metadata: Metadata{
			Tool: "read_text", ArgsCount: 2, WorkDir: "/home/ann/work", ArgsHash: "ab12", RunID: "run_0123456789abcdef01234567",
			Permissions: []string{"fs.read", "net.http"},
			Decision:    Decision{Effect: "permit", PolicyIDs: []string{"base.agent"}, Grant: "grt_1"},
			State:       "completed", CapabilityID: "tools.postman/read#fs.readText@cloud", CanonicalAction: "fs.readText",
			Provider: "fs:endpoint:cloud", Surface: "mcp", Principal: Principal{ID: "agent:claude", Role: capability.RoleAgent},
			Effect: capability.EffectRead, Client: "claude-code/2.1", TraceID: "4bf92f3577b34da6a3ce929d0e0e4736",
			Selection: Selection{Step: 6, DecidedBy: "config", ExplanationID: "exp_1"},
			BytesIn:   120, BytesOut: 4096, UpstreamCallID: "up-7",
			Timings: Timings{Queue: 10 * time.Microsecond, Provider: 1400 * time.Microsecond},
		},
	}
}

func decode(t testing.TB, line string) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal([]byte(line), &v); err != nil {
		t.Fatalf("%v in %s", err, line)
	}
	return v
}

func mustVerify(t testing.TB, segs Segments, points CheckpointSource) VerifyReport {
	t.Helper()
	rep, err := VerifySegments(t.Context(), segs, Proofs{Points: points})
	if err != nil {
		t.Fatal(err)
	}
	if rep.FirstBad != nil {
		t.Fatalf("chain is bad: %+v; want rep.FirstBad = nil", *rep.FirstBad)
	}
	return rep
}
