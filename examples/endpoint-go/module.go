package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/host"
)

//go:embed view.js
var bundle []byte

const bundlePath = "/assets/world-clock.js"

type object = map[string]any

// read decodes what a caller sent; the wire has checked that it is JSON.
func read[T any](raw json.RawMessage) (T, error) {
	var v T
	if len(raw) == 0 {
		return v, nil
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		return v, invalid("that does not fit: %v", err)
	}
	return v, nil
}

// textOf is the text of a message, wherever the caller keeps it.
func textOf(raw json.RawMessage) string {
	var m struct {
		Text, Prompt string
		Content      struct{ Text string }
		Message      struct {
			Text    string
			Content struct{ Text string }
		}
	}
	_ = json.Unmarshal(raw, &m) // no text is an answer, too
	for _, s := range []string{m.Text, m.Prompt, m.Content.Text, m.Message.Text, m.Message.Content.Text} {
		if s != "" {
			return s
		}
	}
	return ""
}

func (c *clock) module() host.Module {
	return host.Module{
		ID: "world-clock", Name: "@examples/world-clock", Version: "1.0.0",
		Description: "Knows what time it is elsewhere.",
		Priority:    new(1.0),
		Contexts:    []string{"general"},
		Config:      object{"HOURS": 24},
		Schema:      json.RawMessage(`{"type":"object","properties":{"HOURS":{"enum":[12,24]}}}`),
		Actions: []host.Action{{
			Name: "CONVERT_TIME", Description: "Say what a time in one zone is in another.", Similes: []string{"TIME_ELSEWHERE"},
			Parameters: json.RawMessage(`{"type":"object","properties":{"time":{"type":"string","pattern":"^[0-2][0-9]:[0-5][0-9]$"},"from":{"type":"string"},"to":{"type":"string"},"text":{"type":"string"}}}`),
			Handle:     c.actionConvert,
		}},
		Providers: []host.Provider{{
			Name: "TIMES", Description: "The time now in the watched zones.", Dynamic: true,
			Get: func(context.Context, json.RawMessage) (host.ProviderResult, error) {
				times := c.all()
				var b strings.Builder
				for _, name := range slices.Sorted(maps.Keys(times)) {
					fmt.Fprintf(&b, "%s %s\n", name, times[name])
				}
				return host.ProviderResult{Text: b.String(), Values: times, Data: object{"recent": c.recent()}}, nil
			},
		}},
		Evaluators:         []host.Evaluator{c.noticeTimes()},
		ResponseEvaluators: []host.ResponseEvaluator{c.addTime()},
		FieldEvaluators:    []host.FieldEvaluator{c.timeField()},
		Events: []host.Event{{Name: "zone.wanted", Handle: func(_ context.Context, payload json.RawMessage) (bool, error) {
			p, err := read[struct{ Zone string }](payload)
			if err != nil || p.Zone == "" {
				return err == nil, err // taken, and nothing to watch
			}
			_, err = c.watch(p.Zone)
			return err == nil, err
		}}},
		Models: []host.Model{{Type: "TEXT_TIMES", Priority: new(1.0), Invoke: func(_ context.Context, params json.RawMessage) (any, error) {
			q, ok := find(textOf(params))
			if !ok {
				return object{"text": "no time was asked for"}, nil
			}
			done, err := c.convert(q.Time, q.From, q.To)
			return object{"text": done.String()}, err
		}}},
		Services: []host.Service{{Type: "clock", Description: "Times and zones.", Methods: []host.ServiceMethod{
			{Name: "zones", Call: func(context.Context, []json.RawMessage) (any, error) { return slices.Sorted(maps.Keys(c.all())), nil }},
			{Name: "convert", Call: c.serviceConvert},
		}}},
		ComponentTypes: []host.ComponentType{{
			Name:   "meeting",
			Schema: json.RawMessage(`{"type":"object","properties":{"time":{"type":"string"},"zone":{"type":"string"}},"required":["time","zone"]}`),
		}},
		Widgets: []host.Widget{{ID: "clocks", Label: "Clocks", Slot: host.SlotChatSidebar, ComponentExport: "Clocks"}},
		App: &host.App{
			DisplayName: "World clock", Category: "tools", Capabilities: []string{"clock"},
			NavTabs: []host.NavTab{{ID: "clocks", Label: "Clocks", Path: "/clocks"}},
		},
		AppBridge: host.AppBridge{HandleAppRoutes: c.appRoutes, CollectLaunchDiagnostics: c.diagnostics},
		Lifecycle: host.Lifecycle{
			Init:        func(_ context.Context, config map[string]string, _ json.RawMessage) error { return c.configure(config) },
			ApplyConfig: func(_ context.Context, config map[string]string, _ json.RawMessage) error { return c.configure(config) },
			Dispose: func(context.Context, map[string]string, json.RawMessage) error {
				c.mu.Lock()
				defer c.mu.Unlock()
				c.reset()
				return nil
			},
		},
		Routes: []host.Route{
			{
				Method: "GET", Path: "/clocks", Name: "clocks", Description: "The time in the watched zones.",
				Public: &host.Public{Reason: "What time it is somewhere is not a secret."},
				Handle: func(context.Context, host.RouteRequest) (host.RouteResponse, error) {
					return host.RouteResponse{Headers: map[string]string{"cache-control": "no-store"}, Body: object{"times": c.all()}}, nil
				},
			},
			{Method: "GET", Path: "/clocks/:zone*", Description: "The time in one zone.", Handle: c.routeOne},
			{Method: "PUT", Path: "/clocks/:zone*", Description: "Watch a zone.", Handle: c.routeWatch},
		},
		Views: []host.View{{ID: "clocks", Label: "Clocks", Bundle: bundle, Path: bundlePath}},
	}
}

func (c *clock) actionConvert(_ context.Context, content, _ json.RawMessage) (host.ActionResult, error) {
	q, err := read[question](content)
	if err != nil {
		return host.ActionResult{}, err
	}
	if q.From == "" && q.To == "" {
		var ok bool
		if q, ok = find(q.Text); !ok {
			return host.ActionResult{Text: "Ask like this: 09:30 Europe/Berlin in Asia/Tokyo."}, nil
		}
	}
	done, err := c.convert(q.Time, q.From, q.To)
	return host.ActionResult{Text: done.String(), Values: object{"result": done.Then}, Data: done}, err
}

func (c *clock) serviceConvert(_ context.Context, args []json.RawMessage) (any, error) {
	if len(args) != 1 {
		return nil, invalid("convert takes one argument, {time, from, to}")
	}
	q, err := read[question](args[0])
	if err != nil {
		return nil, err
	}
	return c.convert(q.Time, q.From, q.To)
}

func (c *clock) routeOne(_ context.Context, r host.RouteRequest) (host.RouteResponse, error) {
	name := r.Params["zone"]
	now, err := c.at(name)
	if err != nil { // wrong is the request, not the route
		return host.RouteResponse{Status: 404, Body: object{"error": capability.AsError(err).Message}}, nil
	}
	return host.RouteResponse{Body: object{"zone": name, "time": now}}, nil
}

func (c *clock) routeWatch(_ context.Context, r host.RouteRequest) (host.RouteResponse, error) {
	added, err := c.watch(r.Params["zone"])
	if err != nil {
		return host.RouteResponse{Status: 400, Body: object{"error": capability.AsError(err).Message}}, nil
	}
	return host.RouteResponse{Body: object{"added": added}}, nil
}

func (c *clock) appRoutes(_ context.Context, about json.RawMessage) (any, error) {
	request, err := read[struct{ Method, Pathname string }](about)
	path := request.Pathname
	if rest, ok := strings.CutPrefix(path, "/api/apps/"); ok { // elizaOS passes the whole path, /api/apps/<slug>/clocks
		_, path, _ = strings.Cut(rest, "/")
		path = "/" + path
	}
	if err != nil || request.Method != "GET" || path != "/clocks" {
		return object{"handled": false}, err
	}
	return object{"handled": true, "status": 200, "body": object{"times": c.all()}}, nil
}

func (c *clock) diagnostics(context.Context, json.RawMessage) (any, error) {
	return []object{{"level": "info", "message": fmt.Sprintf("%d zones are watched", len(c.all()))}}, nil
}

// noticeTimes answers questions for a time in the messages of a conversation.
func (c *clock) noticeTimes() host.Evaluator {
	return host.Evaluator{
		Name: "NOTICE_TIMES", Description: "Notices questions for a time elsewhere.",
		Prompt: "Does the message ask what a time is elsewhere?", Schema: json.RawMessage(`{"type":"object"}`),
		ShouldRun: func(_ context.Context, call host.EvaluatorCall) (bool, error) {
			_, ok := find(textOf(call.Message))
			return ok, nil
		},
		Prepare: func(_ context.Context, call host.EvaluatorCall) (any, error) {
			q, ok := find(textOf(call.Message))
			return object{"found": ok, "question": q}, nil
		},
		BuildPrompt: func(_ context.Context, call host.EvaluatorCall) (string, error) {
			return "Does the message ask what a time is elsewhere? Found so far: " + string(call.Prepared), nil
		},
		Process: func(_ context.Context, call host.EvaluatorCall) (any, error) {
			q, ok := find(textOf(call.Message))
			if !ok {
				return object{"found": false}, nil
			}
			return c.convert(q.Time, q.From, q.To)
		},
	}
}

func (c *clock) addTime() host.ResponseEvaluator {
	return host.ResponseEvaluator{
		Name: "ADD_TIME", Description: "Adds the answer to a question for a time.",
		ShouldRun: func(_ context.Context, about json.RawMessage) (bool, error) {
			_, ok := find(textOf(about))
			return ok, nil
		},
		Evaluate: func(_ context.Context, about json.RawMessage) (any, error) {
			q, ok := find(textOf(about))
			if !ok {
				return nil, nil // an empty patch
			}
			done, err := c.convert(q.Time, q.From, q.To)
			return object{"time": done}, err
		},
	}
}

func (c *clock) timeField() host.FieldEvaluator {
	return host.FieldEvaluator{
		Name: "time", Description: "A time elsewhere that the model asks for.",
		Schema: json.RawMessage(`{"type":"object","properties":{"time":{"type":"string"},"from":{"type":"string"},"to":{"type":"string"}}}`),
		Parse: func(_ context.Context, call host.FieldCall) (any, bool, error) {
			q, err := read[question](call.Value)
			return q, err == nil && q.From != "" && q.To != "", nil // a model may say anything
		},
		Handle: func(_ context.Context, call host.FieldCall) (host.FieldEffect, error) {
			q, err := read[question](call.Value) // Parse may not have been waited for
			if err != nil || q.From == "" || q.To == "" {
				return host.FieldEffect{Debug: []string{"no time to convert"}}, nil
			}
			done, err := c.convert(q.Time, q.From, q.To)
			return host.FieldEffect{Patch: object{"time": done}}, err
		},
	}
}
