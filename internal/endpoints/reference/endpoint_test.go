package reference

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/protocol/router"
	"github.com/junctor-run/junctor/secret"
)

// remote is an endpoint behind HTTP and a client of it.
type remote struct {
	*router.Client
	t    *testing.T
	root string
	url  string
}

func start(t *testing.T) remote {
	t.Helper()
	root := t.TempDir()
	e, err := New(Config{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(router.Handler(router.RequireToken(secret.New("t0ken"), e), router.HandlerOptions{}))
	c, err := router.NewClient(router.ClientConfig{ID: "ref", BaseURL: srv.URL, Token: secret.New("t0ken")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.CloseIdle()
		srv.Close()
		_ = e.Close()
	})
	return remote{c, t, root, srv.URL}
}

// call invokes and decodes; params are the JSON members after moduleId.
func (r remote) call(method, module, members string) map[string]any {
	r.t.Helper()
	out, err := r.try(method, module, members)
	if err != nil {
		r.t.Fatalf("%s %s: %v", method, members, err)
	}
	return out
}

func (r remote) try(method, module, members string) (map[string]any, error) {
	r.t.Helper()
	if module != "" {
		members = strings.TrimSuffix(fmt.Sprintf(`"moduleId":%q,%s`, module, members), ",")
	}
	raw, err := r.Invoke(r.t.Context(), method, json.RawMessage("{"+members+"}"))
	if err != nil {
		return nil, err
	}
	var out map[string]any
	if err := jsonx.Unmarshal(raw, &out); err != nil {
		r.t.Fatal(err)
	}
	return out, nil
}

// at reads a nested member: "data.note.id".
func at(v any, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[name]
	}
	return v
}

func codeOf(t *testing.T, err error) capability.Code {
	t.Helper()
	e, ok := errors.AsType[*router.Error](err)
	if !ok {
		t.Fatalf("%T: %v; want ok = true", err, err)
	}
	return e.ToCapability("").Code
}

// Every method of the protocol is tried on every item that the manifests
// declare for it. A method or surface that is new in the table fails here.
func TestEveryMethodServesEveryDeclaredItem(t *testing.T) {
	r := start(t)
	modules, err := r.Modules(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(modules) != 2 || modules[0].ID != deviceID || modules[1].ID != notesID || modules[0].CapabilityEndpointID != "ref" {
		t.Fatalf(`%+v; want len(modules) = 2, modules[0].ID = %v, modules[1].ID = %v, modules[0].CapabilityEndpointID = "ref"`,
			modules, deviceID, notesID)
	}
	if err := os.WriteFile(filepath.Join(r.root, "a.txt"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	low := map[string]string{
		"fs.list": ``, "fs.readText": `"path":"a.txt"`, "fs.writeText": `"path":"b.txt","text":"y"`, "model.status": ``,
	}
	absent := map[string]string{
		"pty.command.run": `"command":"true"`, "git.status": `"cwd":"."`, "git.diff": `"cwd":"."`, "git.command.run": `"cwd":".","args":[]`,
	}
	for _, m := range router.Methods() {
		t.Run(m.Name, func(t *testing.T) {
			r := r
			r.t = t
			if params, ok := absent[m.Name]; ok {
				_, err := r.try(m.Name, "", params)
				if codeOf(t, err) != capability.CodeUnavailable {
					t.Errorf("%v; want codeOf(t, err) = capability.CodeUnavailable", err)
				}
				return
			}
			if params, ok := low[m.Name]; ok {
				r.call(m.Name, "", params)
				return
			}
			if m.Name == "plugin.modules.list" {
				return
			}
			tried := 0
			for _, mod := range modules {
				items, known := declared(mod, m.Surface)
				if !known {
					t.Fatalf("nothing is known of surface %q; want known = true", m.Surface)
				}
				for _, members := range items {
					r.call(m.Name, mod.ID, members)
					tried++
				}
			}
			if tried == 0 {
				t.Errorf("no module offers %s; want tried other than 0", m.Surface)
			}
			_, err := r.try(m.Name, "nobody", firstItem(modules, m.Surface))
			if codeOf(t, err) != capability.CodeUnknownCapability {
				t.Errorf("unknown module: %v; want codeOf(t, err) = capability.CodeUnknownCapability", err)
			}
			if m.Surface == "route" || m.Surface == "view" || strings.HasSuffix(m.Target, "hook") {
				return
			}
			_, err = r.try(m.Name, deviceID, fmt.Sprintf(`%q:"nothing","method":"x"`, m.Target))
			if codeOf(t, err) != capability.CodeUnknownCapability {
				t.Errorf("unknown item: %v; want codeOf(t, err) = capability.CodeUnknownCapability", err)
			}
		})
	}
}

// declared returns the parameters that reach each item of a surface.
func declared(m router.Module, surface string) (items []string, known bool) {
	add := func(format string, args ...any) { items = append(items, fmt.Sprintf(format, args...)) }
	switch surface {
	case "action":
		for _, a := range m.Actions {
			add(`"action":%q,"content":{"text":"hello device"}`, a.Name)
		}
	case "provider":
		for _, p := range m.Providers {
			add(`"provider":%q,"state":{}`, p.Name)
		}
	case "route":
		for _, x := range m.Routes {
			add(`"method":%q,"path":%q,"body":{"conformance":true},"headers":{}`, x.Method, strings.ReplaceAll(x.Path, ":id", "n1"))
		}
	case "view":
		for _, v := range m.Views {
			add(`"path":%q`, v.BundlePath)
		}
	case "evaluator":
		for _, e := range m.Evaluators {
			add(`"evaluator":%q,"message":{"text":"x"},"state":{},"options":{}`, e.Name)
		}
	case "responseHandlerEvaluator":
		for _, e := range m.ResponseHandlerEvaluators {
			add(`"evaluator":%q,"context":{"conformance":true}`, e.Name)
		}
	case "responseHandlerFieldEvaluator":
		for _, e := range m.ResponseHandlerFieldEvaluators {
			add(`"field":%q,"context":{"conformance":true}`, e.Name)
		}
	case "lifecycle":
		for _, h := range m.Lifecycle.Hooks {
			add(`"hook":%q,"context":{"conformance":true}`, h)
		}
	case "event":
		for _, e := range m.Events {
			add(`"eventName":%q,"payload":{"conformance":true}`, e.EventName)
		}
	case "model":
		for _, x := range m.Models {
			add(`"modelType":%q,"params":{"prompt":"say it"}`, x.ModelType)
		}
	case "service":
		// The first method of a service takes any object.
		for _, s := range m.Services {
			add(`"serviceType":%q,"method":%q,"args":[{"conformance":true}]`, s.ServiceType, s.Methods[0])
		}
	case "appBridge":
		if m.AppBridge != nil {
			for _, h := range m.AppBridge.Hooks {
				add(`"hook":%q,"context":{"method":"GET","pathname":"/x","path":"/x","query":{},"headers":{}}`, h)
			}
		}
	default:
		return nil, false
	}
	return items, true
}

func firstItem(modules []router.Module, surface string) string {
	for _, m := range modules {
		if items, _ := declared(m, surface); len(items) > 0 {
			return items[0]
		}
	}
	return ""
}

func TestManifestsOfferEverySurfaceThatIsCounted(t *testing.T) {
	modules, err := start(t).Modules(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var all router.Module
	for _, m := range modules {
		all.Widgets = append(all.Widgets, m.Widgets...)
		all.ComponentTypes = append(all.ComponentTypes, m.ComponentTypes...)
		all.Views = append(all.Views, m.Views...)
		if m.App != nil {
			all.App = m.App
		}
	}
	if len(all.Widgets) == 0 || len(all.ComponentTypes) == 0 || all.App == nil || len(all.App.NavTabs) == 0 || modules[0].Priority == nil {
		t.Errorf("%+v; want len(all.Widgets) other than 0, len(all.ComponentTypes) other than 0, all.App not nil, "+
			"len(all.App.NavTabs) other than 0, modules[0].Priority not nil", all)
	}
}

func TestTheBundleIsTheSameOnBothPaths(t *testing.T) {
	r := start(t)
	modules, err := r.Modules(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	view := modules[1].Views[0]
	a, err := r.Asset(t.Context(), notesID, "assets/field-notes.js") // the slash is optional
	if err != nil || a.Integrity != view.Integrity || a.ContentType != view.ContentType || !router.MatchesIntegrity(a.Body, view.Integrity) {
		t.Fatalf("%+v, %v; want no error, a.Integrity = %v, a.ContentType = %v, router.MatchesIntegrity(a.Body, view.Integrity)",
			a, err, view.Integrity, view.ContentType)
	}
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+router.PathAssets+notesID+view.BundlePath, nil)
	req.Header.Set("Authorization", "bearer t0ken")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 || resp.Header.Get(router.HeaderIntegrity) != view.Integrity || resp.ContentLength != int64(len(a.Body)) {
		t.Errorf("%d %v; want resp.StatusCode = 200, resp.Header.Get(router.HeaderIntegrity) = %v, resp.ContentLength = int64(len(a.Body))",
			resp.StatusCode, resp.Header, view.Integrity)
	}
	if _, err := r.Asset(t.Context(), notesID, "/assets/none.js"); codeOf(t, err) != capability.CodeNotFound {
		t.Errorf("%v; want codeOf(t, err) = capability.CodeNotFound", err)
	}
}

func TestABundleFileReplacesTheEmbeddedOne(t *testing.T) {
	file := filepath.Join(t.TempDir(), "own.js")
	if err := os.WriteFile(file, []byte("export default 7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	e, err := New(Config{BundleFile: file})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := e.Invoke(t.Context(), "plugin.asset.get", json.RawMessage(`{"moduleId":"field-notes","path":"/assets/field-notes.js"}`))
	if err != nil {
		t.Fatal(err)
	}
	a, err := router.DecodeAsset(raw)
	if err != nil || string(a.Body) != "export default 7\n" {
		t.Errorf(`%s, %v; want no error, string(a.Body) = "export default 7\n"`, a.Body, err)
	}
	if av, _ := e.Availability(t.Context()); av.Capabilities.FS {
		t.Error("fs is offered without a root")
	}
	if _, err := New(Config{BundleFile: file + ".none"}); err == nil {
		t.Error("a missing bundle file is accepted; want an error")
	}
}

func TestConcurrentCallersLoseNothing(t *testing.T) {
	e, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	const callers, each = 8, 50
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range each {
				for _, p := range []string{
					`{"moduleId":"device-tools","action":"DEVICE_PING"}`,
					`{"moduleId":"field-notes","action":"NOTE_ADD","content":{"text":"x"}}`,
				} {
					if _, err := e.Invoke(context.Background(), "plugin.action.invoke", json.RawMessage(p)); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	raw, err := e.Invoke(t.Context(), "plugin.provider.get", json.RawMessage(`{"moduleId":"device-tools","provider":"DEVICE_STATUS"}`))
	if err != nil || !strings.Contains(string(raw), fmt.Sprintf(`"pings":%d`, callers*each)) {
		t.Errorf("%s, %v; want no error, string(raw) with fmt.Sprintf(`\"pings\":%%d`, callers*each)", raw, err)
	}
}
