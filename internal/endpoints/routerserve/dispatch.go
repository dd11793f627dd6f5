package routerserve

import (
	"encoding/json"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/protocol/router"
)

// routeBase is where the routes of modules hang, each module under its id.
const routeBase = "/api/modules/"

// appBase is where elizaOS hangs what an app bridge's handleAppRoutes serves, each app under its
// slug. The hook receives the whole path.
const appBase = "/api/apps/"

const (
	opRoute       = "modules.route"
	bridgeKind    = "appBridge"
	appRoutesHook = "handleAppRoutes"
)

// request is an HTTP request as a module gets it.
type request struct {
	method  string
	path    string // below the module's mount, or the whole path of an app
	query   map[string]any
	headers map[string]string
	body    json.RawMessage // nil: none
}

// dispatch calls the declared route of the module that matches, or the app bridge's
// handleAppRoutes if none does. Callers need a token even for routes that the module
// declares public, unless the operator has opened them too.
func (s *Surface) dispatch(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	if !slices.Contains(routeVerbs(), r.Method) {
		refuseMethod(w, r, routeVerbs())
		return nil
	}
	view := s.view()
	module, path, ok := splitRoute(r)
	slug, app := strings.CutPrefix(r.URL.Path, appBase)
	if app {
		slug, _, _ = strings.Cut(slug, "/")
		module, path = view.apps()[slug], r.URL.EscapedPath()
	} else if !ok {
		return capability.Errorf(capability.CodeInvalidInput, opRoute, "the path does not name a module").
			With("", "the form is "+routeBase+"MODULE/PATH")
	}
	in, err := s.read(w, r, path)
	if err != nil {
		return err
	}
	inv := capability.Invocation{Surface: "http", Client: r.UserAgent(), Principal: who, Audience: capability.AudienceInternal}
	name, path, declared := "", in.path, false
	if !app {
		name, path, declared = view.find(module, in.method, in.path)
	}
	in.path = path
	if bridge := (capability.Member{Module: module, Kind: bridgeKind, Name: appRoutesHook}); app || !declared &&
		len(view.snap.Member(bridge)) > 0 {
		inv.Target.Member = bridge
		err := s.bridge(w, r, inv, in)
		if app && capability.CodeOf(err) == capability.CodeUnknownCapability { // the same for an app that is not there
			bridge.Module = slug
			return capability.UnknownCapability(capability.Target{Member: bridge})
		}
		return err
	}
	inv.Target.Member = capability.Member{Module: module, Kind: "route", Name: name}
	if !declared {
		return s.undeclared(w, r, inv, in)
	}
	if inv.Input, err = in.route(); err != nil {
		return err
	}
	reply, err := s.call(w, r, inv)
	if err != nil {
		return err
	}
	result, err := router.DecodeResult("plugin.route.call", reply.Result)
	if err != nil {
		return badAnswer("the module's answer is not one of a route", err)
	}
	var out answer
	if err := jsonx.Unmarshal(result, &out); err != nil {
		return badAnswer("the module's answer is not one of a route", err)
	}
	return s.write(w, r, module, out)
}

func badAnswer(message string, cause error) error {
	return capability.Wrap(capability.CodeFailed, opRoute, message, cause).With("bad_answer", "report it to the operator of the endpoint")
}

func (s *Surface) call(w http.ResponseWriter, r *http.Request, inv capability.Invocation) (invoke.Reply, error) {
	reply, err := s.Engine.Invoke(r.Context(), inv)
	w.Header().Set("X-Junctor-Invocation", reply.Invocation)
	return reply, err
}

// undeclared refuses a path without a route: with the methods it has, for those
// who may call one of them; for others it is as unknown as anything else.
func (s *Surface) undeclared(w http.ResponseWriter, r *http.Request, inv capability.Invocation, in request) error {
	module := inv.Target.Member.Module
	view := s.view()
	var open []string
	for _, verb := range view.verbs(module, in.path) {
		inv.Target.Member.Name, _ = view.declared(module, verb, in.path)
		if s.Engine.Plan(r.Context(), inv).Err == nil {
			open = append(open, verb)
		}
	}
	if len(open) > 0 {
		refuseMethod(w, r, open)
		return nil
	}
	inv.Target.Member.Name = in.method + " " + in.path
	_, err := s.call(w, r, inv) // so that it is on record
	return err
}

func refuseMethod(w http.ResponseWriter, r *http.Request, verbs []string) {
	methods := strings.Join(verbs, ", ")
	w.Header().Set("Allow", methods)
	e := capability.Errorf(capability.CodeNotFound, "route", "%s is not a method of this path", r.Method).With("method_not_allowed",
		"use "+methods)
	httpapi.WriteJSON(w, http.StatusMethodNotAllowed, map[string]any{"error": e})
}

// bridge calls the app bridge's handleAppRoutes and answers with its result.
func (s *Surface) bridge(w http.ResponseWriter, r *http.Request, inv capability.Invocation, in request) (err error) {
	if inv.Input, err = in.context(); err != nil {
		return err
	}
	reply, err := s.call(w, r, inv)
	if err != nil {
		return err
	}
	var out struct {
		Result jsonx.Raw `json:"result"`
	}
	if err := jsonx.Unmarshal(reply.Result, &out); err != nil {
		return badAnswer("the app bridge's answer cannot be read", err)
	}
	done, handled, err := readHandled(out.Result)
	if err != nil {
		return badAnswer("the app bridge's answer is not a response", err)
	}
	if !handled {
		return capability.Errorf(capability.CodeNotFound, opRoute, "module %s serves nothing at %s %s", inv.Target.Member.Module, in.method,
			in.path)
	}
	return s.write(w, r, inv.Target.Member.Module, done)
}

// read returns the parts of the HTTP request that the module may see.
func (s *Surface) read(w http.ResponseWriter, r *http.Request, path string) (in request, err error) {
	if err := router.CheckLocalPath(path); err != nil {
		return in, capability.Errorf(capability.CodeInvalidInput, opRoute, "the path of the route %s", err.Error())
	}
	in = request{method: r.Method, path: path, headers: router.RequestHeaders(r.Header, s.withheld(r.Header)...)}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return in, capability.Errorf(capability.CodeInvalidInput, opRoute, "the query cannot be read: %s", err.Error())
	}
	if len(query) > 0 {
		in.query = make(map[string]any, len(query))
		for name, values := range query {
			in.query[name] = values
			if len(values) == 1 {
				in.query[name] = values[0]
			}
		}
	}
	if r.Method == http.MethodGet {
		return in, nil // a body means nothing there
	}
	in.body, err = readRouteBody(w, r, s.MaxBody)
	return in, err
}

// readRouteBody is the body as one JSON value: JSON as it came, other text as a
// string. Without a Content-Type it must be JSON.
func readRouteBody(w http.ResponseWriter, r *http.Request, limit int64) (json.RawMessage, error) {
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return nil, capability.Errorf(capability.CodeInvalidInput, opRoute, "a body in Content-Encoding %q cannot be passed on", coding).With("",
			"send it as it is")
	}
	body, err := httpapi.ReadBody(w, r, limit)
	if err != nil || len(body) == 0 {
		return nil, err
	}
	kind := "application/json"
	if declared := r.Header.Get("Content-Type"); declared != "" {
		if kind, _, err = mime.ParseMediaType(declared); err != nil {
			return nil, capability.Errorf(capability.CodeInvalidInput, opRoute, "Content-Type %q cannot be read", declared)
		}
	}
	if isJSON(kind) {
		var raw jsonx.Raw
		if err := jsonx.Unmarshal(body, &raw); err != nil {
			return nil, httpapi.BadJSON(err)
		}
		return body, nil
	}
	if !utf8.Valid(body) {
		return nil, capability.Errorf(capability.CodeInvalidInput, opRoute, "a body of type %s that is not UTF-8 text cannot be passed on", kind).
			With("", "send JSON or text; binary data as base64 inside JSON")
	}
	return jsonx.Marshal(string(body))
}

func isJSON(kind string) bool { return kind == "application/json" || strings.HasSuffix(kind, "+json") }

// route is the input of a route member.
func (in request) route() (json.RawMessage, error) {
	out := map[string]any{"path": in.path, "headers": in.headers}
	if in.query != nil {
		out["query"] = in.query
	}
	if in.body != nil {
		out["body"] = jsonx.Raw(in.body)
	}
	return jsonx.Marshal(out)
}

// context is the input of handleAppRoutes.
func (in request) context() (json.RawMessage, error) {
	out := map[string]any{"method": in.method, "path": in.path, "pathname": in.path, "headers": in.headers, "query": map[string]any{}}
	if in.query != nil {
		out["query"] = in.query
	}
	if in.body != nil {
		out["body"] = jsonx.Raw(in.body)
	}
	return jsonx.Marshal(out)
}
