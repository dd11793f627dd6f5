package console

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/junctor-run/junctor/host"
	"github.com/junctor-run/junctor/secret"
)

const mountedView = `export function mount(element, {load}) {
  load("/hello").then((v) => { element.textContent = "mounted: " + v.text; });
}
export default mount;
`

const reactView = `import React, {useEffect, useState} from "react";
import {jsx, jsxs} from "react/jsx-runtime";
export default function View({load}) {
  const [text, setText] = useState("");
  const [n, setN] = useState(0);
  useEffect(() => { load("/hello").then((v) => setText(v.text)); }, []);
  return jsxs("div", {children: [jsx("p", {children: "React says " + text}),
    jsx("button", {onClick: () => setN(n + 1), children: "clicked " + n})]});
}
`

// hostileView tries to leave its frame and reports each attempt that worked.
const hostileView = `export function mount(element, {call}) {
  const worked = [];
  const tries = {
    "parent document": () => parent.document.title,
    "top document": () => top.document.title,
    "cookies": () => document.cookie,
    "localStorage": () => localStorage.length,
    "sessionStorage": () => sessionStorage.length,
    "shared worker": () => new SharedWorker("/console/assets/worker.js"),
    "top navigation": () => { top.location.href = "https://example.com/"; },
    "a window": () => { if (!open("https://example.com/")) throw new Error("blocked"); },
    "WebRTC": () => new RTCPeerConnection(),
    "WebRTC of a nested frame": () => {
      const f = document.createElement("iframe");
      document.body.append(f);
      return new f.contentWindow.RTCPeerConnection();
    },
    "eval": () => eval("1"),
  };
  const wait = (p) => Promise.race([p, new Promise((_, no) => setTimeout(() => no(new Error("silent")), 3000))]);
  (async () => {
    for (const [name, f] of Object.entries(tries)) {
      try { f(); worked.push(name); } catch {}
    }
    for (const path of ["/api/v1/status", "/api/v1/tokens", "/console/session",
        "/api/modules/other/secret", "/healthz", "https://example.com/"]) {
      try { await wait(fetch(path)); worked.push("fetch " + path); } catch {}
    }
    for (const src of ["/console/assets/main.js", "https://example.com/x.js"]) {
      try { await wait(import(src)); worked.push("import " + src); } catch {}
    }
    for (const path of ["/../other/secret", "/..%2fother/secret", "//other/secret", "http://127.0.0.1/hello", "/%2e%2e/other/secret"]) {
      try { await call("GET", path); worked.push("route " + path); } catch {}
    }
    let refused = 0;
    await Promise.all(Array.from({length: 400}, () => call("GET", "/hello").catch(() => refused++)));
    if (refused === 0) worked.push("400 messages at once");
    await new Promise((done) => setTimeout(done, 1500)); // another second of messages
    await call("POST", "/report", {worked});
    element.textContent = "done";
  })();
}
`

func TestViewsOfEndpointsStayInTheirFrames(t *testing.T) {
	program := build(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()

	var mu sync.Mutex
	var report struct{ Worked []string }
	reported, others := 0, 0
	hello := func(path, text string) host.Route {
		return host.Route{Method: "GET", Path: path, Handle: func(context.Context, host.RouteRequest) (host.RouteResponse, error) {
			mu.Lock()
			defer mu.Unlock()
			if text == "secret" {
				others++
			}
			return host.RouteResponse{Body: map[string]string{"text": text}}, nil
		}}
	}
	endpoint, err := host.NewEndpoint(
		host.Module{
			ID: "plain", Name: "@test/plain",
			Views: []host.View{
				{ID: "mounted", Label: "Mounted", Bundle: []byte(mountedView)},
				{ID: "react", Label: "React", Bundle: []byte(reactView)},
				{ID: "hostile", Label: "Hostile", Bundle: []byte(hostileView)},
				{ID: "needy", Label: "Needy", Bundle: []byte(`import {Sun} from "lucide-react"; export default Sun;`)},
			},
			Assets: []host.Asset{{
				Path: "/assets/page.html", ContentType: "text/html", Body: []byte("<title>quiet</title><script>document.title = 'ran'</script>"),
			}},
			Routes: []host.Route{hello("/hello", "hello from the route"), {
				Method: "POST", Path: "/report", Handle: func(_ context.Context, r host.RouteRequest) (host.RouteResponse, error) {
					mu.Lock()
					defer mu.Unlock()
					reported++
					return host.RouteResponse{}, json.Unmarshal(r.Body, &report)
				},
			}},
		},
		host.Module{
			ID: "desk", Name: "@test/desk",
			Views: []host.View{{ID: "main", Label: "Main", Bundle: []byte(strings.ReplaceAll(mountedView, `"/hello"`, ""))}},
			Widgets: []host.Widget{
				{ID: "side", Slot: host.SlotChatSidebar, Label: "Side", ComponentExport: "mount"},
				{ID: "elsewhere", Slot: host.SlotCharacter, Label: "Elsewhere", ComponentExport: "mount"},
			},
			App:    &host.App{DisplayName: "Plain", NavTabs: []host.NavTab{{ID: "desk", Label: "Desk", Path: "/desk", ComponentExport: "mount"}}},
			Routes: []host.Route{hello("/main", "hello from the desk")},
		},
		host.Module{ID: "other", Name: "@test/other", Routes: []host.Route{hello("/secret", "secret")}},
	)
	if err != nil {
		t.Fatal(err)
	}
	var bundles atomic.Int32 // requests with the endpoint's token
	handler := endpoint.Handler(secret.New("token-of-far"))
	far := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			bundles.Add(1)
		}
		handler.ServeHTTP(w, r)
	}))
	defer far.Close()

	home := filepath.Join(t.TempDir(), "home")
	url, server := serve(ctx, t, program, home, "127.0.0.1:0")
	admin := dial(t, url, home, "admin")
	var link struct{ URL string }
	if err := admin.Do(ctx, http.MethodPost, "/api/v1/console/codes", nil, &link); err != nil {
		t.Fatal(err)
	}
	answers := filepath.Join(t.TempDir(), "answer")
	driver := exec.CommandContext(ctx, "node", "views.mjs", url, link.URL, far.URL, answers)
	driver.Stderr = os.Stderr
	token, err := os.ReadFile(filepath.Join(home, "run", "admin.token"))
	if err != nil {
		t.Fatalf("reading the token: %v", err)
	}
	driver.Env = append(os.Environ(), "ADMIN_TOKEN="+strings.TrimSpace(string(token)))
	lines, err := driver.StdoutPipe()
	if err == nil {
		err = driver.Start()
	}
	if err != nil {
		t.Fatalf("starting the browser's script: %v", err)
	}
	var answer []byte
	scan := bufio.NewScanner(lines)
	for scan.Scan() {
		if scan.Text() != "restart" {
			answer = slices.Clone(scan.Bytes())
			continue
		}
		_ = server.Process.Signal(os.Interrupt)
		_ = server.Wait()
		_, server = serve(ctx, t, program, home, strings.TrimPrefix(url, "http://"))
		if err := os.WriteFile(answers+".restart", nil, 0o600); err != nil {
			t.Fatalf("answering the script: %v", err)
		}
	}
	if err := driver.Wait(); err != nil {
		t.Fatalf("the browser's script: %v", err)
	}
	var seen struct {
		URL, Opened, Asked, Connected string
		Sent                          struct {
			Provider string
			Endpoint struct{ ID, BaseURL string }
		}
		Pages  int
		Again  int
		Needs  string
		Slots  []string
		Before []string // errors of the page before the hostile view
	}
	if err := json.Unmarshal(answer, &seen); err != nil {
		t.Fatalf("%v in %s", err, answer)
	}
	mu.Lock()
	defer mu.Unlock()
	if !strings.Contains(seen.Needs, "imports lucide-react, which the console does not offer") {
		t.Errorf("a view that needs more: got %q, want the name of what it imports", seen.Needs)
	}
	if got := strings.Join(seen.Slots, ", "); got != "Elsewhere not shown here, Side on the page Chat" || len(seen.Before) > 0 {
		t.Errorf("the widgets: got %q and the errors %q; want where each is shown, and none", got, seen.Before)
	}
	if bundles.Load() == 0 {
		t.Error("got 0 requests to the endpoint with its token, want some")
	}
	if reported != 1 || len(report.Worked) > 0 {
		t.Errorf("got %d reports, what worked: %q, want 1 report and nothing", reported, report.Worked)
	}
	if others != 0 {
		t.Errorf("the route of another module was called %d times, want 0", others)
	}
	if !strings.HasSuffix(seen.URL, "/console/views/plain/hostile") || seen.Pages != 1 {
		t.Errorf("after the hostile view: %d pages at %s, want one at the view's address", seen.Pages, seen.URL)
	}
	if s := seen.Sent; s.Provider != "home-machine" || s.Endpoint.ID != "far" || s.Endpoint.BaseURL != far.URL ||
		!strings.Contains(seen.Connected, "@test/plain") {
		t.Errorf("connecting: sent %+v, answered %q; want the endpoint far of home-machine, and its modules", s, seen.Connected)
	}
	if !strings.Contains(seen.Asked, "let the view hostile of plain act while it is open") {
		t.Errorf("the dialog of the view's first change: got %q, want the name of the view", seen.Asked)
	}
	if seen.Opened != "quiet" {
		t.Errorf("a page of the module ran a script: title %q, want quiet", seen.Opened)
	}
	if seen.Again != http.StatusNotFound {
		t.Errorf("the frame's document a second time: status %d, want 404", seen.Again)
	}
}
