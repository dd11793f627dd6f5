package scenario_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/nodes/skill/functions"
	"github.com/junctor-run/junctor/protocol/cmp"
)

// held is a call that waits.
type held struct {
	ID, State, Invocation string
	Result                json.RawMessage
	Error                 *capability.Error
}

func TestACallIsHeldForANodeThatIsAway(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	p := serve(t, home, "", "JUNCTOR_GATEWAY_GRACE=200ms")
	token := p.newToken(t, "node")
	var ran atomic.Int64
	offer := options{id: "a", token: token, before: func(d *device) {
		d.does(functions.Function{
			Name: "note", Effect: cmp.EffectWrite,
			Handle: func(_ context.Context, c functions.Call) (json.RawMessage, error) {
				ran.Add(1)
				return json.Marshal(c.Args.Kwargs)
			},
		})
	}}
	d := p.join(t, offer)
	d.stop()
	<-d.ended
	d.ended <- nil
	eventually(t, "it is away", func() bool { return len(p.nodes(t, p.admin, "")) == 0 })
	hold := func(node, body string) (held, error) {
		var c held
		err := p.admin.Do(t.Context(), http.MethodPost, "/api/v1/nodes/"+node+"/calls", json.RawMessage(body), &c)
		return c, err
	}
	show := func(id string) held {
		var c held
		if err := p.admin.Do(t.Context(), http.MethodGet, "/api/v1/calls/"+id, nil, &c); err != nil {
			t.Fatal(err)
		}
		return c
	}
	first, err := hold("a", `{"function":"note","args":{"n":1}}`)
	if err != nil || first.State != "held" {
		t.Fatalf(`%+v %v; want no error, first.State = "held"`, first, err)
	}
	second, err := hold("a", `{"function":"note","args":{"n":2},"hold":"1h"}`)
	if err != nil {
		t.Fatal(err)
	}
	for body, code := range map[string]capability.Code{
		`{"function":"note","hold":"999h"}`: capability.CodeInvalidInput,
		`{"function":"a b"}`:                capability.CodeInvalidInput,
		`{"function":"note","args":"` + strings.Repeat("x", 300<<10) + `"}`: capability.CodeTooLarge,
		`{"function":"note","args":{"__args__":1}}`:                         capability.CodeInvalidInput,
		`{"function":"note","hold":"soon"}`:                                 capability.CodeInvalidInput,
	} {
		if _, err := hold("a", body); capability.CodeOf(err) != code {
			t.Errorf("%.60s: %v; want capability.CodeOf(err) = %v", body, err, code)
		}
	}
	if _, err := hold("nobody", `{"function":"note"}`); reason(err) != cmp.ReasonNodeNotFound {
		t.Errorf("%v; want reason(err) = cmp.ReasonNodeNotFound", err)
	}
	// The call of another principal is not visible.
	if err := p.agent.Do(t.Context(), http.MethodGet, "/api/v1/calls/"+first.ID, nil, nil); capability.CodeOf(err) != capability.CodeNotFound {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeNotFound", err)
	}
	var cancelled held
	if err := p.admin.Do(t.Context(), http.MethodDelete, "/api/v1/calls/"+second.ID, nil, nil); err != nil {
		t.Error(err)
	}
	if cancelled = show(second.ID); cancelled.State != "cancelled" {
		t.Errorf(`%+v; want cancelled.State = "cancelled"`, cancelled)
	}
	// It waits over a restart of the gateway, too, and runs once.
	address := strings.TrimPrefix(p.url, "http://")
	p.kill()
	p = serve(t, home, address, "JUNCTOR_GATEWAY_GRACE=200ms")
	p.join(t, offer)
	eventually(t, "it is delivered", func() bool { return show(first.ID).State == "done" })
	if c := show(first.ID); string(c.Result) != `{"n":1}` || c.Invocation == "" || ran.Load() != 1 {
		t.Errorf(`%+v, ran %d times; want string(c.Result) = "{\"n\":1}", c.Invocation other than "", ran.Load() = 1`, c, ran.Load())
	}
	// A node that is there has it at once; what fails states why.
	out, stderr, code := p.cli(t, "call", "a", "note", `{"n":3}`, "--hold", "10m")
	if code != 0 || !strings.Contains(out, "hld_") {
		t.Fatalf(`%d %s %s; want code = 0, out with "hld_"`, code, out, stderr)
	}
	id := out[strings.LastIndexByte(strings.TrimSpace(out), ' ')+1:]
	eventually(t, "it is delivered at once", func() bool { return show(strings.TrimSpace(id)).State == "done" })
	if out, _, code := p.cli(t, "held", "show", strings.TrimSpace(id)); code != 0 || !strings.Contains(out, `"n": 3`) {
		t.Errorf(`%d %s; want code = 0, out with "\"n\": 3"`, code, out)
	}
	if out, _, code := p.cli(t, "held", "list", "--node", "a"); code != 0 || strings.Count(out, "hld_") != 3 {
		t.Errorf(`%d %s; want code = 0, strings.Count(out, "hld_") = 3`, code, out)
	}
	if _, _, code := p.cli(t, "held", "cancel", first.ID); code != 1 {
		t.Errorf("a call that has ended was withdrawn: %d; want code = 1", code)
	}
}
