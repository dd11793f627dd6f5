package mcpserve

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/yosida95/uritemplate/v3"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/naming"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/serve/mcpserve/exchange"
	"github.com/junctor-run/junctor/protocol/jsonrpc"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

// The kinds of members of modules that this surface shows besides tools.
const (
	kindPrompt     = "prompt"
	kindResource   = "resource"
	kindTemplate   = "resource-template"
	kindCompletion = "completion"
	kindRead       = "resource-read" // of addresses that are not listed
)

// template is a resource template that addresses are matched with.
type template struct {
	entry   *catalog.Entry
	matches func(uri string) bool
}

// renderMembers writes the lists of prompts, resources and templates.
func (s *Surface) renderMembers(l *rendered, c caller, permitted func(*catalog.Entry) bool) {
	l.byPrompt, l.byURI, l.withheld = make(map[string]*catalog.Entry), make(map[string]*catalog.Entry), make(map[string]bool)
	l.readers = make(map[string]*catalog.Entry)
	if l.agent == nil {
		return
	}
	var prompts []*catalog.Entry
	templates := make(map[string]*catalog.Entry)
	for m := range l.agent.Snapshot().Modules() {
		if m.Origin != "mcp" && m.Origin != "a2a" {
			continue
		}
		for _, e := range l.agent.Snapshot().ModuleEntries(m.Extension) {
			name := e.Contribution.Member.Name
			if !permitted(e) && e.Contribution.Member.Kind == kindResource {
				l.withheld[m.Extension+"\x00"+name] = true
			}
			if !permitted(e) && e.Contribution.Member.Kind == kindTemplate {
				l.refused = append(l.refused, template{e, matcher(name)})
			}
			if e.Contribution.Member.Kind == kindRead && e.Provider != nil && e.Contribution.Availability.Eligible() && permitted(e) {
				l.readers[m.Extension] = e
			}
			if e.Provider == nil || e.Contribution.Definition == nil || !e.Contribution.Availability.Eligible() || !permitted(e) {
				continue
			}
			switch e.Contribution.Member.Kind {
			case kindPrompt:
				prompts = append(prompts, e)
			case kindResource:
				if !strings.HasPrefix(name, ownScheme) { // upstreams cannot provide the server's own addresses
					first(l.byURI, name, e)
				}
			case kindTemplate:
				if !strings.HasPrefix(name, ownScheme) {
					first(templates, name, e)
				}
			}
		}
	}
	l.promptNames(c, prompts)
	for _, name := range slices.Sorted(maps.Keys(l.byPrompt)) {
		l.prompts.add(name, memberDefinition(l.byPrompt[name], name))
	}
	for _, uri := range slices.Sorted(maps.Keys(l.byURI)) {
		l.resources.add(uri, memberDefinition(l.byURI[uri], ""))
	}
	for _, uri := range slices.Sorted(maps.Keys(templates)) {
		l.templates.add(uri, memberDefinition(templates[uri], ""))
		l.byTemplate = append(l.byTemplate, template{templates[uri], matcher(uri)})
	}
	s.ownResources(l, permitted)
	l.prompts.seal()
	l.resources.seal()
	l.templates.seal()
}

// first stores the first of several entries that claim one address. Modules are visited in
// the order of their ids, so the result does not depend on when they joined.
func first(m map[string]*catalog.Entry, name string, e *catalog.Entry) {
	if m[name] == nil {
		m[name] = e
	}
}

// promptNames assigns each prompt its own name, or, if several have the same, that name
// with the upstream's label.
func (l *rendered) promptNames(c caller, prompts []*catalog.Entry) {
	wire := func(name string) string {
		if c.view.OwnNames && plainName(name) != "" {
			return name
		}
		return naming.Wire(name, c.view.spell.Dialect, c.view.spell.Limit)
	}
	count := make(map[string]int)
	for _, e := range prompts {
		count[wire(e.Contribution.Member.Name)]++
	}
	for _, e := range prompts {
		name := wire(e.Contribution.Member.Name)
		if count[name] > 1 {
			name = wire(e.Module.Label + "__" + e.Contribution.Member.Name)
		}
		first(l.byPrompt, name, e)
	}
}

// matcher returns a function that reports whether a template matches an address, or nil if the
// template is malformed. Lengths that the upstream's template sets for its variables are removed,
// because the library expands them; the upstream itself rejects an address that is too long.
func matcher(text string) func(string) bool {
	never := func(string) bool { return false }
	start, _, _ := strings.Cut(text, "{")
	if len(text) > maxURI || strings.Count(text, "{")+strings.Count(text, ",") > maxExpanded {
		return never
	}
	t, err := uritemplate.New(withoutLengths(text))
	if err != nil {
		return never
	}
	return func(uri string) bool {
		return len(uri) <= maxURI && strings.HasPrefix(uri, start) && t.Regexp().MatchString(uri)
	}
}

// withoutLengths removes the length from each {name:length}.
func withoutLengths(template string) string {
	out := make([]byte, 0, len(template))
	inside, length := false, false
	for i := range len(template) {
		c := template[i]
		switch {
		case c == '{' || c == '}':
			inside, length = c == '{', false
		case inside && c == ':':
			length = true
		case length && (c < '0' || c > '9'):
			length = false
		}
		if !length {
			out = append(out, c)
		}
	}
	return string(out)
}

// resource returns the entry for an address: the listed resource, otherwise the first
// template that matches. If the caller may not read a listed resource, a template of the
// same upstream does not make it available.
func (l *rendered) resource(uri string) *catalog.Entry {
	if e := l.byURI[uri]; e != nil {
		return e
	}
	for _, t := range l.byTemplate {
		if t.matches(uri) && !l.withheld[t.entry.Module.Extension+"\x00"+uri] {
			return t.entry
		}
	}
	return nil
}

// member returns the invocation of one member of a module. It must be in the caller's
// list, which is why it is visible.
func (c caller) member(of capability.Member, input []byte) capability.Invocation {
	inv := c.invocation()
	inv.Audience = capability.AudienceInternal
	inv.Target, inv.Input = capability.Target{Member: of}, input
	return inv
}

func (s *Surface) getPrompt(ctx context.Context, c caller, m *mcpwire.Message, e mcpwire.Era, v voice) exchange.Outcome {
	entry := s.listOf(c).byPrompt[m.Params.Name]
	if !m.Params.Named || entry == nil {
		return exchange.Outcome{Fault: mcpwire.InvalidParams("unknown prompt %q", m.Params.Name)}
	}
	input := []byte("{}")
	if m.Params.Arguments != nil && string(m.Params.Arguments) != "null" {
		input = append(append([]byte(`{"arguments":`), m.Params.Arguments...), '}')
	}
	return s.passed(ctx, c, m, e, v, c.member(entry.Contribution.Member, input))
}

func (s *Surface) readResource(ctx context.Context, c caller, m *mcpwire.Message, e mcpwire.Era, v voice) exchange.Outcome {
	if out, ok := s.readOwn(ctx, c, m.Params.URI, e); ok {
		return out
	}
	entry := s.readable(ctx, c, m.Params.URI)
	if entry == nil {
		return exchange.Outcome{Fault: unknownResource(m.Params.URI, e)}
	}
	input := append(jsonx.AppendString([]byte(`{"uri":`), m.Params.URI), '}')
	return s.passed(ctx, c, m, e, v, c.member(entry.Contribution.Member, input))
}

func unknownResource(uri string, e mcpwire.Era) *mcpwire.Fault {
	f := mcpwire.InvalidParams("unknown resource %q", uri)
	f.Data = append(jsonx.AppendString([]byte(`{"uri":`), uri), '}')
	if !e.Modern {
		f.Code = mcpwire.CodeResourceNotFound
	}
	return f
}

// complete forwards a completion to the upstream that provides the prompt or template.
func (s *Surface) complete(ctx context.Context, c caller, m *mcpwire.Message, e mcpwire.Era) exchange.Outcome {
	var ref json.RawMessage
	input := []byte{'{'}
	if m.Params.Raw != nil {
		_ = jsonx.Members(m.Params.Raw, func(name string, value []byte) {
			switch name {
			case "ref":
				ref = value
			case "_meta", "inputResponses", "requestState":
			default:
				input = jsonx.AppendMember(input, name, value)
			}
		})
	}
	kind, _ := jsonx.Text(mcpwire.At(ref, []string{"type"}))
	name, _ := jsonx.Text(mcpwire.At(ref, []string{"name"}))
	uri, _ := jsonx.Text(mcpwire.At(ref, []string{"uri"}))
	l := s.listOf(c)
	var entry *catalog.Entry
	switch kind {
	case "ref/prompt":
		entry = l.byPrompt[name]
	case "ref/resource":
		if i := slices.IndexFunc(l.byTemplate, func(t template) bool { return t.entry.Contribution.Member.Name == uri }); i >= 0 {
			entry = l.byTemplate[i].entry
		} else {
			entry = l.byURI[uri]
		}
	}
	if entry == nil {
		return exchange.Outcome{Fault: mcpwire.InvalidParams("params.ref names no prompt and no resource that is known here")}
	}
	if !slices.ContainsFunc(l.agent.Snapshot().ModuleEntries(entry.Module.Extension),
		func(e *catalog.Entry) bool { return e.Contribution.Member.Kind == kindCompletion }) {
		dst, _ := appendUpstreamResult(nil, json.RawMessage(`{"completion":{"values":[]}}`), e, nil) // its upstream completes nothing
		return exchange.Outcome{Result: dst}
	}
	if kind == "ref/prompt" {
		renamed := jsonx.AppendString([]byte(`{"type":"ref/prompt","name":`), entry.Contribution.Member.Name)
		ref = append(renamed, '}')
	}
	input = append(jsonx.AppendMember(input, "ref", ref), '}')
	member := capability.Member{Module: entry.Contribution.Member.Module, Kind: kindCompletion, Name: "complete"}
	return s.passed(ctx, c, m, e, voice{}, c.member(member, input))
}

// passed runs a call whose result is already an MCP result. Its failure is a protocol
// error, because these methods do not have results with isError.
func (s *Surface) passed(ctx context.Context, c caller, m *mcpwire.Message, e mcpwire.Era, v voice,
	inv capability.Invocation,
) exchange.Outcome {
	reply, out, err := s.invoke(ctx, c, m, v, inv)
	if out != nil {
		return *out
	}
	if err != nil {
		return s.refused(ctx, c, m, e, reply, err)
	}
	result := reply.Result
	s.remember(c, reply)
	skip := []string{"cacheScope"}
	dst, ok := appendUpstreamResult(nil, result, e, invocationMeta(reply), skip...)
	if !ok {
		return exchange.Outcome{Fault: &mcpwire.Fault{
			Status: http.StatusBadGateway, Code: jsonrpc.CodeInternal,
			Message: "the upstream's answer is not a result",
		}}
	}
	if e.Modern && m.Method == "resources/read" {
		dst = dst[:len(dst)-1]
		if mcpwire.At(result, []string{"ttlMs"}) == nil {
			dst = append(dst, `,"ttlMs":0`...)
		}
		dst = append(dst, `,"cacheScope":"private"}`...)
	}
	return exchange.Outcome{Result: dst}
}

// refused converts a failure outside tools/call to a protocol error.
func (s *Surface) refused(ctx context.Context, c caller, m *mcpwire.Message, e mcpwire.Era,
	reply invoke.Reply, err error,
) exchange.Outcome {
	if out, ok := upstreamFault(e, err); ok {
		return out
	}
	if out, ok := urlFirst(c, e, err); ok {
		return out
	}
	out := s.failed(ctx, &m.Params, e, reply, err)
	if out.Result == nil {
		if out.Fault != nil && m.Method == "resources/read" && capability.CodeOf(err) == capability.CodeUnknownCapability {
			out.Fault = unknownResource(m.Params.URI, e)
		}
		return out
	}
	failure := capability.AsError(err)
	f := &mcpwire.Fault{Status: http.StatusOK, Code: jsonrpc.CodeInternal, Message: failure.Message}
	switch failure.Code {
	case capability.CodeInvalidInput, capability.CodeTooLarge:
		f.Code, f.Status = jsonrpc.CodeInvalidParams, http.StatusBadRequest
	case capability.CodeNotFound:
		f = unknownResource(m.Params.URI, e)
	default:
		f.Code = codeRefused
	}
	if failure.Hint != "" {
		f.Message += "\n" + failure.Hint
	}
	if note := mcpwire.At(out.Result, []string{"_meta", "junctor/error"}); note != nil && f.Data == nil {
		f.Data = bytes.Clone(note)
	}
	return exchange.Outcome{Fault: f}
}

// codeRefused is junctor's own error code: the call failed, and data has the reason. It
// is outside the range that JSON-RPC and MCP reserve.
const codeRefused = -31000

// upstreamFault returns the protocol error of an upstream if it is one that clients act on.
func upstreamFault(e mcpwire.Era, err error) (exchange.Outcome, bool) {
	failure := capability.AsError(err)
	code, ok := failure.Details["code"].(int64)
	if !ok || !strings.HasPrefix(failure.Reason, "upstream_") {
		return exchange.Outcome{}, false
	}
	data, _ := failure.Details["data"].(json.RawMessage)
	switch {
	case code == mcpwire.CodeMissingCapability && e.Modern:
		return exchange.Outcome{Fault: &mcpwire.Fault{
			Status: http.StatusBadRequest, Code: mcpwire.CodeMissingCapability,
			Message: failure.Message, Data: data,
		}}, true
	case code == jsonrpc.CodeInvalidParams, code == mcpwire.CodeResourceNotFound:
		f := &mcpwire.Fault{Status: http.StatusBadRequest, Code: jsonrpc.CodeInvalidParams, Message: failure.Message, Data: data}
		if code == mcpwire.CodeResourceNotFound && !e.Modern {
			f.Code = mcpwire.CodeResourceNotFound
		}
		return exchange.Outcome{Fault: f}, true
	}
	return exchange.Outcome{}, false
}

// urlFirst returns the error of an upstream that lists URLs to be opened before the call is
// repeated, if the caller is a legacy client that can open them. Later revisions of MCP do
// not have this error.
func urlFirst(c caller, e mcpwire.Era, err error) (exchange.Outcome, bool) {
	failure := capability.AsError(err)
	code, _ := failure.Details["code"].(int64)
	data, _ := failure.Details["data"].(json.RawMessage)
	if e.Modern || !c.abilities.url || code != mcpwire.CodeURLElicitation || len(data) == 0 ||
		!strings.HasPrefix(failure.Reason, "upstream_") {
		return exchange.Outcome{}, false
	}
	return exchange.Outcome{Fault: &mcpwire.Fault{
		Status: http.StatusOK, Code: mcpwire.CodeURLElicitation, Message: failure.Message, Data: data,
	}}, true
}
