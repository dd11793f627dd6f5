package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/junctor-run/junctor/protocol/router"
)

// beyond checks what the original's harness never tries. Each check has a name
// of its own, so that a broken endpoint is told what is broken.
func (r *run) beyond(ctx context.Context) {
	r.credentials(ctx)
	r.envelopes(ctx)
	r.assets(ctx)
	r.together(ctx)
}

// exchange sends one raw request; body "" is a GET.
func (r *run) exchange(ctx context.Context, path, body, token string) (int, []byte, http.Header, error) {
	method := http.MethodGet
	var reader io.Reader
	if body != "" {
		method, reader = http.MethodPost, strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, r.client.BaseURL()+path, reader)
	if err != nil {
		return 0, nil, nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := r.opts.Transport.RoundTrip(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, router.DefaultMaxResponse))
	return resp.StatusCode, data, resp.Header, err
}

// credentials: with a token set, every path refuses a missing and a wrong one.
func (r *run) credentials(ctx context.Context) {
	if r.opts.Token.Empty() {
		return
	}
	for _, path := range []string{router.PathAvailability, router.PathInvoke, router.PathAssets + "x/y.js"} {
		body := ""
		if path == router.PathInvoke {
			body = `{"method":"plugin.modules.list","params":{}}`
		}
		for name, token := range map[string]string{"no": "", "a wrong": "not-" + r.opts.Token.Reveal()} {
			status, answer, _, err := r.exchange(ctx, path, body, token)
			switch {
			case err != nil:
				r.fail("auth", "%s with %s token: %v", path, name, err)
			case status != http.StatusUnauthorized:
				r.fail("auth", "%s with %s token answers %d, not 401", path, name, status)
			case envelopeCode(answer) == "":
				r.fail("auth", "%s with %s token answers without the error envelope", path, name)
			}
		}
	}
}

// envelopeCode is the code of a failure envelope, "" when it is none.
func envelopeCode(answer []byte) string {
	var e struct {
		OK    *bool
		Error struct{ Code, Message string }
	}
	if json.Unmarshal(answer, &e) != nil || e.OK == nil || *e.OK || e.Error.Message == "" {
		return ""
	}
	switch e.Error.Code {
	case router.CodeUnavailable, router.CodeDecodeFailed, router.CodeRequestFailed:
		return e.Error.Code
	}
	return ""
}

// envelopes: refusals come as envelopes with the right code.
func (r *run) envelopes(ctx context.Context) {
	token := r.opts.Token.Reveal()
	module := r.modules[0].ID
	for _, c := range []struct {
		where, body, code string
		status            int // 0: 200, the rule for failures of a capability
	}{
		{"unknown method", `{"method":"plugin.no.such","params":{}}`, router.CodeUnavailable, 0},
		{"unknown module", `{"method":"plugin.action.invoke","params":{"moduleId":"no-such-module-here","action":"X"}}`, router.CodeUnavailable, 0},
		{"unknown action", fmt.Sprintf(`{"method":"plugin.action.invoke","params":{"moduleId":%q,"action":"no-such-action-here"}}`, module), router.CodeUnavailable, 0},
		{"missing parameter", fmt.Sprintf(`{"method":"plugin.action.invoke","params":{"moduleId":%q}}`, module), router.CodeDecodeFailed, 0},
		{"null for an optional object", fmt.Sprintf(`{"method":"plugin.action.invoke","params":{"moduleId":%q,"action":"X","content":null}}`, module), router.CodeDecodeFailed, 0},
		{"malformed JSON", `{"method":`, router.CodeDecodeFailed, http.StatusBadRequest},
		{"array for a body", `[]`, router.CodeDecodeFailed, http.StatusBadRequest},
		{"method is no text", `{"method":7,"params":{}}`, router.CodeDecodeFailed, http.StatusBadRequest},
	} {
		status, answer, _, err := r.exchange(ctx, router.PathInvoke, c.body, token)
		want := c.status
		if want == 0 {
			want = http.StatusOK
		}
		switch code := envelopeCode(answer); {
		case err != nil:
			r.fail(c.where, "%v", err)
		case code == "":
			r.fail(c.where, "status %d and no error envelope: %.200s", status, answer)
		case code != c.code:
			r.fail(c.where, "code %s, not %s", code, c.code)
		case status != want:
			r.fail(c.where, "status %d, not %d", status, want)
		}
	}
	status, answer, _, err := r.exchange(ctx, "/v1/no-such-path", "", token)
	if err != nil || status != http.StatusNotFound || envelopeCode(answer) == "" {
		r.fail("unknown path", "must answer 404 with the error envelope, not %d", status)
	}
	big := `{"method":"plugin.modules.list","params":{"x":"` + strings.Repeat("x", 64<<20) + `"}}`
	status, _, _, err = r.exchange(ctx, router.PathInvoke, big, token)
	// A server may also close the connection on a body it will not read.
	if err == nil && status != http.StatusRequestEntityTooLarge {
		r.fail("oversized body", "64 MiB are answered with %d, not 413", status)
	}
	if _, err := r.client.Availability(ctx); err != nil {
		r.fail("oversized body", "the endpoint does not answer afterwards: %v", err)
	}
	result, err := r.client.Invoke(ctx, "plugin.modules.list", json.RawMessage(`{"endpointId":"somebody-elses","traceSessionId":"t"}`))
	if err != nil || len(result) == 0 {
		r.fail("foreign endpointId", "an unknown endpointId must be ignored: %v", err)
	}
}

// assets: the two ways to an asset agree, and neither leads out.
func (r *run) assets(ctx context.Context) {
	token := r.opts.Token.Reveal()
	for i := range r.modules {
		m := &r.modules[i]
		view := viewOf(m)
		if view.BundlePath == "" {
			continue
		}
		asset, err := r.client.Asset(ctx, m.ID, view.BundlePath)
		if err != nil {
			r.fail("plugin.asset.get", "%v", err)
			continue
		}
		status, body, _, err := r.exchange(ctx, router.PathAssets+m.ID+"/"+strings.TrimLeft(view.BundlePath, "/"), "", token)
		if err != nil || status != http.StatusOK || !bytes.Equal(body, asset.Body) {
			r.fail("HTTP asset", "%s over HTTP is not the asset the RPC gives (status %d)", view.BundlePath, status)
		}
		status, body, _, err = r.exchange(ctx, router.PathAssets+m.ID+"/%2e%2e/%2e%2e/etc/passwd", "", token)
		if err == nil && status == http.StatusOK {
			r.fail("asset traversal", "a path out of the assets is answered with 200 and %d bytes", len(body))
		}
		params, _ := json.Marshal(map[string]string{"moduleId": m.ID, "path": "/../../etc/passwd"})
		_, answer, _, err := r.exchange(ctx, router.PathInvoke, fmt.Sprintf(`{"method":"plugin.asset.get","params":%s}`, params), token)
		if err == nil && envelopeCode(answer) == "" {
			r.fail("asset traversal", "plugin.asset.get of a path out of the assets does not fail")
		}
	}
}

// together: calls at the same time are answered, each with its own answer, and a
// repeat of a read is answered the same way.
func (r *run) together(ctx context.Context) {
	const callers = 16
	errs := make([]error, callers)
	ids := make([]string, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			modules, err := r.client.Modules(ctx)
			errs[i] = err
			for _, m := range modules {
				ids[i] += m.ID + " "
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		r.fail("concurrency", "%v", err)
	}
	for _, got := range ids {
		if got != strings.Join(r.report.ModuleIDs, " ")+" " {
			r.fail("repeat", "plugin.modules.list answers differently when asked again")
			break
		}
	}
}
