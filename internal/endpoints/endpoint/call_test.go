package endpoint_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/endpoints/endpoint"
	"github.com/junctor-run/junctor/secret"
)

func TestEverySurfaceWorksThroughTheEngine(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.connect("cloud", device(t))
	for _, step := range []struct{ target, input, want string }{
		{"device-tools:lifecycle:init", `{"config":{"greeting":"ahoy"}}`, `"ok":true`},
		{"device-tools:action:DEVICE_PING", `{"text":"hi"}`, `ahoy`},
		{"device-tools:action:DEVICE_PING", `{"text":"hi","$options":{"uppercase":true}}`, `ahoy: HI`},
		{"device-tools:event:DEVICE_NOTICE", `{"topic":"door","text":"open"}`, `"handled":true`},
		{"device-tools:provider:DEVICE_STATUS", `{"verbose":true}`, `"door":1`},
		{"device-tools:responseHandlerEvaluator:device-context.shouldRun", `{"context":{"message":{"text":"the door"}}}`, `"shouldRun"`},
		{"device-tools:responseHandlerEvaluator:device-context.evaluate", `{"context":{"message":{"text":"the door"}}}`, `{`},
		{"device-tools:responseHandlerFieldEvaluator:urgency.parse", `{"value":"HIGH"}`, `"high"`},
		{"device-tools:responseHandlerFieldEvaluator:urgency.handle", `{"value":"HIGH","parsed":{"level":"high"}}`, `"effect"`},
		{"device-tools:appBridge:resolveLaunchSession", `{}`, `sessionId`},
		{"field-notes:route:POST /notes", `{"body":{"text":"buy milk","tags":["home"]}}`, `"status":201`},
		{"field-notes:route:GET /notes", `{"query":{"q":"MILK"}}`, `buy milk`},
		{"field-notes:route:GET /notes/:id", `{"path":"/notes/n1"}`, `buy milk`},
		{"field-notes:action:NOTE_ADD", `{"text":"call the plumber"}`, `plumber`},
		{"field-notes:provider:NOTES_RECENT", `{}`, `plumber`},
		{"field-notes:evaluator:note-extractor.shouldRun", `{"message":{"text":"Please remember the key is blue."}}`, `true`},
		{"field-notes:view:asset", `{"path":"/assets/field-notes.js"}`, `bodyBase64`},
		{"fs.writeText", `{"path":"a/b.txt","text":"hello","createDirectories":true}`, `bytesWritten`},
		{"fs.readText", `{"path":"a/b.txt"}`, `hello`},
		{"fs.list", `{"path":"a"}`, `b.txt`},
		{"model.status", `{}`, `"ok":true`},
	} {
		out, err := r.call(step.target, step.input)
		if err != nil || !strings.Contains(out, step.want) {
			t.Errorf("%s %s: %s %v; want no error, out with %v", step.target, step.input, out, err, step.want)
		}
	}
	seen := make(map[string]bool)
	for e := range r.catalog.Snapshot().Entries() {
		seen[e.Contribution.Member.Kind] = true
		if e.Provider == nil || e.Contribution.Availability.State != capability.StateReady {
			t.Errorf("%s cannot be called; want e.Provider not nil, e.Contribution.Availability.State = capability.StateReady", e.ID)
		}
	}
	for _, kind := range []string{
		"function", "action", "provider", "evaluator", "responseHandlerEvaluator", "responseHandlerFieldEvaluator",
		"event", "model", "service", "route", "lifecycle", "appBridge", "view",
	} {
		if !seen[kind] {
			t.Errorf("no entry of kind %s", kind)
		}
	}
}

func TestWhatAnEndpointRefusesKeepsItsCode(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.connect("cloud", device(t))
	for _, step := range []struct {
		target, input string
		code          capability.Code
	}{
		{"field-notes:action:NOTE_ADD", `{"text":" "}`, capability.CodeInvalidInput},
		{"field-notes:route:GET /notes/:id", `{}`, capability.CodeInvalidInput},                                    // which note?
		{"field-notes:route:GET /notes/:id", `{"query":{"path":"x"}}`, capability.CodeInvalidInput},                // not the path
		{"field-notes:route:GET /notes/:id", `{"path":"/other/n1"}`, capability.CodeInvalidInput},                  // not of this route
		{"field-notes:route:GET /notes/:id", `{"path":"/notes/../x"}`, capability.CodeInvalidInput},                // nor this
		{"field-notes:route:GET /notes/:id", `{"path":7}`, capability.CodeInvalidInput},                            // a string
		{"field-notes:route:GET /notes", `{"method":"DELETE"}`, capability.CodeInvalidInput},                       // addresses another route
		{"field-notes:route:GET /notes", `{"moduleId":"device-tools"}`, capability.CodeInvalidInput},               // another module
		{"field-notes:route:GET /notes", `{"\u006doduleId":"device-tools"}`, capability.CodeInvalidInput},          // spelled otherwise
		{"field-notes:route:GET /notes/:id", `{"p\u0061th":"/notes/n1","path":"/x"}`, capability.CodeInvalidInput}, // twice
		{"device-tools:responseHandlerFieldEvaluator:urgency.parse", `{"field":"x"}`, capability.CodeInvalidInput}, // another field
		{"device-tools:action:DEVICE_PING", `[1]`, capability.CodeInvalidInput},
		{"fs.readText", `{"path":"../../etc/passwd"}`, ""},
		{"fs.readText", `"x"`, capability.CodeInvalidInput},
	} {
		out, err := r.call(step.target, step.input)
		if err == nil || step.code != "" && capability.CodeOf(err) != step.code {
			t.Errorf(`%s %s: %s %v; want an error, not (step.code != "" && capability.CodeOf(err) != step.code)`,
				step.target, step.input, out, err)
		}
	}
}

func TestParametersKeepTheBytesOfTheInput(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	h, _ := scripted(t, manifest("m", oneAction+`,"events":[{"eventName":"E"}],"routes":[{"method":"GET","path":"/r/:id","name":"r"}]`))
	r.connect("m", h)
	for _, tt := range []struct{ input, want string }{
		{`{"z":12345678901234567890,"a":1.0e+2}`, `"content":{"z":12345678901234567890,"a":1.0e+2}}`},
		{`{"z":1,"$options":{"b":2},"a":1.50}`, `"content":{"z":1,"a":1.50},"options":{"b":2}}`},
		{`{ "$options" : {} , "z" : "\u0041\/" }`, `"content":{ "z" : "\u0041\/" },"options":{}}`},
		{`{"a":{"$options":1}}`, `"content":{"a":{"$options":1}}}`},
		{`{"\u0024options":{"x":1}}`, `"content":{},"options":{"x":1}}`},
	} {
		if out := r.must("m:action:GO", tt.input); !strings.HasSuffix(out, tt.want+"}}") {
			t.Errorf(`%s became %s; want out ending with tt.want + "}}"`, tt.input, out)
		}
	}
}

func TestARestartedEndpointServesTheNextCall(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	h, other := device(t), device(t)
	if _, _, err := r.Connect(t.Context(), endpoint.Request{
		ID: "other", BaseURL: other.url(), Token: secret.New(token),
		AllowedModules: []string{"device-tools"},
	}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Connect(t.Context(), endpoint.Request{
		ID: "h", BaseURL: h.url(), Token: secret.New(token),
		AllowedModules: []string{"field-notes"},
	}); err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{"field-notes:provider:NOTES_RECENT", "field-notes:action:NOTE_ADD"} {
		r.must("field-notes:action:NOTE_ADD", `{"text":"x"}`)
		h.stop()
		_, err := r.call("field-notes:provider:NOTES_RECENT", `{}`)
		if capability.CodeOf(err) != capability.CodeUnavailable {
			t.Errorf("while it is away: %v; want capability.CodeOf(err) = capability.CodeUnavailable", err)
		}
		r.eventually("the catalog says so", func() bool {
			e := r.catalog.Snapshot().Member(capability.Member{Module: "field-notes", Kind: "action", Name: "NOTE_ADD"})[0]
			return !e.Contribution.Availability.Eligible() && r.state("h") == capability.StateUnavailable
		})
		r.must("device-tools:action:DEVICE_PING", `{}`)
		h.start()
		r.must(target, `{"text":"back"}`)
	}
	if r.state("other") != capability.StateReady || r.events(audit.EndpointDown) != 2 || r.events(audit.EndpointUp) != 2 {
		t.Errorf(`%d down, %d up; want r.state("other") = capability.StateReady, r.events(audit.EndpointDown) = 2, `+
			"r.events(audit.EndpointUp) = 2", r.events(audit.EndpointDown), r.events(audit.EndpointUp))
	}
}

func TestACallCutInTheMiddleIsOneTypedErrorAndOnlyReadsAreSentAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	h, _ := scripted(t, manifest("m", oneAction+`,"providers":[{"name":"P"}]`))
	calls := map[string]*atomic.Int64{"plugin.action.invoke": {}, "plugin.provider.get": {}}
	var cut atomic.Int64 // how many of the next calls are cut
	inner := h.handler
	h.stop()
	h.handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodPost {
			var body struct{ Method string }
			raw, err := readAll(req)
			if err != nil || json.Unmarshal(raw, &body) != nil {
				t.Errorf("%s %v; want no error, json.Unmarshal(raw, &body) = nil", raw, err)
			}
			if n := calls[body.Method]; n != nil {
				n.Add(1)
				if cut.Add(-1) >= 0 {
					_, _ = w.Write([]byte(`{"ok":true,"res`))
					_ = http.NewResponseController(w).Flush()
					panic(http.ErrAbortHandler)
				}
			}
			req.Body = readCloser{strings.NewReader(string(raw))}
		}
		inner.ServeHTTP(w, req)
	})
	h.start()
	r.connect("m", h)

	cut.Store(1)
	_, err := r.call("m:action:GO", `{}`)
	if fails(t, err, capability.CodeFailed, "connection_failed"); calls["plugin.action.invoke"].Load() != 1 {
		t.Errorf(`a write was sent %d times; want calls["plugin.action.invoke"].Load() = 1`, calls["plugin.action.invoke"].Load())
	}
	cut.Store(1)
	if r.must("m:provider:P", `{}`); calls["plugin.provider.get"].Load() != 2 {
		t.Errorf(`a read was sent %d times; want calls["plugin.provider.get"].Load() = 2`, calls["plugin.provider.get"].Load())
	}
	cut.Store(9)
	_, err = r.call("m:provider:P", `{}`)
	if fails(t, err, capability.CodeFailed, "connection_failed"); calls["plugin.provider.get"].Load() != 4 {
		t.Errorf(`a read was sent %d times; want calls["plugin.provider.get"].Load() = 4`, calls["plugin.provider.get"].Load()-2)
	}
	cut.Store(0)
	r.must("m:action:GO", `{}`)
	if r.events(audit.EndpointDown) != 0 {
		t.Error("a broken call took down an endpoint that answers; want r.events(audit.EndpointDown) = 0")
	}
}

func TestManyCallersOfADeadEndpointShareOneQuestion(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	h, _ := scripted(t, manifest("m", oneAction))
	var asked atomic.Int64
	inner := h.handler
	h.stop()
	h.handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodGet {
			asked.Add(1)
			time.Sleep(20 * time.Millisecond) // long enough for all to gather
		}
		inner.ServeHTTP(w, req)
	})
	h.start()
	r.connect("m", h)
	h.stop()
	_, _ = r.call("m:action:GO", `{}`)
	r.eventually("it is marked", func() bool { return r.state("m") == capability.StateUnavailable })
	h.start()
	asked.Store(0)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() { r.must("m:action:GO", `{}`) })
	}
	wg.Wait()
	if n := asked.Load(); n > 10 {
		t.Errorf("asked %d times for 50 callers; want n at most 10", n)
	}
}

func TestAnEndpointThatForgetsOurTokenDoesNotDiscreditTheCaller(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	h := device(t)
	r.connect("h", h)
	h.stop()
	h.handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	h.start()
	_, err := r.call("device-tools:provider:DEVICE_STATUS", `{}`)
	fails(t, err, capability.CodeFailed, "invalid_credentials")
}

func TestALongCommandGetsTheTimeItAsksFor(t *testing.T) {
	t.Parallel()
	// pty.command.run through an endpoint is not cut by the usual 60 s: the
	// contribution allows 30 min and the call itself names a nearer end.
	r := newRig(t, nil)
	a := new(answers)
	a.invoke = func(ctx context.Context, method string, _ json.RawMessage) (json.RawMessage, error) {
		return json.RawMessage(`{"output":"` + method + `","exitCode":0,"timedOut":false}`), nil
	}
	h := serve(t, ptyEndpoint(a))
	r.connect("shell", h)
	e := r.catalog.Snapshot().Action("pty.command.run")
	if len(e) != 1 || e[0].Contribution.Timeout < 30*time.Minute {
		t.Fatalf("%+v; want len(e) = 1, e[0].Contribution.Timeout at least 30 * time.Minute", e)
	}
	for _, input := range []string{`{"command":"x"}`, `{"command":"x","timeoutMs":1200000}`} {
		if out := r.must("pty.command.run", input); !strings.Contains(out, "pty.command.run") {
			t.Errorf(`r.must("pty.command.run", input) = %q, want it to contain "pty.command.run"`, out)
		}
	}
}

func TestRacingChangesLeaveACatalogThatMatches(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	hosts := make([]*host, 4)
	for i := range hosts {
		hosts[i], _ = scripted(t, manifest(fmt.Sprintf("m%d", i), oneAction))
	}
	var wg sync.WaitGroup
	for i, h := range hosts {
		id := fmt.Sprintf("e%d", i)
		wg.Go(func() {
			for range 8 {
				if _, _, err := r.Connect(t.Context(), endpoint.Request{ID: id, BaseURL: h.url(), Persist: true}); err != nil {
					t.Error(err)
				}
				_, _ = r.call(fmt.Sprintf("m%d:action:GO", i), `{}`)
				if err := r.Disconnect(t.Context(), admin(), id); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			for range 8 {
				_, _ = r.Sync(t.Context(), admin(), "")
			}
		})
	}
	wg.Wait()
	if n := r.catalog.Snapshot().ModuleCount(); n != 0 || len(r.List()) != 0 {
		t.Errorf("%d modules and %d endpoints are left; want n = 0, len(r.List()) = 0", n, len(r.List()))
	}
}
