package console

import (
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

// app is the page of an MCP server's tool (MCP Apps, revision 2026-01-26) in a frame.
type app struct {
	server string
	page   []byte   // nil once it was served
	calls  []string // tools of the server that the page may call
	// connects and loads are the origins that the page declares and the person has allowed.
	connects, loads []string
}

// origins matches what an app may declare: a host with TLS, and with * for its subdomains.
var origins = regexp.MustCompile(`^(?:https|wss)://(?:\*\.)?[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?(?::[0-9]{1,5})?$`)

// declaredOrigins returns the origins of a list that may be used, at most maxAppOrigins. Hosts of this
// machine are left out, because the person's other programs listen there.
func declaredOrigins(list []string) []string {
	out := []string{}
	for _, o := range list {
		o = strings.ToLower(strings.TrimSuffix(o, "/"))
		u, err := url.Parse(o)
		if err != nil || !origins.MatchString(o) || u.Hostname() == "localhost" || strings.HasSuffix(u.Hostname(), ".localhost") ||
			strings.Trim(u.Hostname(), "0123456789.") == "" || slices.Contains(out, o) || len(out) == maxAppOrigins {
			continue
		}
		out = append(out, o)
	}
	return out
}

// invoke makes a call as a person, and decodes its result.
func (s *Service) invoke(r *http.Request, who capability.Principal, target string, input, result any) error {
	body, err := json.Marshal(map[string]any{"target": target, "input": input})
	if err != nil {
		return err
	}
	got := s.ask(r, who, http.MethodPost, "/api/v1/invocations", body)
	var out struct {
		Error  *capability.Error `json:"error"`
		Result json.RawMessage   `json:"result"`
	}
	if err := json.Unmarshal(got.body.Bytes(), &out); err != nil {
		return capability.Wrap(capability.CodeFailed, "console.app", "the answer of a call cannot be read", err)
	}
	if out.Error != nil {
		return out.Error
	}
	return json.Unmarshal(out.Result, result)
}

// newApp answers with the address of a frame for the page of a tool. The origins that the page declares
// are allowed only with the member allow, which the person sets.
func (s *Service) newApp(w http.ResponseWriter, r *http.Request) error {
	one, t, err := s.session(r)
	if err != nil {
		return err
	}
	var req struct {
		Tool  string `json:"tool"`  // SERVER/TOOL
		Allow bool   `json:"allow"` // connections to the origins that the page declares
	}
	if err := httpapi.Decode(w, r, &req); err != nil {
		return err
	}
	who := t.Principal()
	server, _, _ := strings.Cut(req.Tool, "/")
	declared, calls, err := s.appTool(r, who, server, req.Tool)
	if err != nil {
		return err
	}
	if declared.Resource == "" {
		return capability.Errorf(capability.CodeNotFound, "console.app", "the tool %s has no page", req.Tool)
	}
	var read mcpwire.AppPages
	resource := "mcp." + server + ":resource:" + declared.Resource
	if err := s.invoke(r, who, resource, map[string]string{"uri": declared.Resource}, &read); err != nil {
		return err
	}
	i := slices.IndexFunc(read.Contents, func(c mcpwire.AppPage) bool { return c.MimeType == mcpwire.AppType })
	if i < 0 {
		return capability.Errorf(capability.CodeFailed, "console.app", "the page of %s is not of the type %s", req.Tool, mcpwire.AppType)
	}
	c := read.Contents[i]
	page := c.Blob
	if len(page) == 0 {
		page = []byte(c.Text)
	}
	if len(page) > maxAppPage {
		return capability.Errorf(capability.CodeTooLarge, "console.app", "the page of %s has %d bytes; the limit is %d", req.Tool, len(page),
			maxAppPage)
	}
	connects, loads := declaredOrigins(c.Meta.UI.CSP.Connect), declaredOrigins(c.Meta.UI.CSP.Resource)
	asks := slices.Concat(connects, loads)
	slices.Sort(asks)
	asks = slices.Compact(asks)
	made := &app{server: server, page: page, calls: calls}
	if req.Allow {
		deed := "let the page of " + text.Visible(req.Tool) + " connect to " + strings.Join(asks, ", ")
		if err := policy.Confirm(r.Context(), who.ID, deed); err != nil {
			return err
		}
		made.connects, made.loads = connects, loads
	}
	value := s.frames.add(&frame{session: one, module: "mcp." + server, id: declared.Resource, app: made}, time.Now())
	w.Header().Set("Cache-Control", "no-store")
	httpapi.WriteJSON(w, http.StatusCreated, map[string]any{
		"url": "/console/frames/" + value + "/", "ticket": value, "origins": asks, "allowed": req.Allow,
	})
	return nil
}

// appTool returns what a tool declares of its page, if the person may see it, and the names of the tools
// of its server that a page may call. Error: not_found.
func (s *Service) appTool(
	r *http.Request, who capability.Principal, server, tool string,
) (declared mcpwire.App, calls []string, err error) {
	var listed struct {
		Tools []struct {
			Tool string
			App  *mcpwire.App
		}
	}
	got := s.ask(r, who, http.MethodGet, "/api/v1/tools?server="+url.QueryEscape(server), nil)
	if got.code != http.StatusOK || json.Unmarshal(got.body.Bytes(), &listed) != nil {
		return declared, nil, capability.Errorf(capability.CodeUnavailable, "console.app", "the tools of %.80q cannot be listed", server)
	}
	found := false
	for _, one := range listed.Tools {
		app := mcpwire.AppOf(nil)
		if one.App != nil {
			app = *one.App
		}
		name, of := strings.CutPrefix(one.Tool, server+"/")
		if of && app.Page {
			calls = append(calls, name)
		}
		if of && one.Tool == tool {
			declared, found = app, true
		}
	}
	if !found {
		err = capability.Errorf(capability.CodeNotFound, "console.app", "the server %.80q has no tool %.80q", server, tool)
	}
	return declared, calls, err
}

// appStart removes what the policy of a document cannot forbid, before any code of the page runs.
const appStart = `<script>for (const n of ["RTCPeerConnection", "webkitRTCPeerConnection", "RTCDataChannel", "WebTransport"]) delete globalThis[n];</script>`

var doctype = regexp.MustCompile(`(?i)^\s*<!doctype[^>]*>`)

// showApp serves the page of an app. It has an origin of its own, and no connections but to the
// origins that were allowed.
func showApp(w http.ResponseWriter, one *app) {
	loads := strings.Join(append([]string{""}, one.loads...), " ")
	connects := "'none'"
	if len(one.connects) > 0 {
		connects = strings.Join(one.connects, " ")
	}
	h := w.Header()
	h.Set("Content-Security-Policy", "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'"+loads+
		"; style-src 'unsafe-inline'"+loads+"; img-src data: blob:"+loads+"; media-src data: blob:"+loads+"; font-src data:"+loads+
		"; connect-src "+connects+"; webrtc 'block'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Type", "text/html; charset=utf-8")
	head := doctype.Find(one.page)
	_, _ = w.Write(head)
	_, _ = w.Write([]byte(appStart))
	_, _ = w.Write(one.page[len(head):])
	one.page = nil // a document is served once
}

// appCall calls a tool of the app's own server, or reads one of its resources, as the person who looks at
// it.
func (s *Service) appCall(w http.ResponseWriter, r *http.Request, who capability.Principal, one *app, body []byte) error {
	var req struct {
		Method    string          `json:"method"` // tools/call or resources/read
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
		URI       string          `json:"uri"`
	}
	if err := httpapi.DecodeStrict(body, &req); err != nil {
		return err
	}
	target, input := "", any(req.Arguments)
	switch req.Method {
	case "tools/call":
		if !slices.Contains(one.calls, req.Name) {
			return capability.Errorf(capability.CodeDenied, "console.app", "the server has no tool %.80q for pages", req.Name)
		}
		if len(req.Arguments) == 0 {
			input = struct{}{}
		}
		target = "mcp." + one.server + ":tool:" + req.Name
	case "resources/read":
		target, input = "mcp."+one.server+":resource:"+req.URI, map[string]string{"uri": req.URI}
	default:
		return capability.Errorf(capability.CodeInvalidInput, "console.app", "%.40q is not a method of apps", req.Method)
	}
	var result json.RawMessage
	if err := s.invoke(r, who, target, input, &result); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(result)
	return nil
}
