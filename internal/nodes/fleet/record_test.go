package fleet_test

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/nodes/fleet"
)

func two(t *testing.T) (a, b *rig) {
	t.Helper()
	a, b = newRig(t), newRig(t)
	a.Table = fleet.New(fleet.Config{Now: a.clock, Gateway: "a"})
	b.Table = fleet.New(fleet.Config{Now: b.clock, Gateway: "b"})
	return a, b
}

func (r *rig) clock() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now
}

// ours are the kinds of the events that a table says it has decided.
func ours(events []fleet.Event) (out []string) {
	for _, e := range events {
		if e.Ours {
			out = append(out, e.Kind)
		}
	}
	return out
}

func TestTwoTablesAgreeWhateverOrderRecordsComeIn(t *testing.T) {
	t.Parallel()
	a, b := two(t)
	first, err := a.Propose(member("n", "f"))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"node.joined"}, ours(a.Take(first))); d != "" {
		t.Errorf("diff (-want +got):\n%s", d)
	}
	other := member("n", "g")
	other.Session, other.Revision = "session-2", 7
	b.Take(first)
	second, err := b.Propose(other)
	if err != nil || second.Epoch <= first.Epoch {
		t.Fatalf("err = %v, want nil; second.Epoch = %v, want more than %v", err, second.Epoch, first.Epoch)
	}
	if d := cmp.Diff([]string{"node.superseded", "node.resumed", "node.updated"}, ours(b.Take(second))); d != "" {
		t.Errorf(`d = %q, want ""`, d)
	}
	if events := a.Take(second); len(events) != 3 || ours(events) != nil || events[0].Kind != "node.superseded" {
		t.Errorf("events = %v, of ours %v; want three, node.superseded first, none of ours", kinds(events), ours(events))
	}
	for _, r := range []*rig{a, b} {
		if events := append(r.Take(first), r.Take(second)...); events != nil {
			t.Errorf("what was known already was told again: %v; want events = nil", kinds(events))
		}
		if n, _ := r.Get("n"); n.Epoch != second.Epoch || !n.Offers("g") || n.Offers("f") || n.Gateway != "b" || !n.Joined.Equal(first.Joined) {
			t.Errorf(`%+v; want n.Epoch = %v, n.Offers("g"), not n.Offers("f"), n.Gateway = "b", n.Joined.Equal(first.Joined)`,
				n, second.Epoch)
		}
	}
	second.Draining = true
	if d := cmp.Diff([]string{"node.updated n"}, kinds(a.Take(second))); d != "" {
		t.Errorf("diff (-want +got):\n%s", d)
	}
	if events := a.Drop("n", first.Epoch, fleet.ReasonLost, true); events != nil {
		t.Errorf("a session that is over took the new one with it: %v; want events = nil", kinds(events))
	}
}

func TestAClockThatIsAheadDoesNotFenceOffTheOthers(t *testing.T) {
	t.Parallel()
	a, b := two(t)
	a.after(24 * time.Hour)
	first, _ := a.Propose(member("n", "f"))
	b.Take(first)
	second, err := b.Propose(member("n", "f"))
	if err != nil || second.Epoch <= first.Epoch {
		t.Errorf("err = %v, want nil; second.Epoch = %v, want more than %v", err, second.Epoch, first.Epoch)
	}
}

func TestADeafGatewaySparesItsNodes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	e := r.join(member("a", "f"))
	r.join(member("b", "f"))
	r.Gone("session-b")
	r.after(time.Minute)
	if r.Late("nobody", time.Second) || !r.Late("a", time.Second) {
		t.Error("late is not what it says")
	}
	r.Spare()
	if due, _, next := r.Expire(); due != nil || next.Sub(r.clock()) != 30*time.Second {
		t.Errorf("due = %v, next = %v; want none, in 30 s", due, next)
	}
	r.after(10 * time.Second)
	r.beat("a", e, 1)
	if !r.Late("a", 9*time.Second) || r.Late("a", 11*time.Second) {
		t.Error("the gap between heartbeats is not seen")
	}
	r.after(29 * time.Second)
	if d := cmp.Diff([]string{"node.left b lost"}, r.expire()); d != "" {
		t.Errorf("diff (-want +got):\n%s", d)
	}
	if events := r.Absent("a", e, 20*time.Second); len(events) != 1 {
		t.Errorf("len(events) = %v, want 1; kinds(events) = %q", len(events), kinds(events))
	}
	r.after(19 * time.Second)
	if got := r.expire(); got != nil {
		t.Errorf("r.expire() = %q, want nil", got)
	}
}

// large has as many functions as a node may have, with honest schemas.
func large(schema func(i int) string) fleet.Member {
	m := member("large")
	for i := range 1024 {
		m.Functions = append(m.Functions, fleet.Function{
			Name: fmt.Sprintf("tools.function_%04d", i), Description: "Does what number " + fmt.Sprint(i) + " does to a file.",
			Tags: []string{"files"}, Version: "1.0.0",
			Effect: "write", Timeout: 30 * time.Second, Input: json.RawMessage(schema(i)),
		})
	}
	return m
}

func TestRecordsComeBackAndFitIntoAnEntry(t *testing.T) {
	t.Parallel()
	const limit = 256 << 10
	var c fleet.Codec
	honest := large(func(i int) string {
		return fmt.Sprintf(`{"type":"object","properties":{"path":{"type":"string","description":"Where file %d is"},"mode":{"type":"string","enum":["r","w"]},"limit":{"type":"integer","minimum":1}},"required":["path"]}`, i)
	})
	for _, m := range []fleet.Member{member("small", "f"), honest} {
		r := newRig(t)
		rec, err := r.Propose(m)
		if err != nil {
			t.Fatal(err)
		}
		data, err := c.Encode(&rec, limit)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d functions are %d bytes", len(m.Functions), len(data))
		back, err := c.Decode(data)
		if d := cmp.Diff(rec, back, cmpopts.EquateEmpty()); err != nil || d != "" {
			t.Errorf("err = %v, want nil; diff (-want +got):\n%s", err, d)
		}
	}
	noise := func(n int) fleet.Member {
		return large(func(int) string {
			raw := make([]byte, n)
			rand.Read(raw)
			return `{"x":"` + hex.EncodeToString(raw) + `"}`
		})
	}
	for name, m := range map[string]fleet.Member{"noise": noise(300), "more than any message": noise(1000)} {
		r := newRig(t)
		rec, err := r.Propose(m)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Encode(&rec, limit); capability.CodeOf(err) != capability.CodeTooLarge || !strings.Contains(err.Error(), "262144") {
			t.Errorf(`%s: %v; want capability.CodeOf(err) = capability.CodeTooLarge, err.Error() with "262144"`, name, err)
		}
	}
	for name, data := range map[string]string{
		"nothing": "", "no object": "[]", "nobody": "{}", "no epoch": `{"ID":"a","Session":"s"}`,
		"half": "\x1f\x8b\x08", "not compressed": "\x1f...",
	} {
		if r, err := c.Decode([]byte(data)); capability.CodeOf(err) != capability.CodeInvalidInput {
			t.Errorf("%s: %+v %v; want capability.CodeOf(err) = capability.CodeInvalidInput", name, r, err)
		}
	}
}

func BenchmarkRecord(b *testing.B) {
	m := member("n")
	for i := range 20 {
		m.Functions = append(m.Functions, fleet.Function{
			Name: fmt.Sprint("tools.f", i), Description: "Does something to a file.",
			Version: "1.0.0", Input: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}`),
		})
	}
	rec, err := fleet.New(fleet.Config{}).Propose(m)
	if err != nil {
		b.Fatal(err)
	}
	var c fleet.Codec
	data, err := c.Encode(&rec, 1<<20)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(len(data)), "bytes")
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := c.Encode(&rec, 1<<20); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := c.Decode(data); err != nil {
				b.Fatal(err)
			}
		}
	})
}
