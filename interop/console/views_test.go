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

const linkedView = `export function mount(element, {request}) {
  const requests = {"Read more": ["open", {url: "https://example.com/more"}], "Other view": ["navigate", {view: "mounted"}]};
  for (const [text, [kind, params]] of Object.entries(requests)) {
    const b = document.createElement("button");
    b.textContent = text;
    b.onclick = () => request(kind, params).then(() => element.append(" opened"), (e) => element.append(" " + e.message));
    element.append(b);
  }
}
`

// hostileView tries to leave its frame and reports each attempt that worked.
const hostileView = `export function mount(element, {call, request}) {
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
    for (const path of ["/api/v1/status", "/api/v1/tokens", "/api/v1/approvals", "/api/v1/invocations", "/api/v1/secrets", "/api/v1/policy",
        "/api/v1/audit", "/api/v1/grants", "/api/v1/nodes", "/api/v1/events", "/api/task-agents/coordinator/threads", "/console/session",
        "/api/modules/other/secret", "/healthz", "NEIGHBOUR/fetched", "https://example.com/"]) {
      try { await wait(fetch(path)); worked.push("fetch " + path); } catch {}
    }
    for (const src of ["/console/assets/main.js", "https://example.com/x.js"]) {
      try { await wait(import(src)); worked.push("import " + src); } catch {}
    }
    const opens = (o) => new Promise((yes, no) => { o.onopen = o.onmessage = yes; o.onerror = no; });
    for (const [name, f] of [["WebSocket", () => new WebSocket("ws://" + location.host + "/api/task-agents/console")],
        ["EventSource", () => new EventSource("/api/v1/events")], ["a worker", () => new Worker("data:text/javascript,postMessage(1)")]]) {
      try { await wait(opens(f())); worked.push(name); } catch {}
    }
    // What cannot be seen from here is counted by the neighbour.
    const frame = document.createElement("iframe"), form = document.createElement("form"), image = new Image();
    frame.src = "NEIGHBOUR/framed";
    form.action = "NEIGHBOUR/sent";
    image.src = "NEIGHBOUR/drawn";
    document.body.append(frame, form, image);
    form.submit();
    navigator.sendBeacon("NEIGHBOUR/beaconed", "x");
    for (const path of ["/../other/secret", "/..%2fother/secret", "//other/secret", "http://127.0.0.1/hello", "/%2e%2e/other/secret"]) {
      try { await call("GET", path); worked.push("route " + path); } catch {}
    }
    for (const [kind, params] of [["open", {url: "https://example.com/"}], ["navigate", {view: "mounted"}]]) {
      try { await wait(request(kind, params)); worked.push(kind + " without a click"); } catch (e) {
        if (e.message === "silent") worked.push(kind + " asked without a click");
      }
    }
    let refused = 0;
    await Promise.all(Array.from({length: 10000}, () => call("GET", "/hello").catch(() => refused++)));
    if (refused < 9000) worked.push(10000 - refused + " of 10,000 messages at once");
    await new Promise((done) => setTimeout(done, 1500)); // another second of messages
    await call("POST", "/report", {worked});
    element.textContent = "done";
  })();
}
`

// leavingView puts another page into its own frame.
const leavingView = `export function mount() { location.href = "NEIGHBOUR/left"; }`

// fakeCloud makes agents as a cloud does, whose endpoint is ready at the second look.
type fakeCloud struct {
	endpoint, token string
	asked           []string
	strangers       int
}

func (c *fakeCloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer key-at-the-cloud" {
		c.strangers++
	}
	c.asked = append(c.asked, r.Method+" "+r.URL.Path)
	job := map[string]any{"status": "pending"}
	if len(c.asked) == 4 {
		job = map[string]any{
			"status": "completed", "result": map[string]string{"capabilityRouterUrl": c.endpoint, "capabilityRouterToken": c.token},
		}
	}
	answer := map[string]any{
		"POST /api/v1/eliza/agents":              map[string]any{"data": map[string]string{"id": "a1"}},
		"POST /api/v1/eliza/agents/a1/provision": map[string]string{"jobId": "j1"},
		"GET /api/v1/jobs/j1":                    map[string]any{"data": job},
	}[c.asked[len(c.asked)-1]]
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

func TestViewsOfEndpointsStayInTheirFrames(t *testing.T) {
	program := build(t)
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
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
	// Another server on this machine, to which a view may send nothing.
	var visits atomic.Int32
	neighbour := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { visits.Add(1) }))
	defer neighbour.Close()
	beside := func(view string) []byte { return []byte(strings.ReplaceAll(view, "NEIGHBOUR", neighbour.URL)) }
	endpoint, err := host.NewEndpoint(
		host.Module{
			ID: "plain", Name: "@test/plain",
			Views: []host.View{
				{ID: "mounted", Label: "Mounted", Bundle: []byte(mountedView)},
				{ID: "react", Label: "React", Bundle: []byte(reactView)},
				{ID: "linked", Label: "Linked", Bundle: []byte(linkedView)},
				{ID: "hostile", Label: "Hostile", Bundle: beside(hostileView)},
				{ID: "leaving", Label: "Leaving", Bundle: beside(leavingView)},
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

	airborne, err := host.NewEndpoint(host.Module{
		ID: "airborne", Name: "@test/airborne",
		Views:  []host.View{{ID: "airborne", Label: "Airborne", Bundle: []byte(strings.ReplaceAll(mountedView, "/hello", "/airborne"))}},
		Routes: []host.Route{hello("/airborne", "hello from the cloud")},
	})
	if err != nil {
		t.Fatalf("an endpoint: %v", err)
	}
	above := httptest.NewServer(airborne.Handler(secret.New("token-of-above")))
	defer above.Close()
	cloud := &fakeCloud{endpoint: above.URL, token: "token-of-above"}
	sky := httptest.NewServer(cloud)
	defer sky.Close()

	home := filepath.Join(t.TempDir(), "home")
	url, server := serve(ctx, t, program, home, "127.0.0.1:0")
	admin := dial(t, url, home, "admin")
	var link struct{ URL string }
	if err := admin.Do(ctx, http.MethodPost, "/api/v1/console/codes", nil, &link); err != nil {
		t.Fatal(err)
	}
	answers := filepath.Join(t.TempDir(), "answer")
	driver := exec.CommandContext(ctx, "node", "views.mjs", url, link.URL, far.URL, answers, sky.URL)
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
		Cloud                         struct {
			Cloud struct{ Name, AuthToken, CloudAPIBase string }
		}
		CloudConnected string
		Sent           struct {
			Provider string
			Endpoint struct{ ID, BaseURL string }
		}
		Pages  int
		Again  int
		Needs  string
		Slots  []string
		Before []string // errors of the page before the hostile view
		Left   string   // the directive that stopped the view that leaves
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
	if n := visits.Load(); n != 0 || seen.Left != "frame-src" {
		t.Errorf("another server got %d requests of views, and %q stopped a view that leaves; want 0, frame-src", n, seen.Left)
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
	if c := seen.Cloud.Cloud; c.Name != "above" || c.AuthToken != "key-at-the-cloud" || c.CloudAPIBase != sky.URL ||
		!strings.Contains(seen.CloudConnected, "@test/airborne") {
		t.Errorf("connecting by a cloud: sent %+v, answered %q; want the name, the token and the address, and the module", c, seen.CloudConnected)
	}
	if want := []string{
		"POST /api/v1/eliza/agents", "POST /api/v1/eliza/agents/a1/provision", "GET /api/v1/jobs/j1", "GET /api/v1/jobs/j1",
	}; !slices.Equal(cloud.asked, want) || cloud.strangers > 0 {
		t.Errorf("the cloud was asked %q, %d times without its token; want %q", cloud.asked, cloud.strangers, want)
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
