package wire_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
)

func TestSubjects(t *testing.T) {
	t.Parallel()
	if got := wire.SubjectReply("my.node", "gw>1", "c-1"); got != "v1.gw.my=2Enode.reply.gw=3E1.c-1" {
		t.Errorf(`wire.SubjectReply("my.node", "gw>1", "c-1") = %q, want "v1.gw.my=2Enode.reply.gw=3E1.c-1"`, got)
	}
	for _, id := range []string{"a", "my.node_1-x", "é*>= .", "\x00"} {
		back, err := wire.Unescape(wire.Escape(id))
		if err != nil || back != id {
			t.Errorf("%q: %q %v; want no error, back = %v", id, back, err, id)
		}
	}
	for _, token := range []string{"", "=", "=2", "=2e", "=41", "a.b", "a*", "=G0"} {
		if id, err := wire.Unescape(token); err == nil {
			t.Errorf("%q: %q; want an error", token, id)
		}
	}
	for _, subject := range []string{
		wire.SubjectJoin("my.node"), wire.SubjectCall("my.node"), wire.SubjectUpward("my.node"),
		wire.SubjectControl("my.node"), wire.SubjectBeat("my.node"), wire.SubjectUpdate("my.node"), wire.SubjectLeave("my.node"),
	} {
		if node, err := wire.NodeOf(subject); err != nil || node != "my.node" {
			t.Errorf(`wire.NodeOf(subject): err = %v, want nil; node = %q, want "my.node"; subject = %q`, err, node, subject)
		}
	}
	for _, subject := range []string{"", "v1.gw", "v2.gw.a.join", "v1.gw.*.join", "v1.other.a.b", "v1.gw.=2Ea.join"} {
		if node, err := wire.NodeOf(subject); err == nil {
			t.Errorf("wire.NodeOf(subject): err = nil, want an error; subject = %q; node = %q", subject, node)
		}
	}
	sub, pub := wire.Permissions("a.b")
	if strings.Join(append(sub, pub...), " ") != "v1.host.a=2Eb.> _INBOX.a=2Eb.> v1.gw.a=2Eb.> v1.node.a=2Eb.call" {
		t.Errorf("subscribe %q, publish %q; want the subjects of node a.b", sub, pub)
	}
	if wire.SubjectReplies("g") != "v1.gw.*.reply.g.>" {
		t.Errorf(`wire.SubjectReplies("g") = %q, want "v1.gw.*.reply.g.>"`, wire.SubjectReplies("g"))
	}
}

func round[T any](t *testing.T, name string, encode func(*T) ([]byte, error), decode func([]byte) (*T, error), m *T) {
	t.Helper()
	data, err := encode(m)
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	back, err := decode(append([]byte(` {"unknown":1,`), data[1:]...))
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	again, err := encode(back)
	if err != nil || string(again) != string(data) {
		t.Errorf("%s:\n%s\n%s %v\nwant no error, string(again) = %v", name, data, again, err, string(data))
	}
}

func join() *wire.Join {
	return &wire.Join{
		Proto: 1, NodeID: "n", Instance: "i", Software: wire.Software{Name: "junctor", Version: "1"}, OS: "linux", Arch: "amd64",
		Labels:    []string{"device"},
		Functions: []cmp.Function{{Name: "f.a", Tags: []string{"x"}, Version: "1.0.0", Priority: 5}}, Revision: 3, Accepting: true,
	}
}

func TestMessagesComeBack(t *testing.T) {
	t.Parallel()
	half := 0.5
	round(t, "join", wire.Encode[wire.Join], wire.Decode[wire.Join], join())
	round(t, "join reply", wire.Encode[wire.JoinReply], wire.Decode[wire.JoinReply],
		&wire.JoinReply{OK: true, Epoch: 1, HeartbeatMS: 5000, TimeoutMS: 30000, MaxInline: wire.MaxInline, Window: wire.DefaultWindow})
	round(t, "refusal", wire.Encode[wire.JoinReply], wire.Decode[wire.JoinReply],
		&wire.JoinReply{Error: &cmp.WireError{Code: "denied", Message: "no"}})
	round(t, "update", wire.Encode[wire.Update], wire.Decode[wire.Update], &wire.Update{Epoch: 1, Revision: 2})
	round(t, "ack", wire.Encode[wire.Ack], wire.Decode[wire.Ack], &wire.Ack{OK: true, Revision: 2})
	round(t, "beat", wire.Encode[wire.Beat], wire.Decode[wire.Beat], &wire.Beat{Epoch: 1, Seq: 2, CPU: 1.5, Accepting: true})
	round(t, "leave", wire.Encode[wire.Leave], wire.Decode[wire.Leave], &wire.Leave{Epoch: 1, Reason: "bye", Drain: true})
	round(t, "call", wire.Encode[wire.Call], wire.Decode[wire.Call],
		&wire.Call{
			Epoch: 1, CallID: "c", Function: "f", Args: []json.RawMessage{json.RawMessage("1")}, DeadlineMS: 10,
			Trace: wire.Trace{Parent: "00-" + strings.Repeat("a", 32) + "-" + strings.Repeat("b", 16) + "-01"},
		})
	round(t, "call by asset", wire.Encode[wire.Call], wire.Decode[wire.Call],
		&wire.Call{CallID: "c", Function: "f", Arguments: cmp.AssetValue(cmp.Asset{Digest: "sha256:" + strings.Repeat("0", 64), Size: 9})})
	round(t, "control", wire.Encode[wire.Control], wire.Decode[wire.Control], &wire.Control{Type: wire.ControlCredit, CallID: "c", Bytes: 10})
	for _, f := range []*wire.Frame{
		{Type: wire.FrameAck},
		{Type: wire.FrameChunk, Value: json.RawMessage("null")},
		{Type: wire.FrameProgress, Fraction: &half},
		{Type: wire.FrameResult, Value: json.RawMessage("1")},
		{Type: wire.FrameDone, Chunks: 3},
		{Type: wire.FrameError, Error: &cmp.WireError{Code: "timeout", Message: "late"}},
	} {
		f.CallID = "c"
		round(t, f.Type, wire.Encode[wire.Frame], wire.Decode[wire.Frame], f)
	}
}

func TestMessagesOutOfBounds(t *testing.T) {
	t.Parallel()
	bad := func(name string, err error, code capability.Code) {
		t.Helper()
		if e := capability.AsError(err); e == nil || e.Code != code {
			t.Errorf("%s: %v; want e not nil, e.Code = %v", name, err, code)
		}
	}
	for name, change := range map[string]func(*wire.Join){
		"proto": func(j *wire.Join) { j.Proto = 2 }, "node": func(j *wire.Join) { j.NodeID = "a>b" },
		"instance": func(j *wire.Join) { j.Instance = "" },
		"label":    func(j *wire.Join) { j.Labels = []string{strings.Repeat("x", 129)} },
		"labels":   func(j *wire.Join) { j.Labels = strings.Split(strings.Repeat("l,", 70)+"m", ","); numbered(j.Labels) },
		"function": func(j *wire.Join) { j.Functions[0].Name = "*" },
		"twice":    func(j *wire.Join) { j.Functions = append(j.Functions, j.Functions[0]) },
		"text":     func(j *wire.Join) { j.OS = strings.Repeat("x", 2000) }, "status": func(j *wire.Join) { j.HostStatus = json.RawMessage("1") },
	} {
		j := join()
		change(j)
		_, err := wire.Encode(j)
		bad(name, err, capability.CodeInvalidInput)
	}
	call := func(change func(*wire.Call)) error {
		c := &wire.Call{CallID: "c", Function: "f"}
		change(c)
		_, err := wire.Encode(c)
		return err
	}
	bad("call id", call(func(c *wire.Call) { c.CallID = "a.b" }), capability.CodeInvalidInput)
	bad("deadline", call(func(c *wire.Call) { c.DeadlineMS = -1 }), capability.CodeInvalidInput)
	bad("asset", call(func(c *wire.Call) { c.Arguments = json.RawMessage("{}") }), capability.CodeInvalidInput)
	bad("trace", call(func(c *wire.Call) { c.Trace.Parent = "x" }), capability.CodeInvalidInput)
	bad("large", call(func(c *wire.Call) {
		c.Args = []json.RawMessage{json.RawMessage(`"` + strings.Repeat("x", wire.MaxInline) + `"`)}
	}), capability.CodeTooLarge)
	for name, in := range map[string]string{
		"list": `[]`, "broken": `{`, "duplicate": `{"epoch":1,"epoch":2}`,
		"deep": strings.Repeat(`{"a":`, 99), "cpu": `{"cpu":101}`, "type": `{"cpu":"x"}`, "case": ``,
	} {
		_, err := wire.Decode[wire.Beat]([]byte(in))
		bad(name, err, capability.CodeInvalidInput)
	}
	_, err := wire.Decode[wire.Beat]([]byte(`{"x":"` + strings.Repeat("x", wire.MaxInline) + `"}`))
	bad("large", err, capability.CodeTooLarge)
	_, err = wire.Encode(&wire.Frame{
		CallID: "c", Type: wire.FrameChunk,
		Value: json.RawMessage(`"` + strings.Repeat("x", wire.MaxChunk) + `"`),
	})
	bad("chunk", err, capability.CodeTooLarge)
	_, err = wire.Encode(&wire.Frame{CallID: "c", Type: "other"})
	bad("frame", err, capability.CodeInvalidInput)
	_, err = wire.Encode(&wire.Control{Type: wire.ControlCredit, CallID: "c"})
	bad("credit", err, capability.CodeInvalidInput)
}

func numbered(labels []string) {
	for i := range labels {
		labels[i] = strings.Repeat("x", i+1)
	}
}

func TestAGapIsNoticed(t *testing.T) {
	t.Parallel()
	var s wire.Sequence
	take := func(seq uint64, kind string) string {
		fresh, err := s.Take(&wire.Frame{Seq: seq, Type: kind})
		switch {
		case err != nil:
			return capability.AsError(err).Reason
		case fresh:
			return "fresh"
		}
		return "old"
	}
	got := []string{
		take(0, wire.FrameAck), take(0, wire.FrameAck), take(1, wire.FrameChunk), take(3, wire.FrameDone),
		take(2, wire.FrameChunk),
	}
	if want := []string{"fresh", "old", "fresh", cmp.ReasonConnection, "old"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got = %q, want %q", got, want)
	}
	s = wire.Sequence{}
	got = []string{take(0, wire.FrameResult), take(1, wire.FrameError)}
	if want := []string{"fresh", "old"}; !reflect.DeepEqual(got, want) {
		t.Errorf("there is one end: %v; want got = %v", got, want)
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		`{"proto":1,"node_id":"n","instance":"i","functions":[{"name":"f"}]}`,
		`{"call_id":"c","function":"f","args":[1]}`, `{"call_id":"c","type":"chunk","value":1}`, `{"type":"cancel","call_id":"c"}`,
		`{"ok":true,"epoch":1}`, `{"cpu":1}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if m, err := wire.Decode[wire.Join](data); err == nil {
			encodes(t, m, wire.Encode[wire.Join])
		}
		if m, err := wire.Decode[wire.JoinReply](data); err == nil {
			encodes(t, m, wire.Encode[wire.JoinReply])
		}
		if m, err := wire.Decode[wire.Update](data); err == nil {
			encodes(t, m, wire.Encode[wire.Update])
		}
		if m, err := wire.Decode[wire.Beat](data); err == nil {
			encodes(t, m, wire.Encode[wire.Beat])
		}
		if m, err := wire.Decode[wire.Call](data); err == nil {
			encodes(t, m, wire.Encode[wire.Call])
		}
		if m, err := wire.Decode[wire.Frame](data); err == nil {
			encodes(t, m, wire.Encode[wire.Frame])
		}
		if m, err := wire.Decode[wire.Control](data); err == nil {
			encodes(t, m, wire.Encode[wire.Control])
		}
		if m, err := wire.Decode[wire.Upward](data); err == nil {
			encodes(t, m, wire.Encode[wire.Upward])
		}
		if m, err := wire.Decode[wire.UpwardReply](data); err == nil {
			encodes(t, m, wire.Encode[wire.UpwardReply])
		}
	})
}

// encodes: what was taken can be sent on, unless it grew beyond the limit.
func encodes[T any](t *testing.T, m *T, encode func(*T) ([]byte, error)) {
	t.Helper()
	if _, err := encode(m); err != nil && capability.CodeOf(err) != capability.CodeTooLarge {
		t.Fatalf("%+v: %v; want not (err != nil && capability.CodeOf(err) != capability.CodeTooLarge)", m, err)
	}
}

func FuzzUnescape(f *testing.F) {
	for _, s := range []string{"a", "=2E", "=", "my=2Enode"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if id, err := wire.Unescape(s); err == nil && wire.Escape(id) != s {
			t.Fatalf("%q: %q; want not (err == nil && wire.Escape(id) != s)", s, id)
		}
		if s != "" {
			if back, err := wire.Unescape(wire.Escape(s)); err != nil || back != s {
				t.Fatalf("%q: %q %v; want no error, back = %v", s, back, err, s)
			}
		}
	})
}
