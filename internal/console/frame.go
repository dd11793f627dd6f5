package console

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/ids"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/secret"
)

// frame is the right to show one view of a module: its ticket is the only credential that the
// frame's documents have, and it is good for that module's files and, through the page, routes.
type frame struct {
	hash               string // of the ticket
	session            session
	endpoint, module   string
	bundle, export, id string
	view               string      // of the bundle; a view reads the route of its name
	shown              bool        // the document was served
	app                *app        // nil: a view of an endpoint
	acts               atomic.Bool // a person has confirmed that it may make dangerous calls
	expires            time.Time
	calls              *rate.Limiter
}

type frames struct {
	mu   sync.Mutex
	list []*frame
}

func (f *frames) add(one *frame, now time.Time) (value string) {
	value = ids.Hex("", 16)
	one.hash, one.expires, one.calls = secret.Hash(value), now.Add(frameTTL), rate.NewLimiter(frameRate, frameRate)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = slices.DeleteFunc(f.list, func(old *frame) bool { return !now.Before(old.expires) })
	if len(f.list) >= maxFrames {
		f.list = slices.Delete(f.list, 0, 1)
	}
	f.list = append(f.list, one)
	return value
}

// extend lets a frame live on while its page uses it.
func (f *frames) extend(one *frame, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	one.expires = now.Add(frameTTL)
}

// find returns the frame of a ticket. With document, it is used up for the document. Error: not_found,
// reason frame_closed.
func (f *frames) find(value string, now time.Time, document bool) (*frame, error) {
	hash := secret.Hash(value)
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.list, func(one *frame) bool { return same(one.hash, hash) && now.Before(one.expires) })
	if i < 0 || document && f.list[i].shown {
		return nil, capability.Errorf(capability.CodeNotFound, "console.frame", "this view was closed").
			With("frame_closed", "open it again in the console")
	}
	f.list[i].shown = f.list[i].shown || document
	return f.list[i], nil
}

// answer is a response that is kept in memory. The API bounds its size.
type answer struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(code int) {
	a.code = cmp.Or(a.code, code)
}

func (a *answer) Write(data []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(data)
}

// ask calls the API as a person, the way the page does.
func (s *Service) ask(r *http.Request, who capability.Principal, method, target string, body []byte) *answer {
	inner, err := http.NewRequestWithContext(httpapi.WithPrincipal(r.Context(), who), method, target, bytes.NewReader(body))
	out := &answer{header: make(http.Header)}
	if err != nil {
		httpapi.WriteError(out, capability.Wrap(capability.CodeInvalidInput, "console", "the path cannot be used", err))
		return out
	}
	inner.RequestURI, inner.RemoteAddr, inner.Host = target, r.RemoteAddr, r.Host
	if len(body) > 0 {
		inner.Header.Set("Content-Type", "application/json")
	}
	s.api.ServeHTTP(out, inner)
	return out
}

// contributed is what a module offers to a front end: a view, a widget or a navigation tab.
type contributed struct{ ID, Module, Endpoint, BundlePath, BundleURL, ComponentExport string }

// contributed lists what a person may see of one kind (views, widgets, nav) and module.
func (s *Service) contributed(r *http.Request, who capability.Principal, kind, module string) ([]contributed, error) {
	got := s.ask(r, who, http.MethodGet, "/api/v1/"+kind, nil)
	var listed map[string][]contributed
	if got.code != http.StatusOK || json.Unmarshal(got.body.Bytes(), &listed) != nil {
		return nil, capability.Errorf(capability.CodeUnavailable, "console.frame", "the %s cannot be listed", kind)
	}
	return slices.DeleteFunc(listed[kind], func(c contributed) bool { return c.Module != module }), nil
}

// newFrame answers with the address of a frame for one view, widget or navigation tab.
func (s *Service) newFrame(w http.ResponseWriter, r *http.Request) error {
	one, t, err := s.session(r)
	if err != nil {
		return err
	}
	var req struct {
		Module string `json:"module"`
		View   string `json:"view"`
		Widget string `json:"widget"` // instead of view
		Tab    string `json:"tab"`    // instead of view, of the navigation
	}
	if err := httpapi.Decode(w, r, &req); err != nil {
		return err
	}
	list, id := "views", req.View
	switch {
	case req.Widget != "":
		list, id = "widgets", req.Widget
	case req.Tab != "":
		list, id = "nav", req.Tab
	}
	views, err := s.contributed(r, t.Principal(), "views", req.Module)
	if err != nil {
		return err
	}
	shown, err := s.contributed(r, t.Principal(), list, req.Module)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(shown, func(v contributed) bool { return v.ID == id })
	j := slices.IndexFunc(views, func(v contributed) bool { return v.BundleURL != "" && v.ID == id })
	if j < 0 && list != "views" { // shown with the module's first bundle
		j = slices.IndexFunc(views, func(v contributed) bool { return v.BundleURL != "" })
	}
	if i < 0 || j < 0 {
		return capability.Errorf(capability.CodeNotFound, "console.frame", "module %s has nothing named %s that can be shown", req.Module, id)
	}
	value := s.frames.add(&frame{
		session: one, endpoint: views[j].Endpoint, module: req.Module, bundle: views[j].BundlePath,
		export: shown[i].ComponentExport, id: id, view: views[j].ID,
	}, time.Now())
	w.Header().Set("Cache-Control", "no-store")
	httpapi.WriteJSON(w, http.StatusCreated, map[string]any{"url": "/console/frames/" + value + "/", "ticket": value})
	return nil
}

// frameDocument has the verbs title, import map, base, bundle, export, view and base, escaped for HTML.
const frameDocument = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>%s</title>
<script type="importmap">%s</script>
<link rel="stylesheet" href="%sframe.css"></head>
<body data-bundle="%s" data-export="%s" data-view="%s"><div id="root"></div>
<script type="module" src="%sframe.js"></script></body></html>
`

// showFrame serves the document of a frame, once. Its policy gives it an origin of its own and
// no connections; it loads files of its ticket's folder only.
func (s *Service) showFrame(w http.ResponseWriter, r *http.Request) {
	value := r.PathValue("ticket")
	one, err := s.frames.find(value, time.Now(), true)
	if err != nil {
		httpapi.WriteError(w, err)
		return
	}
	if one.app != nil {
		showApp(w, one.app)
		return
	}
	scheme := "http"
	if s.secure || r.TLS != nil {
		scheme = "https"
	}
	base := scheme + "://" + r.Host + "/console/frames/" + value + "/"
	imports, err := json.Marshal(map[string]any{"imports": map[string]string{
		"react": base + "react.js", "react-at-runtime": base + "react.js", "react/jsx-runtime": base + "react.js",
		"react-dom": base + "react.js", "react-dom/client": base + "react.js",
	}})
	if err != nil {
		httpapi.WriteError(w, err)
		return
	}
	sum := sha256.Sum256(imports)
	h := w.Header()
	h.Set("Content-Security-Policy", "sandbox allow-scripts; default-src 'none'; script-src "+base+" 'sha256-"+
		base64.StdEncoding.EncodeToString(sum[:])+
		"'; style-src "+base+" 'unsafe-inline'; img-src data: blob: "+base+"; connect-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Type", "text/html; charset=utf-8")
	bundle := base + "files" + (&url.URL{Path: path.Clean("/" + one.bundle)}).EscapedPath()
	at, id, view := html.EscapeString(base), html.EscapeString(one.id), html.EscapeString(one.view)
	// The map stays as it is, because the policy holds its hash; it holds our own addresses.
	_, _ = fmt.Fprintf(w, frameDocument, id, imports, at, html.EscapeString(bundle), html.EscapeString(one.export), view, at)
}

// frameFile serves the scripts of frames and the files of the ticket's module. Modules are fetched
// from an opaque origin, so any origin may read them: the ticket is the authority.
func (s *Service) frameFile(w http.ResponseWriter, r *http.Request) {
	one, err := s.frames.find(r.PathValue("ticket"), time.Now(), false)
	if err != nil {
		httpapi.WriteError(w, err)
		return
	}
	w.Header().Set("Access-Control-Allow-Origin", "*")
	// A page of an endpoint that is opened by its address must not run with the console's origin.
	w.Header().Set("Content-Security-Policy", "sandbox; default-src 'none'")
	name := r.PathValue("name")
	asset, ok := strings.CutPrefix(name, "files/")
	if !ok || one.app != nil {
		if f, ok := s.files.all["frame/"+name]; ok {
			w.Header().Set("Content-Type", f.kind)
			w.Header().Set("Cache-Control", "no-store")
			_, _ = w.Write(f.data)
			return
		}
		httpapi.WriteError(w, capability.Errorf(capability.CodeNotFound, "console.frame", "the view has no file %s", name))
		return
	}
	t, standing := s.cfg.Tokens.StandingToken(one.session.Token)
	if !standing {
		httpapi.WriteError(w, ended())
		return
	}
	target := "/api/capability-router/assets/" + url.PathEscape(one.endpoint) + "/" + url.PathEscape(one.module) +
		(&url.URL{Path: path.Clean("/" + asset)}).EscapedPath()
	got := s.ask(r, t.Principal(), http.MethodGet, target, nil)
	for _, key := range []string{"Content-Type", "ETag", "Content-Length"} {
		if v := got.header.Get(key); v != "" {
			w.Header().Set(key, v)
		}
	}
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(got.code)
	_, _ = w.Write(got.body.Bytes())
}

// frameCall calls a route of the frame's module as the person who looks at it. The page sends what
// the view asked for; the module is that of the ticket. One code is enough for all dangerous calls of
// a frame, because a view cannot ask for a code at each click.
func (s *Service) frameCall(w http.ResponseWriter, r *http.Request) error {
	viewer, t, err := s.session(r)
	if err != nil {
		return err
	}
	one, err := s.frames.find(r.PathValue("ticket"), time.Now(), false)
	if err != nil {
		return err
	}
	if one.session.ID != viewer.ID {
		return capability.Errorf(capability.CodeDenied, "console.frame", "this view belongs to another browser").
			With("console_token_required", "open it again")
	}
	s.frames.extend(one, time.Now())
	if !one.calls.Allow() {
		return capability.Errorf(capability.CodeOverloaded, "console.frame", "the view sends more than %d messages a second", frameRate)
	}
	body, err := httpapi.ReadBody(w, r, frameMessage)
	if err != nil {
		return err
	}
	if ask := policy.VerifierOf(r.Context()); ask != nil {
		var verify policy.Verifier
		if !one.acts.Load() {
			verify = func(principal, what string) error {
				kind := "view "
				if one.app != nil {
					kind = "page "
				}
				err := ask(principal, "let the "+kind+text.Visible(one.id)+" of "+text.Visible(one.module)+" act while it is open; first: "+what)
				if err == nil {
					one.acts.Store(true)
				}
				return err
			}
		}
		r = r.WithContext(policy.WithVerifier(r.Context(), verify))
	}
	if one.app != nil {
		return s.appCall(w, r, t.Principal(), one.app, body)
	}
	var req struct {
		Method string          `json:"method"`
		Path   string          `json:"path"`
		Body   json.RawMessage `json:"body"`
	}
	if err := httpapi.DecodeStrict(body, &req); err != nil {
		return err
	}
	to, err := url.Parse(req.Path)
	if err != nil || to.IsAbs() || to.Host != "" || !strings.HasPrefix(to.Path, "/") || slices.Contains(strings.Split(to.Path, "/"), "..") {
		return capability.Errorf(capability.CodeInvalidInput, "console.frame", "%.80q is not a path of the module", req.Path)
	}
	switch req.Method {
	case http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
	default:
		return capability.Errorf(capability.CodeInvalidInput, "console.frame", "%.20q is not a method of routes", req.Method)
	}
	target := "/api/modules/" + url.PathEscape(one.module) + to.EscapedPath()
	if to.RawQuery != "" {
		target += "?" + to.RawQuery
	}
	got := s.ask(r, t.Principal(), req.Method, target, req.Body)
	if got.body.Len() == 0 { // a route may answer with nothing; the view gets JSON
		_, _ = got.Write([]byte("null"))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(got.code)
	_, _ = w.Write(got.body.Bytes())
	return nil
}
