package router

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/secret"
)

// scripted answers every method with one function.
type scripted func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error)

func (s scripted) Availability(context.Context) (Availability, error) {
	return Availability{Environment: "server", Available: true, Capabilities: Capabilities{Plugin: true}}, nil
}

func (s scripted) Invoke(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	return s(ctx, method, params)
}

func serve(t testing.TB, token string, opts HandlerOptions, b scripted) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(Handler(RequireToken(secret.New(token), b), opts))
	t.Cleanup(srv.Close)
	return srv
}

func connect(t testing.TB, cfg ClientConfig) *Client {
	t.Helper()
	c, err := NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdle)
	return c
}

func wireOf(t *testing.T, err error) *Error {
	t.Helper()
	e, ok := errors.AsType[*Error](err)
	if !ok {
		t.Fatalf("error is %T (%v), want *Error", err, err)
	}
	return e
}

func TestInvokePassesBytesThroughBothEnds(t *testing.T) {
	const params = `{"moduleId":"m","action":"A","content":{"n":1.50e2,"s":"\ud800\u00e9"}}`
	const result = `{"text":"x","data":{"big":12345678901234567890,"s":"\udfff"}}`
	srv := serve(t, "", HandlerOptions{}, func(_ context.Context, method string, got json.RawMessage) (json.RawMessage, error) {
		if method != "plugin.action.invoke" || string(got) != params {
			t.Errorf(`%s got %s; want method = "plugin.action.invoke", string(got) = %v`, method, got, params)
		}
		return json.RawMessage(result), nil
	})
	got, err := connect(t, ClientConfig{BaseURL: srv.URL}).Invoke(t.Context(), "plugin.action.invoke", json.RawMessage(params))
	if err != nil || string(got) != result {
		t.Fatalf("%s, %v; want no error, string(got) = %v", got, err, result)
	}
}

func TestTokenIsCheckedBeforeAnythingElse(t *testing.T) {
	srv := serve(t, "s3cret", HandlerOptions{}, func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
		t.Error("the backend was reached")
		return nil, nil
	})
	for _, path := range []string{PathAvailability, PathInvoke, PathAssets + "m/x.js", "/nowhere"} {
		for _, auth := range []string{"", "Bearer wrong", "Basic s3cret", "Bearer "} {
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+path, nil)
			req.Header.Set("Authorization", auth)
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode != 401 || resp.Header.Get("WWW-Authenticate") != "Bearer" || !bytes.Contains(body, []byte(CodeUnavailable)) {
				t.Errorf(`%s with %q: %d %s; want resp.StatusCode = 401, resp.Header.Get("WWW-Authenticate") = "Bearer", body `+
					"with []byte(CodeUnavailable)", path, auth, resp.StatusCode, body)
			}
		}
	}
	_, err := connect(t, ClientConfig{BaseURL: srv.URL, Token: secret.New("other")}).Availability(t.Context())
	if e := wireOf(t, err); e.Code != CodeUnavailable || e.Status != 401 || e.ToCapability("").Code != capability.CodeUnauthenticated {
		t.Errorf(`%+v; want e.Code = %v, e.Status = 401, e.ToCapability("").Code = capability.CodeUnauthenticated`, e, CodeUnavailable)
	}
	if a, err := connect(t, ClientConfig{BaseURL: srv.URL, Token: secret.New("s3cret")}).Availability(t.Context()); err != nil ||
		!a.Capabilities.Plugin {
		t.Errorf("%+v, %v; want no error, a.Capabilities.Plugin = true", a, err)
	}
}

func TestWebPagesReachNoEndpointWithoutAToken(t *testing.T) {
	for _, token := range []string{"", "s3cret"} {
		called := false
		srv := serve(t, token, HandlerOptions{}, func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
			called = true
			return json.RawMessage(`{"text":"x"}`), nil
		})
		for header, value := range map[string]string{
			"Origin": "https://page.example", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors",
		} {
			called = false
			body := `{"method":"plugin.action.invoke","params":{"moduleId":"m","action":"A","content":{}}}`
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+PathInvoke, strings.NewReader(body))
			req.Header.Set("Content-Type", "text/plain") // a page may send it without asking
			req.Header.Set(header, value)
			if token != "" {
				req.Header.Set("Authorization", "Bearer "+token)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatalf("sending the call: %v", err)
			}
			_ = resp.Body.Close()
			// Sec-Fetch-Mode alone is sent by a fetch of Node.
			want := http.StatusOK
			if token == "" && header != "Sec-Fetch-Mode" {
				want = http.StatusForbidden
			}
			if resp.StatusCode != want || called != (want == http.StatusOK) {
				t.Errorf("token %q, %s: status %d, called %v; want status %d", token, header, resp.StatusCode, called, want)
			}
		}
	}
}

func TestTransportRefusalsCarryTheEnvelope(t *testing.T) {
	srv := serve(t, "", HandlerOptions{MaxBody: 100}, func(context.Context, string, json.RawMessage) (json.RawMessage, error) {
		return nil, nil
	})
	tests := map[string]struct {
		verb, path, body string
		status           int
		want             string
	}{
		"malformed JSON names the byte": {"POST", PathInvoke, `{"method":"fs.list","params":{]}`, 400, `at byte 30`},
		"empty body":                    {"POST", PathInvoke, ``, 400, CodeDecodeFailed},
		"not an object":                 {"POST", PathInvoke, `[]`, 400, `must be a JSON object`},
		"no method":                     {"POST", PathInvoke, `{}`, 400, `needs a string`},
		"trailing data":                 {"POST", PathInvoke, `{"method":"x"}}`, 400, `at byte 14`},
		"too large":                     {"POST", PathInvoke, `{"method":"x","p":"` + strings.Repeat("x", 100) + `"}`, 413, `limit of 100 bytes`},
		"wrong verb":                    {"GET", PathInvoke, ``, 404, CodeUnavailable},
		"unknown path":                  {"GET", "/v1/other", ``, 404, CodeUnavailable},
		"unknown method is no refusal":  {"POST", PathInvoke, `{"method":"fs.fly"}`, 200, `"method":"fs.fly"`},
		"bad params are no refusal":     {"POST", PathInvoke, `{"method":"fs.readText"}`, 200, `\"path\" is missing`},
		"broken handler is named":       {"POST", PathInvoke, `{"method":"fs.list","params":[]}`, 200, `"reason":"decode_failed"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			req, _ := http.NewRequestWithContext(t.Context(), tt.verb, srv.URL+tt.path, strings.NewReader(tt.body))
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != tt.status || !strings.HasPrefix(string(body), `{"ok":false,"error":{`) ||
				!strings.Contains(string(body), tt.want) {
				t.Errorf(`%d %s; want resp.StatusCode = %v, string(body) beginning with "{\"ok\":false,\"error\":{", string(body) with %v`,
					resp.StatusCode, body, tt.status, tt.want)
			}
		})
	}
}

func TestOurErrorsSurviveTheWire(t *testing.T) {
	for _, row := range capability.CodeTable() {
		sent := capability.Errorf(row.Code, "op", "no luck").With("fine_code", "try this").Detail("approval", "a1")
		sent.RetryAfter = 1500 * time.Millisecond
		srv := serve(t, "", HandlerOptions{}, func(context.Context, string, json.RawMessage) (json.RawMessage, error) { return nil, sent })
		_, err := connect(t, ClientConfig{BaseURL: srv.URL}).Invoke(t.Context(), "fs.readText", json.RawMessage(`{"path":"a"}`))
		e := wireOf(t, err)
		got := e.ToCapability("op")
		if e.Code != row.Router || e.Method != "fs.readText" || got.Code != row.Code || got.Reason != "fine_code" ||
			got.Hint != "try this" || got.RetryAfter != sent.RetryAfter || got.Details["approval"] != "a1" || len(got.Details) != 1 {
			t.Errorf("%s: %+v -> %+v", row.Code, e, got)
		}
	}
}

func TestClientReadsTheAnswersOfOtherEndpoints(t *testing.T) {
	tests := map[string]struct {
		status int
		body   string
		code   string // "" is success
		ours   capability.Code
	}{
		"structured error": {
			200, `{"ok":false,"error":{"code":"CAPABILITY_UNAVAILABLE","message":"m"}}`, CodeUnavailable,
			capability.CodeUnavailable,
		},
		"top-level error": {
			200, `{"ok":false,"code":"CAPABILITY_DECODE_FAILED","message":"m"}`, CodeDecodeFailed,
			capability.CodeInvalidInput,
		},
		"unknown code": {200, `{"ok":false,"error":{"code":"E","message":"m"}}`, CodeRequestFailed, capability.CodeFailed},
		"message not a string": {
			200, `{"ok":false,"error":{"code":"CAPABILITY_UNAVAILABLE","message":1}}`, CodeRequestFailed,
			capability.CodeFailed,
		},
		"500 with an envelope": {
			500, `{"ok":false,"error":{"code":"CAPABILITY_UNAVAILABLE","message":"m"}}`, CodeUnavailable,
			capability.CodeUnavailable,
		},
		"500 without":                 {500, `oops`, CodeRequestFailed, capability.CodeFailed},
		"504 without":                 {504, ``, CodeRequestFailed, capability.CodeTimeout},
		"404 without code":            {404, `{"ok":false,"error":{"message":"m"}}`, CodeRequestFailed, capability.CodeFailed},
		"not JSON":                    {200, `<html>`, CodeDecodeFailed, capability.CodeFailed},
		"empty":                       {200, ``, CodeDecodeFailed, capability.CodeFailed},
		"null result":                 {200, `{"ok":true,"result":null}`, CodeDecodeFailed, capability.CodeFailed},
		"array":                       {200, `[]`, CodeDecodeFailed, capability.CodeFailed},
		"object without result":       {200, `{"text":"x"}`, "", ""},
		"ok alone is an empty result": {200, `{"ok":true}`, "", ""},
		"redirect":                    {302, ``, CodeRequestFailed, capability.CodeFailed},
		"a byte order mark":           {200, "\ufeff" + `{"ok":true}`, "", ""},
		"a code without a message":    {200, `{"ok":false,"error":{"code":"CAPABILITY_UNAVAILABLE"}}`, CodeUnavailable, capability.CodeUnavailable},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/tenant/7"+PathInvoke {
					t.Errorf(`followed to %s; want r.URL.Path = "/tenant/7" + PathInvoke`, r.URL)
				}
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			}))
			defer srv.Close()
			c := connect(t, ClientConfig{BaseURL: srv.URL + "/tenant/7//?q#f"})
			_, err := c.Invoke(t.Context(), "plugin.action.invoke", json.RawMessage(`{"moduleId":"m","action":"a"}`))
			if tt.code == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if e := wireOf(t, err); e.Code != tt.code || e.ToCapability("").Code != tt.ours {
				t.Errorf(`%+v -> %s; want e.Code = %v, e.ToCapability("").Code = %v`, e, e.ToCapability("").Code, tt.code, tt.ours)
			}
		})
	}
}

// The code and the message that an endpoint gives reach people, even if one of them is missing.
func TestAnErrorKeepsWhatAnEndpointGives(t *testing.T) {
	for body, want := range map[string]string{
		`{"ok":false,"error":{"code":"E_FULL","message":"the disk is full"}}`: "E_FULL: the disk is full",
		`{"ok":false,"error":{"message":"the disk is full"}}`:                 "the disk is full",
		`{"ok":false,"error":{"code":"E_FULL"}}`:                              "E_FULL: the endpoint gives no message",
		`{"ok":false,"error":{"code":"CAPABILITY_UNAVAILABLE"}}`:              "the endpoint gives no message",
		`{"ok":false,"error":{}}`:                                             "the endpoint reported a failure without a known code and message",
	} {
		if _, err := readEnvelope(200, []byte(body), "m"); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", body, err, want)
		}
	}
}

func TestAnswersAreReadUpToTheLimitOnly(t *testing.T) {
	for name, declare := range map[string]bool{"declared length": true, "streamed": false} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if declare {
					w.Header().Set("Content-Length", "1000000")
				}
				chunk := bytes.Repeat([]byte(" "), 1000)
				for range 1000 {
					if _, err := w.Write(chunk); err != nil {
						return
					}
				}
			}))
			defer srv.Close()
			_, err := connect(t, ClientConfig{BaseURL: srv.URL, MaxResponse: 5000}).Availability(t.Context())
			if e := wireOf(t, err); e.ToCapability("").Code != capability.CodeTooLarge || !strings.Contains(e.Message, "5000") {
				t.Errorf(`%+v; want e.ToCapability("").Code = capability.CodeTooLarge, e.Message with "5000"`, e)
			}
		})
	}
}

func TestDeadlineAndCancellationReachTheEndpoint(t *testing.T) {
	ended := make(chan struct{}, 2)
	srv := serve(t, "", HandlerOptions{}, func(ctx context.Context, _ string, _ json.RawMessage) (json.RawMessage, error) {
		<-ctx.Done()
		ended <- struct{}{}
		return nil, ctx.Err()
	})
	c := connect(t, ClientConfig{BaseURL: srv.URL, Timeout: 30 * time.Millisecond})
	_, err := c.Invoke(t.Context(), "model.status", nil)
	if got := wireOf(t, err).ToCapability("").Code; got != capability.CodeTimeout {
		t.Errorf("timeout is %s; want got = capability.CodeTimeout", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(30*time.Millisecond, cancel)
	_, err = c.Invoke(ctx, "pty.command.run", json.RawMessage(`{"command":"sleep"}`))
	if got := wireOf(t, err).ToCapability("").Code; got != capability.CodeCancelled {
		t.Errorf("cancellation is %s; want got = capability.CodeCancelled", got)
	}
	for range 2 {
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Fatal("the endpoint never noticed")
		}
	}
}

func TestUnreachableEndpointCountsAsNotStarted(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	srv.Close()
	_, err := connect(t, ClientConfig{BaseURL: srv.URL}).Invoke(t.Context(), "model.status", nil)
	if got := wireOf(t, err).ToCapability(""); got.Code != capability.CodeUnavailable || got.Reason != "connection_failed" {
		t.Errorf(`%+v; want got.Code = capability.CodeUnavailable, got.Reason = "connection_failed"`, got)
	}
}

func TestBaseURLIsNormalised(t *testing.T) {
	for in, want := range map[string]string{
		" https://Host.example/a/?x=1#f ": "https://host.example/a", "http://h:80": "http://h:80", "https://h///": "https://h",
		"": "", "h": "", "ftp://h": "", "http://": "", "http://u:p@h": "", "http://u@h": "", "/x": "", "http://:80": "",
	} {
		got, err := NormalizeBaseURL(in)
		if got != want || (err == nil) != (want != "") {
			t.Errorf(`%q: %q, %v; want got = %v, (err == nil) = (want != "")`, in, got, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "u:p") {
			t.Errorf(`credentials in %v; want not (err != nil && strings.Contains(err.Error(), "u:p"))`, err)
		}
	}
	if _, err := NewClient(ClientConfig{BaseURL: "http://h", ID: "a b"}); err == nil {
		t.Error("a blank in the id is accepted; want an error")
	}
}

func TestAssetOverHTTPEqualsAssetOverRPC(t *testing.T) {
	body := []byte("export default 1\n")
	srv := serve(t, "", HandlerOptions{OpenAssets: true}, func(_ context.Context, _ string, params json.RawMessage) (json.RawMessage, error) {
		if path := paramText(params, "path"); path != "/a b/x.js" && path != "/old%20form.js" {
			return nil, capability.Errorf(capability.CodeNotFound, "asset", "no such asset %q", path)
		}
		return EncodeAsset(Asset{Path: "/a b/x.js", ContentType: "text/javascript", Body: body, Integrity: Integrity(body)})
	})
	a, err := connect(t, ClientConfig{BaseURL: srv.URL}).Asset(t.Context(), "m", "/a b/x.js")
	if err != nil || !bytes.Equal(a.Body, body) || !MatchesIntegrity(a.Body, a.Integrity) {
		t.Fatalf("%+v, %v; want no error, a.Body = %v, MatchesIntegrity(a.Body, a.Integrity)", a, err, body)
	}
	tests := []struct {
		verb, path string
		status     int
	}{
		{"GET", "m/a%20b/x.js", 200},
		{"HEAD", "m/a%20b/x.js", 200},
		{"GET", "m/old%20form.js", 200},
		{"GET", "m/none.js", 404},
		{"GET", "m/", 400},
		{"GET", "m", 400},
		{"GET", "m/a%2fb", 400},
		{"GET", "m/%2e%2e/x", 400},
		{"GET", "m/a%5cb", 400},
		{"GET", "m/a%00b", 400},
		{"GET", "a%3ab/x.js", 400},
		{"POST", "m/a%20b/x.js", 404},
	}
	for _, tt := range tests {
		req := httptest.NewRequest(tt.verb, srv.URL+PathAssets+tt.path, nil)
		req.RequestURI = ""
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != tt.status {
			t.Errorf("%s %s: %d, want %d", tt.verb, tt.path, resp.StatusCode, tt.status)
		}
		if tt.status != 200 {
			continue
		}
		if tt.verb == "GET" && !bytes.Equal(got, body) || tt.verb == "HEAD" && len(got) != 0 {
			t.Errorf(`%s %s: body %q; want not (tt.verb == "GET" && !bytes.Equal(got, body)), not (tt.verb == "HEAD" && len(got) != 0)`,
				tt.verb, tt.path, got)
		}
		if resp.ContentLength != int64(len(body)) || resp.Header.Get(HeaderIntegrity) != Integrity(body) ||
			resp.Header.Get("X-Content-Type-Options") != "nosniff" || resp.Header.Get("ETag") == "" {
			t.Errorf("%s %s: %v; want resp.ContentLength = int64(len(body)), resp.Header.Get(HeaderIntegrity) = "+
				`Integrity(body), resp.Header.Get("X-Content-Type-Options") = "nosniff", resp.Header.Get("ETag") other than ""`, tt.verb,
				tt.path, resp.Header)
		}
		again := httptest.NewRequest("GET", srv.URL+PathAssets+tt.path, nil)
		again.RequestURI = ""
		again.Header.Set("If-None-Match", resp.Header.Get("ETag"))
		if resp, err = http.DefaultTransport.RoundTrip(again); err != nil || resp.StatusCode != 304 {
			t.Errorf("revalidation: %v, %v; want no error, resp.StatusCode = 304", resp, err)
		}
		_ = resp.Body.Close()
	}
}
