package api_test

import (
	"compress/gzip"
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/command"
	"github.com/junctor-run/junctor/internal/extensions/exec/api"
	"github.com/junctor-run/junctor/internal/platform/sandbox/egress"
	"github.com/junctor-run/junctor/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// names resolves as it is told, one answer after the other; the last one stays.
type names struct {
	mu      sync.Mutex
	answers map[string][]string
	asked   []string
}

func (n *names) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked = append(n.asked, host)
	list := n.answers[host]
	if len(list) == 0 {
		return nil, fmt.Errorf("no such host")
	}
	if len(list) > 1 {
		n.answers[host] = list[1:]
	}
	return []netip.Addr{netip.MustParseAddr(list[0])}, nil
}

type rig struct {
	*httptest.Server
	port   string
	names  *names
	client *api.Client
	mu     sync.Mutex
	asked  []*http.Request
	bodies []string
	heard  []string
}

func start(t *testing.T, tls bool, answer func(n int, w http.ResponseWriter, r *http.Request)) *rig {
	t.Helper()
	g := &rig{names: &names{answers: map[string][]string{
		"api.test": {"127.0.0.1"}, "other.test": {"127.0.0.1"},
		"example.com": {"127.0.0.1"},
	}}}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		g.mu.Lock()
		g.asked, g.bodies = append(g.asked, r), append(g.bodies, string(body))
		n := len(g.asked)
		g.mu.Unlock()
		answer(n, w, r)
	})
	if tls {
		g.Server = httptest.NewTLSServer(handler)
	} else {
		g.Server = httptest.NewServer(handler)
	}
	t.Cleanup(g.Close)
	u, _ := url.Parse(g.URL)
	g.port = u.Port()
	g.client = api.New(api.Config{
		Resolver: g.names,
		Wait:     func(ctx context.Context, _ time.Duration) error { return ctx.Err() },
		OnDecision: func(extension string, d egress.Decision) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.heard = append(g.heard, extension+" "+d.Event()+" "+d.Host)
		},
		Transport: func(tr *http.Transport) {
			if tls {
				pool := x509.NewCertPool()
				pool.AddCert(g.Certificate())
				tr.TLSClientConfig = g.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
				tr.TLSClientConfig.RootCAs = pool
			}
		},
	})
	return g
}

func (g *rig) policy() egress.Policy {
	return egress.Policy{
		Allow:     []string{"api.test:" + g.port, "other.test:" + g.port, "example.com:" + g.port},
		Addresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
	}
}

func (g *rig) request(path string) api.Request {
	return api.Request{Extension: "e.x", Policy: g.policy(), Method: "GET", URL: "http://api.test:" + g.port + path}
}

func code(err error) string {
	e := capability.AsError(err)
	if e == nil {
		return ""
	}
	return string(e.Code) + " " + e.Reason
}

func TestACallIsCarriedOutAndShown(t *testing.T) {
	t.Parallel()
	for _, tls := range []bool{false, true} {
		g := start(t, tls, func(_ int, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json; charset=utf-8")
			w.Header().Set("X-RateLimit-Remaining", "9")
			w.Header().Set("Set-Cookie", "sid=1")
			io.WriteString(w, `{"b":1,"echo":"s3cret/+","a":[]}`)
		})
		req := g.request("/v1/x?api_key=abc&q=1#frag")
		if tls {
			req.URL = "https://example.com:" + g.port + "/v1/x?api_key=abc&q=1"
		}
		req.Query = []string{"lang=é"}
		req.Header = http.Header{"X-Own": {"v"}}
		req.Auth = &api.Auth{Kind: "bearer", Secret: secret.New("s3cret/+")}
		got, err := g.client.Do(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		want := "HTTP 200 OK\ncontent-type: application/json; charset=utf-8\ncontent-length: 32\n\n{\n\t\"b\": 1,\n\t\"echo\": \"•••\",\n\t\"a\": []\n}\n"
		if d := cmp.Diff(strings.ReplaceAll(want, "\t", "  "), strings.ReplaceAll(got.Output, "\t", "  ")); d != "" {
			t.Errorf(`d = %q, want ""`, d)
		}
		address, _, _ := strings.Cut(req.URL, "?")
		meta := map[string]any{
			"status": 200, "url": address + "?api_key=***&lang=%C3%A9&q=1", "content_type": "application/json", "bytes": 32, "attempts": 1,
			"cached": false, "truncated": false, "rate": map[string]string{"remaining": "9"},
		}
		if d := cmp.Diff(meta, got.Metadata); d != "" {
			t.Errorf("diff (-want +got):\n%s", d)
		}
		r := g.asked[0]
		if r.Header.Get("Authorization") != "Bearer s3cret/+" || r.Header.Get("X-Own") != "v" || r.URL.Query().Get("lang") != "é" ||
			r.Header.Get("Proxy-Authorization") != "" {
			t.Errorf("header = %v, URL = %v; want the secret, X-Own, lang=é and no Proxy-Authorization", r.Header, r.URL)
		}
		host, _, _ := net.SplitHostPort(r.Host)
		if len(g.heard) != 1 || g.heard[0] != "e.x egress_allowed "+host {
			t.Errorf("len(g.heard) = %v, want 1; g.heard = %q, want g.heard[0] = %q", len(g.heard), g.heard, "e.x egress_allowed "+host)
		}
	}
}

func TestOnlyAllowedHostsAndAddressesAreReached(t *testing.T) {
	t.Parallel()
	g := start(t, false, func(_ int, w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "inside") })
	for name, change := range map[string]func(*api.Request){
		"another host":      func(r *api.Request) { r.URL = "http://evil.test:" + g.port },
		"another port":      func(r *api.Request) { r.URL = "http://api.test:1" },
		"over https too":    func(r *api.Request) { r.URL = "https://evil.test/" },
		"loopback":          func(r *api.Request) { r.Policy.Addresses = nil },
		"loopback by name":  func(r *api.Request) { r.URL = "http://localhost:" + g.port },
		"an address":        func(r *api.Request) { r.URL = g.URL },
		"any host, inside":  func(r *api.Request) { r.Policy = egress.Policy{Allow: []string{"*:" + g.port}} },
		"an old spelling":   func(r *api.Request) { r.URL = "http://127.1:" + g.port },
		"denied explicitly": func(r *api.Request) { r.Policy.Deny = []string{"api.test"} },
		"metadata": func(r *api.Request) {
			r.URL = "http://169.254.169.254/latest"
			r.Policy = egress.Policy{Allow: []string{"*"}, Addresses: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}}
		},
		"nothing allowed": func(r *api.Request) { r.Policy = egress.Policy{} },
	} {
		req := g.request("/")
		change(&req)
		if _, err := g.client.Do(t.Context(), req); code(err) != "denied security_violation" {
			t.Errorf(`%s: %v; want code(err) = "denied security_violation"`, name, err)
		}
	}
	if len(g.asked) != 0 {
		t.Errorf("the service was reached; got len(g.asked) = %v; want len(g.asked) = 0", len(g.asked))
	}
	g.names.answers["gone.test"] = nil
	req := g.request("/")
	req.URL, req.Policy.Allow = "http://gone.test", []string{"gone.test"}
	if _, err := g.client.Do(t.Context(), req); code(err) != "unavailable " {
		t.Errorf(`%v; want code(err) = "unavailable "`, err)
	}
}

func TestANameThatChangesItsMindGainsNothing(t *testing.T) {
	t.Parallel()
	g := start(t, false, func(_ int, w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "inside") })
	// First an address that may be reached, then the one inside: what was judged is
	// what is dialled, so the second answer is never asked for.
	g.names.answers["api.test"] = []string{"127.0.0.1", "127.0.0.2"}
	if got, err := g.client.Do(t.Context(), g.request("/")); err != nil || len(g.names.asked) != 1 {
		t.Errorf(`g.client.Do(t.Context(), g.request("/")): err = %v, want nil; len(g.names.asked) = %v, want 1; got = %+v; g.names.asked = %q`,
			err, len(g.names.asked), got, g.names.asked)
	}
	if _, err := g.client.Do(t.Context(), g.request("/")); code(err) != "denied security_violation" {
		t.Errorf(`%v; want code(err) = "denied security_violation"`, err)
	}
}

func TestRedirectsStayOnTheHost(t *testing.T) {
	t.Parallel()
	var g *rig
	g = start(t, false, func(_ int, w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/same":
			http.Redirect(w, r, "/end", http.StatusFound)
		case "/other":
			http.Redirect(w, r, "http://other.test:"+g.port+"/end", http.StatusFound)
		case "/inside":
			http.Redirect(w, r, g.URL+"/end", http.StatusTemporaryRedirect)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		default:
			io.WriteString(w, "the end")
		}
	})
	for path, want := range map[string]string{"/same": "200 <nil> 2", "/other": "302 true 1", "/inside": "307 true 1", "/loop": "302 true 6"} {
		g.asked = nil
		got, err := g.client.Do(t.Context(), g.request(path))
		if err != nil {
			t.Fatal(err)
		}
		if text := fmt.Sprint(got.Status, " ", got.Metadata["redirect_not_followed"], " ", len(g.asked)); text != want {
			t.Errorf("%s: %s, want %s", path, text, want)
		}
	}
}

func TestAttemptsAndFailures(t *testing.T) {
	t.Parallel()
	g := start(t, false, func(n int, w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/missing":
			http.Error(w, "no\x1b[2J such thing", http.StatusNotFound)
		case r.URL.Path == "/hang":
			<-r.Context().Done()
		case r.URL.Path == "/broken":
			panic(http.ErrAbortHandler)
		case n < 3:
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			io.WriteString(w, "ok")
		}
	})
	got, err := g.client.Do(t.Context(), g.request("/"))
	if err != nil || got.Metadata["attempts"] != 3 {
		t.Errorf(`err = %v, want nil; got.Metadata["attempts"] = %v, want 3`, err, got.Metadata["attempts"])
	}
	g.asked = nil
	post := g.request("/")
	post.Method, post.Body = "POST", []byte("x")
	if got, err := g.client.Do(t.Context(), post); code(err) != "failed execution_failed" || got.Status != 503 || len(g.asked) != 1 {
		t.Errorf("result = %+v, err = %v, %d requests; want status 503, failed execution_failed, one request", got, err, len(g.asked))
	}
	got, err = g.client.Do(t.Context(), g.request("/missing"))
	if code(err) != "failed execution_failed" || capability.AsError(err).Message != "the service answered 404 Not Found" ||
		!strings.HasSuffix(got.Output, "no[2J such thing\n") {
		t.Errorf("output = %q, err = %v; want the body's end and 404 Not Found", got.Output, err)
	}
	hang := g.request("/hang")
	hang.Timeout = 50 * time.Millisecond
	if _, err := g.client.Do(t.Context(), hang); capability.CodeOf(err) != capability.CodeTimeout {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeTimeout", err)
	}
	if _, err := g.client.Do(t.Context(), func() api.Request { r := g.request("/broken"); r.Method = "POST"; return r }()); err == nil {
		t.Error("a broken connection is an answer; want an error")
	}
}

func TestBodiesAndRatesAreBounded(t *testing.T) {
	t.Parallel()
	g := start(t, false, func(_ int, w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/bomb":
			w.Header().Set("Content-Encoding", "gzip")
			w.Header().Set("Content-Type", "text/plain")
			z := gzip.NewWriter(w)
			chunk := strings.Repeat("0", 1<<20)
			for range 6 {
				io.WriteString(z, chunk)
			}
			z.Close()
		default:
			w.Header().Set("Content-Type", "image/png")
			w.Write([]byte{0x89, 'P', 0xff, 0})
		}
	})
	got, err := g.client.Do(t.Context(), g.request("/bomb"))
	if err != nil || got.Metadata["truncated"] != true || got.Metadata["bytes"] != api.MaxBody || len(got.Output) > api.MaxBody+1000 {
		t.Errorf("metadata = %v, err = %v; want a truncated body of %d bytes", got.Metadata, err, api.MaxBody)
	}
	raw := g.request("/png")
	raw.Raw = true
	got, err = g.client.Do(t.Context(), raw)
	if err != nil || !strings.HasPrefix(got.Output, "[4 bytes of image/png, sha256 ") || got.Type != "image/png" {
		t.Errorf(`err = %v, want nil; got.Output = %q, want it to begin with "[4 bytes of image/png, sha256 "; got.Type = %q, want "image/png"`,
			err, got.Output, got.Type)
	}
	large := g.request("/")
	large.Body = make([]byte, api.MaxBody+1)
	if _, err := g.client.Do(t.Context(), large); code(err) != "too_large " {
		t.Errorf(`%v; want code(err) = "too_large "`, err)
	}
	mine := g.request("/png")
	mine.Extension, mine.User = "e.z", "u"
	for range 20 {
		if _, err = g.client.Do(t.Context(), mine); err != nil {
			break
		}
	}
	if e := capability.AsError(err); e == nil || e.Reason != "rate_limited" || e.RetryAfter <= 0 {
		t.Errorf(`%v; want e not nil, e.Reason = "rate_limited", e.RetryAfter more than 0`, err)
	}
	other := mine
	other.User = "another"
	if _, err := g.client.Do(t.Context(), other); err != nil {
		t.Errorf("Do by another user = %v, want nil", err)
	}
	other.Extension, other.User = "e.y", "u"
	if _, err := g.client.Do(t.Context(), other); err != nil {
		t.Error("another extension pays for it:", err)
	}
	ran := 0
	for i := range 13 { // two task agents of a person
		agent := g.request("/small")
		agent.Extension, agent.User, agent.Person = "e.w", fmt.Sprint("agent:", i%2), "user:p"
		if _, err := g.client.Do(t.Context(), agent); err == nil {
			ran++
		}
	}
	other.Extension = "e.w"
	if _, err := g.client.Do(t.Context(), other); err != nil || ran > 11 {
		t.Errorf("the task agents of a person made %d of 13 calls, then another user got %v, want at most 11 and no error", ran, err)
	}
	for name, change := range map[string]func(*api.Request){
		"no URL":      func(r *api.Request) { r.URL = "x" },
		"a user":      func(r *api.Request) { r.URL = "http://u:p@api.test/" },
		"a file":      func(r *api.Request) { r.URL = "file:///etc/passwd" },
		"unicode":     func(r *api.Request) { r.URL = "http://аpi.test/" },
		"long":        func(r *api.Request) { r.URL += strings.Repeat("x", 9<<10) },
		"Host":        func(r *api.Request) { r.Header = http.Header{"Host": {"x"}} },
		"a line end":  func(r *api.Request) { r.Header = http.Header{"X": {"a\r\nb: c"}} },
		"header name": func(r *api.Request) { r.Header = http.Header{"a b": {"x"}} },
		"credentials": func(r *api.Request) { r.Auth = &api.Auth{Kind: "x", Secret: secret.New("y")} },
		"no pattern":  func(r *api.Request) { r.Policy.Allow = []string{"a b"} },
	} {
		req := g.request("/")
		req.Extension = name
		change(&req)
		if _, err := g.client.Do(t.Context(), req); code(err) != "invalid_input invalid_args" {
			t.Errorf(`%s: %v; want code(err) = "invalid_input invalid_args"`, name, err)
		}
	}
}

func TestAnswersAreKeptForTheOneWhoAsked(t *testing.T) {
	t.Parallel()
	g := start(t, false, func(n int, w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/aged":
			w.Header().Set("Cache-Control", "private, max-age=60")
		case "/tagged":
			w.Header().Set("Etag", `"v1"`)
			if r.Header.Get("If-None-Match") == `"v1"` {
				w.WriteHeader(http.StatusNotModified)
				return
			}
		case "/never":
			w.Header().Set("Cache-Control", "no-store")
		case "/cookie":
			w.Header().Set("Set-Cookie", "a=b")
		case "/broken":
			w.WriteHeader(http.StatusNotFound)
		}
		fmt.Fprint(w, n)
	})
	now := time.Unix(1000, 0)
	g.client = api.New(api.Config{Resolver: g.names, Now: func() time.Time { return now }})
	do := func(path string, change func(*api.Request)) (hit bool, asked int) {
		t.Helper()
		req := g.request(path)
		req.Extension, req.Version, req.User = "e"+path[1:], "1", "alice"
		if change != nil {
			change(&req)
		}
		before := len(g.asked)
		got, err := g.client.Do(t.Context(), req)
		if err != nil && path != "/broken" {
			t.Fatalf("%s: err = %v, want nil", path, err)
		}
		return got.Metadata["cached"] == true, len(g.asked) - before
	}
	check := func(what, path string, change func(*api.Request), wantHit bool, wantAsked int) {
		t.Helper()
		if hit, asked := do(path, change); hit != wantHit || asked != wantAsked {
			t.Errorf("%s: hit %v, asked %d; want hit = %v, asked = %v", what, hit, asked, wantHit, wantAsked)
		}
	}
	ttl := func(r *api.Request) { r.CacheTTL = time.Minute }
	check("the first", "/aged", nil, false, 1)
	now = now.Add(59 * time.Second)
	check("fresh", "/aged", nil, true, 0)
	check("another user", "/aged", func(r *api.Request) { r.User = "bob" }, false, 1)
	check("another version", "/aged", func(r *api.Request) { r.Version = "2" }, false, 1)
	check("other credentials", "/aged", func(r *api.Request) { r.Auth = &api.Auth{Kind: "bearer", Secret: secret.New("x")} }, false, 1)
	check("another policy", "/aged", func(r *api.Request) { r.Policy.Deny = []string{"evil.test"} }, false, 1)
	check("bypassed", "/aged", func(r *api.Request) { r.NoCache = true }, false, 1)
	check("a body", "/aged", func(r *api.Request) { r.Method = "POST" }, false, 1)
	now = now.Add(2 * time.Second)
	check("old", "/aged", nil, false, 1)

	check("tagged", "/tagged", nil, false, 1)
	check("still right", "/tagged", nil, true, 1)
	for _, path := range []string{"/never", "/cookie", "/broken"} {
		check(path, path, ttl, false, 1)
		check(path, path, ttl, false, 1)
	}
	check("by the action", "/silent", ttl, false, 1)
	check("by the action", "/silent", ttl, true, 0)
	check("nobody says so", "/quiet", nil, false, 1)
	check("nobody says so", "/quiet", nil, false, 1)
}

func TestCredentialsAreSentAndNeverShown(t *testing.T) {
	t.Parallel()
	g := start(t, false, func(_ int, w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Ratelimit-Limit", r.Header.Get("X-Key"))
		fmt.Fprintln(w, r.Header.Get("Authorization"), r.Header.Get("X-Key"), r.URL.RawQuery)
		if r.URL.Query().Has("k") {
			fmt.Fprintln(w, strings.ToLower(r.URL.RawQuery), "/s3cret%20&%2F%C3%A9", `"s3cret \u0026/é"`, "s3cret &amp;/é")
		}
	})
	for _, a := range []api.Auth{
		{Kind: "basic", User: "u"}, {Kind: "header", Name: "X-Key"}, {Kind: "query", Name: "k"}, {Kind: "bearer"},
	} {
		a.Secret = secret.New("s3cret &/é")
		if a.Kind == "header" || a.Kind == "bearer" {
			a.Secret = secret.New("s3cret-x")
		}
		req := g.request("/?q=1")
		req.Auth = &a
		got, err := g.client.Do(t.Context(), req)
		if err != nil || strings.Contains(got.Output, "s3cret") || !strings.Contains(got.Output, "•••") ||
			strings.Contains(fmt.Sprint(got.Metadata), "s3cret") || strings.Contains(got.Output, "dTpzM2NyZXQ") {
			t.Errorf(`%s: %q %v %v; want no error, got.Output without "s3cret", got.Output with "•••", `+
				`fmt.Sprint(got.Metadata) without "s3cret", got.Output without "dTpzM2NyZXQ"`, a.Kind, got.Output, got.Metadata, err)
		}
	}
}

// TestABodyIsNotCutInsideACredential: the caller chooses how much comes before what the service repeats.
func TestABodyIsNotCutInsideACredential(t *testing.T) {
	t.Parallel()
	g := start(t, false, func(_ int, w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		fmt.Fprint(w, strings.Repeat("a", api.MaxBody-len("Bearer s3cret-")), r.Header.Get("Authorization"), " end")
	})
	req := g.request("/")
	req.Auth = &api.Auth{Kind: "bearer", Secret: secret.New("s3cret-x-1234567")}
	got, err := g.client.Do(t.Context(), req)
	if err != nil || strings.Contains(got.Output, "s3cr") || strings.Contains(got.Body, "s3cr") || len(got.Body) < api.MaxBody-1000 {
		t.Errorf("got a body of %d bytes that ends with %.60q, %v; want all but its end, without the beginning of the secret",
			len(got.Body), got.Body[max(len(got.Body)-60, 0):], err)
	}
}

func TestCallsAreReadOffRoutes(t *testing.T) {
	t.Parallel()
	action := func(id, runner, base string) command.Action {
		return command.Action{
			ID: id, Runner: runner, BaseURL: base, Flags: api.Flags(),
			Headers: map[string]string{"accept": "application/json"}, Timeout: time.Second,
		}
	}
	router := command.New(command.Table{Commands: []command.Command{{
		Name: "x", Extension: "e.x", Enabled: true, Actions: []command.Action{
			action("get", "api.get", ""), action("post", "api.post", "https://a.test/v1?k=1"), action("call", "api.call", ""),
			action("gql", "api.graphql", "https://a.test/graphql"), action("odd", "api.connect", ""),
		},
	}}})
	if p := router.Problems(); len(p) > 0 {
		t.Fatalf("len(p) = %v, want at most 0; p = %q", len(p), p)
	}
	for text, want := range map[string]string{
		"/x get https://b.test/q -H 'X-A: b: c' --query a=1 --query=b=2 --raw": "GET https://b.test/q [a=1 b=2]   true [b: c]",
		"/x get":                                "invalid_input invalid_args",
		"/x get u --header x":                   "invalid_input invalid_args",
		`/x post users/7?z=2 --json '{"a": 1}'`: `POST https://a.test/v1/users/7?k=1&z=2 [] application/json {"a": 1} false []`,
		"/x post https://a.test/v1/users --form a=1 --form b=é": "POST https://a.test/v1/users?k=1 [] application/x-www-form-urlencoded a=1&b=%C3%A9 false []",
		"/x post -d hello":                      "POST https://a.test/v1?k=1 [] text/plain; charset=utf-8 hello false []",
		"/x post https://evil.test/v1":          "invalid_input invalid_args",
		"/x post //evil.test/v1":                "invalid_input invalid_args",
		"/x post ../v2":                         "invalid_input invalid_args",
		"/x post %2e%2e/v2":                     "invalid_input invalid_args",
		"/x post %252e%252e/v2":                 "POST https://a.test/v1/%252e%252e/v2?k=1 []   false []",
		"/x post users --json {":                "invalid_input invalid_args",
		"/x post users --json 1 -d 2":           "invalid_input invalid_args",
		"/x call http://b.test -X delete":       "DELETE http://b.test []   false []",
		"/x call http://b.test":                 "GET http://b.test []   false []",
		"/x call http://b.test --method TRACE":  "invalid_input invalid_args",
		`/x gql '{ me }' --variables '{"a":1}'`: `POST https://a.test/graphql [] application/json {"query":"{ me }","variables":{"a":1}} false []`,
		"/x gql":                                "invalid_input invalid_args",
		"/x gql q --variables {":                "invalid_input invalid_args",
		"/x odd http://b.test":                  "invalid_input unsupported_runner",
	} {
		route, _, err := router.Route(text)
		if err != nil {
			t.Fatalf("err = %v, want nil; text = %q", err, text)
		}
		req, err := api.FromRoute(route)
		got := fmt.Sprint(req.Method, " ", req.URL, " ", req.Query, " ", req.BodyType, " ", string(req.Body), " ", req.Raw, " ",
			req.Header["X-A"])
		if err != nil {
			got = code(err)
		} else if req.Header.Get("Accept") != "application/json" || req.Timeout != time.Second {
			t.Errorf(`req.Header.Get("Accept") = %q, want "application/json"; req.Timeout = %v, want time.Second; text = %q`,
				req.Header.Get("Accept"), req.Timeout, text)
		}
		if got != want {
			t.Errorf("%s\n got %s\nwant %s", text, got, want)
		}
	}
	if doc, err := json.Marshal(api.Request{Auth: &api.Auth{Secret: secret.New("s3cret")}}); err == nil &&
		strings.Contains(string(doc), "s3cret") {
		t.Error(`a request shows its secret; want not (err == nil && strings.Contains(string(doc), "s3cret"))`)
	}
}
