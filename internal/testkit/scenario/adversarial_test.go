package scenario_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/internal/nodes/messaging/natsdial"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
	"github.com/junctor-run/junctor/secret"
)

func TestScenario57HostilePayloads(t *testing.T) {
	t.Parallel()
	p := serve(t, t.TempDir(), "")
	d := p.join(t, options{id: "a", before: func(d *device) { d.acts("cam", "photo") }})
	deep := strings.Repeat("[", 5000) + strings.Repeat("]", 5000)
	payload := func(name, function, more string) string {
		return `{"schema":"easyremote.remote-skill-pipeline","version":"1.0","skill_name":"` + name +
			`","capabilities":[{"alias":"cam","function_name":"` + function + `","metadata":{` + more + `}}]}`
	}
	for what, raw := range map[string]string{
		"deep":              payload("s", "user.cam", `"x":`+deep),
		"twice":             `{"schema":"easyremote.remote-skill-pipeline","schema":"x","version":"1.0","capabilities":[]}`,
		"a large text":      payload("s", "user.cam", `"x":"`+strings.Repeat("y", 1<<20)+`"`),
		"NUL in a name":     payload("s", `user.\u0000cam`, ``),
		"wildcards":         payload("s", "user.>", ``),
		"a star":            payload("s", "user.*", ``),
		"a path as a skill": payload("../../etc", "user.cam", ``),
		"reserved":          payload("s", cmp.UninstallSkill, ``),
	} {
		_, err := ask(t.Context(), p.admin, "device.skill.install", map[string]any{"skill_payload": raw}, "a")
		if err == nil || len(d.host.Installed()) != 0 {
			t.Errorf("%s is installed: %v; want an error, len(d.host.Installed()) = 0", what, d.host.Installed())
		}
		if what == "reserved" && reason(err) != cmp.ReasonReserved {
			t.Errorf(`reserved: %v; want not (what == "reserved" && reason(err) != cmp.ReasonReserved)`, err)
		}
	}
	if _, err := ask(t.Context(), p.admin, "device.skill.install", map[string]any{"skill_payload": payload("s", "user.cam", ``)},
		"a"); err != nil {
		t.Errorf("after all that: %v", err)
	}
}

func TestScenario58And59SubjectsOfOthers(t *testing.T) {
	t.Parallel()
	p := serve(t, t.TempDir(), "")
	p.join(t, options{id: "victim", before: func(d *device) { d.says("hello", "hi") }})
	dial, err := natsdial.Dialer(p.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := dial(t.Context(), messaging.DialOptions{Name: "evil", Token: secret.New(p.newToken(t, "node")), Inbox: "_INBOX.evil"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	for e, err := range conn.Events(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == messaging.Connected {
			break
		}
	}
	for _, subject := range []string{
		wire.SubjectCall("victim"), "v1.host.>", "v1.gw.*.join", ">", "_INBOX.>", "$SYS.>", "_INBOX.victim.>",
		"v1.node.*.call",
	} {
		if sub, err := conn.Subscribe(t.Context(), messaging.SubscribeOptions{Pattern: subject}); err == nil {
			sub.Close()
			t.Errorf("58: it hears %s; want an error", subject)
		}
	}
	frame, err := wire.Encode(&wire.Frame{CallID: "x", Type: wire.FrameResult, Value: json.RawMessage(`"forged"`)})
	if err != nil {
		t.Fatal(err)
	}
	for _, subject := range []string{
		wire.SubjectReply("victim", "gw", "x"), wire.SubjectJoin("victim"), wire.SubjectBeat("victim"),
		wire.SubjectLeave("victim"), wire.SubjectControl("victim"), wire.SubjectUpward("victim"), "$SYS.REQ.SERVER.PING", "$JS.API.INFO",
	} {
		if _, err := conn.Request(t.Context(), messaging.Message{Subject: subject, Data: frame}); err == nil {
			t.Errorf("59: it speaks on %s; want an error", subject)
		}
	}
	// Its own subjects it has, and a join in another's name is refused there, too.
	join, err := wire.Encode(&wire.Join{Proto: 1, NodeID: "victim", Instance: "i", Revision: 1})
	if err != nil {
		t.Fatal(err)
	}
	m, err := conn.Request(t.Context(), messaging.Message{Subject: wire.SubjectJoin("evil"), Data: join})
	if err != nil {
		t.Fatal(err)
	}
	if reply, err := wire.Decode[wire.JoinReply](m.Data); err != nil || reply.OK {
		t.Errorf("%s %v; want no error, reply.OK = false", m.Data, err)
	}
	if out, err := p.call(t, "victim", "hello", nil); err != nil || string(out) != `"hi"` {
		t.Errorf(`%s %v; want no error, string(out) = "\"hi\""`, out, err)
	}
	// A flood of heartbeats and of nonsense on its own subjects does not disturb other nodes.
	for i := range 20_000 {
		data := []byte(fmt.Sprintf(`{"epoch":%d}`, i))
		if i%3 == 0 {
			data = []byte(strings.Repeat("{", 1000))
		}
		if err := conn.Publish(t.Context(), messaging.Message{Subject: wire.SubjectBeat("evil"), Data: data}); err != nil {
			break // it was cut off, which is fine
		}
	}
	began := time.Now()
	if out, err := p.call(t, "victim", "hello", nil); err != nil || string(out) != `"hi"` {
		t.Errorf(`during the flood: %s %v; want no error, string(out) = "\"hi\""`, out, err)
	}
	t.Logf("a call during the flood took %s", time.Since(began))
}

func TestScenario60CodeThatDoesHarmIsStopped(t *testing.T) {
	t.Parallel()
	p := serve(t, t.TempDir(), "")
	home := t.TempDir()
	action(t, home, "hello", "echo hi")
	p.joinReal(t, home, "a", "--allow-code")
	source := `
function loop() { for (;;) {} }
function fill() { let a = []; for (;;) { a.push("x".repeat(1 << 20)); } }
function flood() { let s = "x".repeat(1 << 20); let out = ""; for (let i = 0; i < 64; i++) { out += s; } return out; }
function fork() { return typeof require + typeof process + typeof std + typeof os; }
function fine(d) { return d.args; }`
	var caps []any
	for _, export := range []string{"loop", "fill", "flood", "fork", "fine"} {
		caps = append(caps, map[string]any{
			"alias": export, "function_name": "user." + export, "timeout": 3,
			"metadata": map[string]any{"code_binding": map[string]any{"module_id": "m", "export": export}},
		})
	}
	skill := map[string]any{
		"schema": "easyremote.remote-skill-pipeline", "version": "1.0", "skill_name": "s", "capabilities": caps,
		"runtime_modules": []any{map[string]any{"module_id": "m", "language": "javascript", "source": source}},
	}
	if _, err := ask(t.Context(), p.admin, "device.skill.install", map[string]any{"skill_payload": skill}, "a"); err != nil {
		t.Fatal(err)
	}
	for _, export := range []string{"loop", "fill", "flood"} {
		began := time.Now()
		out, err := p.call(t, "a", "user."+export, nil)
		if err == nil || time.Since(began) > hangTimeout {
			t.Errorf("%s: %.60s after %s; want an error, time.Since(began) at most %s", export, out, time.Since(began), hangTimeout)
		}
	}
	if out, err := p.call(t, "a", "user.fork", nil); err != nil || strings.Contains(string(out), "function") ||
		strings.Contains(string(out), "object") {
		t.Errorf(`fork: %s %v; want no error, string(out) without "function", string(out) without "object"`, out, err)
	}
	if out, err := p.call(t, "a", "user.fine", []int{7}); err != nil || string(out) != `[7]` {
		t.Errorf(`the node goes on: %s %v; want no error, string(out) = "[7]"`, out, err)
	}
	if p.status(t, "a") != "connected" {
		t.Error(`the node is gone; want p.status(t, "a") = "connected"`)
	}
}
