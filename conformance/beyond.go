package conformance

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/protocol/router"
)

// beyond runs the checks that the harness of elizaOS does not have. Each has a name of its
// own, so that the report shows which rule an endpoint breaks.
func (r *run) beyond(ctx context.Context) {
	r.credentials(ctx)
	r.envelopes(ctx)
	r.bounds(ctx)
	r.assets(ctx)
	r.together(ctx)
}

// answer is one raw HTTP response.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// exchange sends one raw request; a body "" is a GET.
func (r *run) exchange(ctx context.Context, path, body, token string) (answer, error) {
	if body == "" {
		return r.send(ctx, http.MethodGet, path, nil, 0, token)
	}
	return r.send(ctx, http.MethodPost, path, strings.NewReader(body), int64(len(body)), token)
}

func (r *run) send(ctx context.Context, method, path string, body io.Reader, size int64, token string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, r.opts.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, r.client.BaseURL()+path, body)
	if err != nil {
		return answer{}, err
	}
	req.ContentLength = size
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := r.opts.Transport.RoundTrip(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, router.DefaultMaxResponse))
	return answer{resp.StatusCode, resp.Header, data}, err
}

// credentials checks that, if a token is required, every path refuses a missing and a
// wrong one.
func (r *run) credentials(ctx context.Context) {
	if r.opts.Token.Empty() {
		return
	}
	token := r.opts.Token.Reveal()
	asset := router.PathAssets + "x/y.js"
	for i := range r.modules {
		if view := viewOf(&r.modules[i]); view.BundlePath != "" {
			asset = assetPath(&r.modules[i], view)
		}
	}
	for _, path := range []string{router.PathAvailability, router.PathInvoke, asset, "/v1/no-such-path"} {
		body := ""
		if path == router.PathInvoke {
			body = `{"method":"plugin.modules.list","params":{}}`
		}
		for _, given := range []struct{ name, token string }{
			{"no", ""}, {"a wrong", "not-" + token}, {"a longer", token + "x"}, {"a shortened", token[:len(token)-1]},
		} {
			got, err := r.exchange(ctx, path, body, given.token)
			switch {
			case err != nil:
				r.fail("auth", "%s with %s token: %v", path, given.name, err)
			case got.status != http.StatusUnauthorized:
				r.fail("auth", "%s with %s token answers %d, not 401", path, given.name, got.status)
			default:
				if _, wrong := failure(got.body); wrong != "" {
					r.fail("auth", "%s with %s token: %s", path, given.name, wrong)
				}
			}
		}
	}
}

func assetPath(m *router.Module, view router.View) string {
	return router.PathAssets + m.ID + "/" + strings.TrimLeft(view.BundlePath, "/")
}

// failure returns the code of a failure envelope, or a description of its fault.
func failure(body []byte) (code, wrong string) {
	var e struct {
		OK    *bool
		Error map[string]json.RawMessage
	}
	if err := json.Unmarshal(body, &e); err != nil || e.OK == nil || *e.OK || e.Error == nil {
		return "", fmt.Sprintf("no error envelope: %.200s", body)
	}
	if code = text(e.Error["code"]); code == "" {
		return "", "the error envelope has no code"
	}
	if !slices.Contains([]string{router.CodeUnavailable, router.CodeDecodeFailed, router.CodeRequestFailed}, code) {
		return "", fmt.Sprintf("the error envelope has the unknown code %q", code)
	}
	if strings.TrimSpace(text(e.Error["message"])) == "" {
		return "", "the error envelope has no message"
	}
	for _, name := range []string{"capability", "method"} {
		if raw, given := e.Error[name]; given && (len(raw) == 0 || raw[0] != '"') {
			return "", fmt.Sprintf("the error envelope's %s is %s, not a text", name, raw)
		}
	}
	return code, ""
}

// envelopes checks that refusals are envelopes with the right code.
func (r *run) envelopes(ctx context.Context) {
	token := r.opts.Token.Reveal()
	module := r.modules[0].ID
	for _, c := range []struct {
		where, body, code string
		status            int // 0: 200, the rule for failures of a capability
	}{
		{"unknown method", `{"method":"plugin.no.such","params":{}}`, router.CodeUnavailable, 0},
		{
			"unknown module", `{"method":"plugin.action.invoke","params":{"moduleId":"no-such-module-here","action":"X"}}`, router.CodeUnavailable,
			0,
		},
		{
			"unknown action", fmt.Sprintf(`{"method":"plugin.action.invoke","params":{"moduleId":%q,"action":"no-such-action-here"}}`, module),
			router.CodeUnavailable, 0,
		},
		{"missing parameter", fmt.Sprintf(`{"method":"plugin.action.invoke","params":{"moduleId":%q}}`, module), router.CodeDecodeFailed, 0},
		{"null for an optional object", fmt.Sprintf(`{"method":"plugin.action.invoke","params":{"moduleId":%q,"action":"X","content":null}}`,
			module), router.CodeDecodeFailed, 0},
		{"malformed module id", `{"method":"plugin.action.invoke","params":{"moduleId":"a b","action":"X"}}`, router.CodeDecodeFailed, 0},
		{"malformed JSON", `{"method":`, router.CodeDecodeFailed, http.StatusBadRequest},
		{"array for a body", `[]`, router.CodeDecodeFailed, http.StatusBadRequest},
		{"method is no text", `{"method":7,"params":{}}`, router.CodeDecodeFailed, http.StatusBadRequest},
	} {
		got, err := r.exchange(ctx, router.PathInvoke, c.body, token)
		if err != nil {
			r.fail(c.where, "%v", err)
			continue
		}
		r.mustRefuse(c.where, got, c.code, c.status)
	}
	for where, method := range map[string]string{"unknown path": http.MethodGet, "wrong verb": http.MethodDelete} {
		path := "/v1/no-such-path"
		if where == "wrong verb" {
			path = router.PathInvoke
		}
		got, err := r.send(ctx, method, path, nil, 0, token)
		if _, wrong := failure(got.body); err != nil || got.status != http.StatusNotFound && got.status != http.StatusMethodNotAllowed ||
			wrong != "" {
			r.fail(where, "%s %s must answer 404 with the error envelope, not %d: %s", method, path, got.status, wrong)
		}
	}
	result, err := r.invoke(ctx, "plugin.modules.list", json.RawMessage(`{"endpointId":"somebody-elses","traceSessionId":"t"}`))
	if err != nil || len(result) == 0 {
		r.fail("foreign endpointId", "an unknown endpointId must be ignored: %v", err)
	}
	for _, c := range []struct{ path, body string }{
		{router.PathAvailability + "?query=ignored", ""},
		{router.PathInvoke, `{"method":"plugin.modules.list","params":{},"unknown":null}`},
		{router.PathInvoke, `{"method":"plugin.modules.list"}`},
	} {
		got, err := r.exchange(ctx, c.path, c.body, token)
		switch kind, _, _ := mime.ParseMediaType(got.header.Get("Content-Type")); {
		case err != nil:
			r.fail("lenience", "%s %s: %v", c.path, c.body, err)
		case got.status != http.StatusOK:
			r.fail("lenience", "%s %s must be answered, not refused with %d", c.path, c.body, got.status)
		case kind != "application/json":
			r.fail("content type", "%s answers with the content type %q, not application/json", c.path, got.header.Get("Content-Type"))
		}
	}
}

func (r *run) mustRefuse(where string, got answer, wantCode string, wantStatus int) {
	wantStatus = cmp.Or(wantStatus, http.StatusOK)
	switch code, wrong := failure(got.body); {
	case wrong != "":
		r.fail(where, "status %d, %s", got.status, wrong)
	case code != wantCode:
		r.fail(where, "code %s, not %s", code, wantCode)
	case got.status != wantStatus:
		r.fail(where, "status %d, not %d", got.status, wantStatus)
	}
}

// giant is the size of a body that a peer may refuse to read.
const giant = 64 << 20

// bounds checks that a body that is too large is refused and that the endpoint still
// answers afterwards.
func (r *run) bounds(ctx context.Context) {
	const head, tail = `{"method":"plugin.modules.list","params":{"x":"`, `"}}`
	body := io.MultiReader(strings.NewReader(head), io.LimitReader(filler{}, giant), strings.NewReader(tail))
	got, err := r.send(ctx, http.MethodPost, router.PathInvoke, body, int64(len(head)+giant+len(tail)), r.opts.Token.Reveal())
	// A server may also close the connection on a body it will not read.
	if err == nil && got.status != http.StatusRequestEntityTooLarge {
		r.fail("oversized body", "%d MiB are answered with %d, not 413", giant>>20, got.status)
	}
	after, cancel := context.WithTimeout(ctx, r.opts.Timeout)
	defer cancel()
	if _, err := r.client.Availability(after); err != nil {
		r.fail("oversized body", "the endpoint does not answer afterwards: %v", err)
	}
}

// filler is an endless reader.
type filler struct{}

func (filler) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}
