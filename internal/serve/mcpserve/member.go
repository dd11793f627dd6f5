package mcpserve

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
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
	start   string                // the literal text before the first variable
	matches func(uri string) bool // nil if no address matches it
}

// renderMembers writes the lists of prompts, resources and templates.
func (s *Surface) renderMembers(l *rendered, c caller, permitted func(*catalog.Entry) bool) {
	l.byPrompt, l.byURI, l.withheld = make(map[string]*catalog.Entry), make(map[string]*catalog.Entry), make(map[string]bool)
	l.readers = make(map[string]*catalog.Entry)
	if l.agent == nil {
		return
	}
	var prompts []*catalog.Entry
	resources, templates := make(map[string][]*catalog.Entry), make(map[string][]*catalog.Entry)
	l.pages, l.rivals = make(map[string][]*catalog.Entry), make(map[string][]string)
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
				l.refused = append(l.refused, templateOf(e))
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
					resources[name] = append(resources[name], e)
				}
			case kindTemplate:
				if !strings.HasPrefix(name, ownScheme) {
					templates[name] = append(templates[name], e)
				}
			case "tool":
				if page := mcpwire.AppOf(e.Contribution.Definition).Resource; page != "" && !l.shows(m.Extension, page) {
					l.pages[page] = append(l.pages[page], e)
				}
			}
		}
	}
	l.promptNames(c, prompts)
	for _, name := range slices.Sorted(maps.Keys(l.byPrompt)) {
		l.prompts.add(name, memberDefinition(l.byPrompt[name], name))
	}
	for _, uri := range slices.Sorted(maps.Keys(resources)) {
		// A page belongs to the upstream whose tool shows it.
		of := slices.DeleteFunc(slices.Clone(resources[uri]), func(e *catalog.Entry) bool { return !l.mayShow(e.Module.Extension, uri) })
		switch {
		case len(of) == 1:
			l.byURI[uri] = of[0]
			l.resources.add(uri, memberDefinition(of[0], ""))
		case len(of) > 1 || len(l.pages[uri]) > 1:
			l.rivals[uri] = labels(append(of, l.pages[uri]...))
		}
	}
	for _, text := range slices.Sorted(maps.Keys(templates)) {
		for _, e := range templates[text] {
			l.byTemplate = append(l.byTemplate, templateOf(e))
		}
		if of := templates[text]; len(of) == 1 && templateOf(of[0]).matches != nil {
			l.templates.add(text, memberDefinition(of[0], ""))
		}
	}
	s.ownResources(l, permitted)
	l.prompts.seal()
	l.resources.seal()
	l.templates.seal()
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
			if name = wire(e.Module.Label + "__" + e.Contribution.Member.Name); count[name] > 0 { // another has this very name
				continue
			}
			count[name] = -1
		}
		l.byPrompt[name] = e
	}
}

// shows reports whether a tool of the module shows the page.
func (l *rendered) shows(module, page string) bool {
	return slices.ContainsFunc(l.pages[page], func(e *catalog.Entry) bool { return e.Module.Extension == module })
}

// labels returns the labels of the entries' modules, each once, in order.
func labels(entries []*catalog.Entry) (out []string) {
	for _, e := range entries {
		out = append(out, e.Module.Label)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// mayShow reports whether a module may provide an address: one of a page belongs to the one upstream
// whose tools show it, so that another one cannot put its page there.
func (l *rendered) mayShow(module, uri string) bool {
	return len(l.pages[uri]) == 0 || len(l.pages[uri]) == 1 && l.shows(module, uri)
}

// templateOf returns a template without a matcher if it is malformed or begins with a variable, and so
// would match the addresses of other upstreams. Lengths that the upstream sets for its variables are
// removed, because the library expands them; the upstream itself rejects an address that is too long.
func templateOf(e *catalog.Entry) template {
	text := e.Contribution.Member.Name
	out := template{entry: e}
	out.start, _, _ = strings.Cut(text, "{")
	if len(text) > maxURI || strings.Count(text, "{")+strings.Count(text, ",") > maxExpanded || !strings.Contains(out.start, ":") {
		return out
	}
	if t, err := uritemplate.New(withoutLengths(text)); err == nil {
		out.matches = func(uri string) bool {
			return len(uri) <= maxMatched && strings.HasPrefix(uri, out.start) && t.Regexp().MatchString(uri)
		}
	}
	return out
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

// resource returns the entries for an address: those of upstreams that list it, otherwise the first
// template of each that matches. If the caller may not read a listed resource, a template of the same
// upstream does not make it available.
func (l *rendered) resource(uri string) (entries []*catalog.Entry) {
	if e := l.byURI[uri]; e != nil {
		return []*catalog.Entry{e}
	}
	tried := make(map[string]int)
	for _, t := range l.byTemplate {
		module := t.entry.Module.Extension
		if t.matches == nil || !strings.HasPrefix(uri, t.start) || l.withheld[module+"\x00"+uri] || !l.mayShow(module, uri) ||
			len(entries) > 0 && entries[len(entries)-1].Module.Extension == module {
			continue
		}
		if tried[module]++; tried[module] <= maxTried && t.matches(uri) {
			entries = append(entries, t.entry)
		}
	}
	return entries
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
	entry, rivals := s.readable(ctx, c, m.Params.URI)
	if entry == nil {
		return exchange.Outcome{Fault: unreadable(m.Params.URI, rivals, e)}
	}
	input := append(jsonx.AppendString([]byte(`{"uri":`), m.Params.URI), '}')
	return s.passed(ctx, c, m, e, v, c.member(entry.Contribution.Member, input))
}

// unreadable returns the fault for an address that no upstream offers, or several do.
func unreadable(uri string, rivals []string, e mcpwire.Era) *mcpwire.Fault {
	f := unknownResource(uri, e)
	if len(rivals) > 0 {
		f.Message = fmt.Sprintf("resource %q is offered by several servers (%s); forbid it, and tools that show it, for all but one of "+
			"them with a rule, or connect to the address of one server", uri, strings.Join(rivals, ", "))
	}
	return f
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
		entry = l.byURI[uri]
		named := func(t template) bool { return t.entry.Contribution.Member.Name == uri }
		if i := slices.IndexFunc(l.byTemplate, named); i >= 0 && slices.Contains(l.templates.names, uri) {
			entry = l.byTemplate[i].entry
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
