package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/junctor-run/junctor/protocol/router"
)

// assets checks that both ways to an asset return the same bytes and that neither reaches
// other files.
func (r *run) assets(ctx context.Context) {
	for i := range r.modules {
		m := &r.modules[i]
		view := viewOf(m)
		if view.BundlePath == "" {
			continue
		}
		r.sameAsset(ctx, m, view)
		r.noWayOut(ctx, m)
	}
}

func (r *run) sameAsset(ctx context.Context, m *router.Module, view router.View) {
	token := r.opts.Token.Reveal()
	asset, err := r.asset(ctx, m.ID, view.BundlePath)
	if err != nil {
		r.fail("plugin.asset.get", "%s: %v", m.ID, err)
		return
	}
	got, err := r.exchange(ctx, assetPath(m, view), "", token)
	switch {
	case err != nil:
		r.fail("HTTP asset", "%s: %v", view.BundlePath, err)
		return
	case got.status != http.StatusOK || !bytes.Equal(got.body, asset.Body):
		r.fail("HTTP asset", "%s over HTTP is not the asset the RPC gives (status %d)", view.BundlePath, got.status)
		return
	}
	// The parameters may differ: the original says charset over HTTP only.
	if kind := got.header.Get("Content-Type"); !scriptType.MatchString(kind) {
		r.fail("HTTP asset", "the content type %q of %s is not a script", kind, view.BundlePath)
	}
	if stated := got.header.Get(router.HeaderIntegrity); stated != asset.Integrity {
		r.fail("HTTP asset", "the header %s of %s is %q, the RPC says %q", router.HeaderIntegrity, view.BundlePath, stated, asset.Integrity)
	}
	missing, err := r.exchange(ctx, router.PathAssets+m.ID+"/no-such-asset-here.js", "", token)
	if err != nil || missing.status < 400 {
		r.fail("unknown asset", "an asset that is not there is answered with %d", missing.status)
	}
}

// noWayOut requests files outside the module in every spelling that is known to have
// deceived a server.
func (r *run) noWayOut(ctx context.Context, m *router.Module) {
	token := r.opts.Token.Reveal()
	for _, way := range []string{"/%2e%2e/%2e%2e/etc/passwd", "/..%2f..%2fetc/passwd", "/%5c..%5c..%5cetc/passwd"} {
		got, err := r.exchange(ctx, router.PathAssets+m.ID+way, "", token)
		if err == nil && got.status < 400 {
			r.fail("asset traversal", "%s is answered with %d and %d bytes", way, got.status, len(got.body))
		}
	}
	for _, path := range []string{"/../../etc/passwd", "a/../../x.js", "http://example.com/x.js", "a\\..\\x.js"} {
		params, _ := json.Marshal(map[string]string{"moduleId": m.ID, "path": path}) // texts always encode
		got, err := r.exchange(ctx, router.PathInvoke, fmt.Sprintf(`{"method":"plugin.asset.get","params":%s}`, params), token)
		if err != nil {
			r.fail("asset traversal", "plugin.asset.get of %q: %v", path, err)
		} else if _, wrong := failure(got.body); wrong != "" {
			r.fail("asset traversal", "plugin.asset.get of %q does not fail: %s", path, wrong)
		}
	}
}

// together checks that concurrent calls receive their own results and that a repeated read
// returns the same result.
func (r *run) together(ctx context.Context) {
	const callers = 16
	errs := make([]error, callers)
	lists := make([]string, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, r.opts.Timeout)
			defer cancel()
			modules, err := r.client.Modules(ctx)
			errs[i], lists[i] = err, listing(modules)
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		r.fail("concurrency", "%v", err)
		return
	}
	want := listing(r.modules)
	for _, got := range lists {
		if got != want {
			r.fail("repeat", "plugin.modules.list answers differently when asked again")
			break
		}
	}
}

// listing returns the manifests of the modules in their order.
func listing(modules []router.Module) string {
	var b strings.Builder
	for i := range modules {
		b.Write(modules[i].Raw)
		b.WriteByte('\n')
	}
	return b.String()
}
