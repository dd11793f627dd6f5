package mcpserve

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/serve/mcpserve/exchange"
	"github.com/junctor-run/junctor/protocol/jsonrpc"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

// Own provides the server's own resources. The error code is not_found for a resource of
// another principal, as for one that does not exist.
type Own interface {
	// KeepResult stores the result of a call of the principal for 15 minutes.
	KeepResult(ctx context.Context, principal, invocation string, result []byte) error
	// Result returns it.
	Result(ctx context.Context, principal, invocation string) ([]byte, error)
	// Calls are the principal's latest calls as JSON, newest first.
	Calls(ctx context.Context, principal string) ([]byte, error)
	// Usage is the usage document of a module, Markdown.
	Usage(extension string) (string, error)
}

// Text is a Markdown resource that is rendered when it is read. It is visible to callers
// that may call Action, which returns the same information in another form.
type Text struct {
	URI                      string // junctor://…
	Name, Title, Description string
	Action                   capability.Action
	Read                     func(ctx context.Context, by capability.Principal) (string, error)
}

const (
	ownScheme = "junctor://"
	uriMine   = "junctor://audit/mine"
)

func uriResult(invocation string) string {
	return "junctor://calls/" + url.PathEscape(invocation) + "/result"
}

// ownResources adds the server's own resources to the lists, sorted with the others.
func (s *Surface) ownResources(l *rendered, permitted func(*catalog.Entry) bool) {
	for _, t := range s.cfg.Texts {
		if mayCall(l.agent, permitted, t.Action) {
			doc := []byte(`{"uri":`)
			doc = jsonx.AppendString(doc, t.URI)
			doc = jsonx.AppendMember(doc, "name", jsonx.AppendString(nil, t.Name))
			doc = jsonx.AppendMember(doc, "title", jsonx.AppendString(nil, t.Title))
			doc = jsonx.AppendMember(doc, "description", jsonx.AppendString(nil, t.Description))
			l.resources.insert(t.URI, append(doc, `,"mimeType":"text/markdown"}`...))
		}
	}
	if s.cfg.Own == nil {
		return
	}
	l.resources.insert(uriMine, []byte(`{"uri":"`+uriMine+`","name":"my calls","title":"My calls","description":"The latest calls of this principal, newest first.","mimeType":"application/json"}`))
	l.templates.insert("junctor://calls/{id}/result", []byte(`{"uriTemplate":"junctor://calls/{id}/result","name":"result","title":"Result of a call","description":"The whole result of a call whose answer was cut, for 15 minutes.","mimeType":"application/json"}`))
	l.templates.insert("junctor://capabilities/{id}/usage", []byte(
		`{"uriTemplate":"junctor://capabilities/{id}/usage","name":"usage","title":"Usage of a capability","description":"The usage document of the module behind a capability; id is junctor/capabilityId of the tool, percent-encoded.","mimeType":"text/markdown"}`))
}

// readOwn reads one of the server's own resources; ok is false for other addresses.
func (s *Surface) readOwn(ctx context.Context, c caller, uri string, e mcpwire.Era) (out exchange.Outcome, ok bool) {
	rest, ours := strings.CutPrefix(uri, ownScheme)
	text := s.ownText(c, uri)
	if !ours || s.cfg.Own == nil && text == nil {
		return exchange.Outcome{}, false
	}
	var data []byte
	kind := "application/json"
	err := error(capability.Errorf(capability.CodeNotFound, "mcp", "there is no resource %q", uri))
	parts := strings.Split(rest, "/")
	switch {
	case text != nil:
		kind = "text/markdown"
		var written string
		written, err = text.Read(ctx, c.who)
		data = []byte(written)
	case uri == uriMine:
		data, err = s.cfg.Own.Calls(ctx, c.who.ID)
	case len(parts) == 3 && parts[0] == "calls" && parts[2] == "result":
		data, err = s.cfg.Own.Result(ctx, c.who.ID, unescape(parts[1]))
	case len(parts) == 3 && parts[0] == "capabilities" && parts[2] == "usage":
		kind = "text/markdown"
		if entry := s.visibleEntry(c, capability.ID(unescape(parts[1]))); entry != nil {
			var text string
			text, err = s.cfg.Own.Usage(entry.Module.Extension)
			data = []byte(text)
		}
	}
	switch {
	case capability.CodeOf(err) == capability.CodeNotFound:
		return exchange.Outcome{Fault: unknownResource(uri, e)}, true
	case err != nil:
		return exchange.Outcome{Fault: &mcpwire.Fault{
			Status: http.StatusOK, Code: jsonrpc.CodeInternal,
			Message: capability.AsError(err).Message,
		}}, true
	}
	dst := jsonx.AppendString([]byte(`{"contents":[{"uri":`), uri)
	dst = append(dst, `,"mimeType":"`+kind+`","text":`...)
	dst = appendText(dst, data)
	dst = append(dst, `}]`...)
	if e.Modern {
		dst = append(dst, `,"ttlMs":0,"cacheScope":"private"`...)
	}
	return exchange.Outcome{Result: e.AppendClosing(dst, nil)}, true
}

// ownText returns the text at an address, or nil if the caller may not read it.
func (s *Surface) ownText(c caller, uri string) *Text {
	for i, t := range s.cfg.Texts {
		if t.URI != uri {
			continue
		}
		if agent, permitted, err := s.cfg.Engine.Agent(c.invocation()); err == nil && mayCall(agent, permitted, t.Action) {
			return &s.cfg.Texts[i]
		}
	}
	return nil
}

// mayCall reports whether a caller may call an action.
func mayCall(agent *compile.Agent, permitted func(*catalog.Entry) bool, action capability.Action) bool {
	return slices.ContainsFunc(agent.Snapshot().Action(action), func(e *catalog.Entry) bool {
		return e.VisibleTo(capability.AudienceAgent) && e.Eligible() && permitted(e)
	})
}

func unescape(s string) string {
	if out, err := url.PathUnescape(s); err == nil {
		return out
	}
	return ""
}

// visibleEntry returns the entry of a capability, or nil if it is hidden from the caller.
func (s *Surface) visibleEntry(c caller, id capability.ID) *catalog.Entry {
	agent, permitted, err := s.cfg.Engine.Agent(c.invocation())
	if err != nil {
		return nil
	}
	e, ok := agent.Snapshot().Capability(id)
	if !ok || !e.VisibleTo(capability.AudienceAgent) || !permitted(e) {
		return nil
	}
	return e
}

// tooLarge answers with an excerpt of a result and the address of the rest. The flag
// promised reports whether the tool declares an object, which a part of one is not.
func (s *Surface) tooLarge(ctx context.Context, c caller, e mcpwire.Era, reply invoke.Reply, value json.RawMessage,
	promised bool,
) (exchange.Outcome, bool) {
	if s.cfg.Own == nil || reply.Invocation == "" {
		return exchange.Outcome{}, false
	}
	if err := s.cfg.Own.KeepResult(ctx, c.who.ID, reply.Invocation, value); err != nil {
		s.cfg.Logger.Error("a large result is not kept", "inv", reply.Invocation, "err", err)
		return exchange.Outcome{}, false
	}
	shown := excerpt(value, returnsMCP(reply.Provider))
	note := "… cut: the result has " + strconv.Itoa(len(value)) + " bytes. All of it can be read as the resource " +
		uriResult(reply.Invocation) + " for 15 minutes."
	dst := jsonx.AppendString([]byte(`{"content":[{"type":"text","text":`), shown+note)
	dst = append(dst, `},{"type":"resource_link","name":"result","uri":`...)
	dst = jsonx.AppendString(dst, uriResult(reply.Invocation))
	dst = append(dst, `,"mimeType":"application/json","size":`...)
	dst = strconv.AppendInt(dst, int64(len(value)), 10)
	dst = append(dst, `}]`...)
	if promised {
		dst = append(dst, `,"isError":true`...)
	}
	own := append([]byte(`"junctor/truncated":true,`), invocationMeta(reply)...)
	return exchange.Outcome{Result: e.AppendClosing(dst, own)}, true
}
