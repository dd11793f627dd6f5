package routerserve

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/protocol/router"
)

// assetBase is where browsers find the files of views, whatever endpoint they
// come from and whether or not it wants a token.
const assetBase = "/api/capability-router/assets/"

const opAsset = "assets"

// AssetURL is the path on our own origin that serves a module's asset, each
// segment escaped; "" if the path is not an asset path.
func AssetURL(endpoint, module, assetPath string) string {
	clean, err := router.CleanAssetPath(assetPath)
	if err != nil || endpoint == "" {
		return ""
	}
	var b strings.Builder
	b.WriteString(assetBase + url.PathEscape(endpoint) + "/" + url.PathEscape(module))
	for segment := range strings.SplitSeq(clean[1:], "/") {
		b.WriteString("/" + url.PathEscape(segment))
	}
	return b.String()
}

// asset is the proxy. Who may fetch what is the engine's decision; the checks
// here are on form, and on what comes back.
func (s *Surface) asset(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return notAllowed(w, r, "GET, HEAD")
	}
	if platform := mobile(r.Header); platform != "" {
		return capability.Errorf(capability.CodeDenied, opAsset, "code of views is not handed out on %s, whose store forbids loading code",
			platform).
			With("platform_restricted", "open the view on a desktop or on the web")
	}
	endpoint, module, assetPath, err := parseAsset(strings.TrimPrefix(r.URL.EscapedPath(), assetBase))
	if err != nil {
		return statusError{err, http.StatusBadRequest}
	}
	input, err := jsonx.Marshal(map[string]string{"path": assetPath})
	if err != nil {
		return err
	}
	inv := capability.Invocation{
		Surface: "router", Client: r.UserAgent(), Principal: who, Audience: capability.AudienceInternal, Input: input,
		Target: capability.Target{Member: capability.Member{Module: module, Kind: "view", Name: "asset"}, Select: selectorOf(endpoint)},
	}
	declared := s.view().assets(inv.Target.Member, endpoint)
	if declared != nil && !declared.allow(assetPath) {
		// A caller that may not fetch anything here gets the same answer as for a missing asset.
		if plan := s.Engine.Plan(r.Context(), inv); plan.Err != nil {
			return statusError{plan.Err, http.StatusBadGateway}
		}
		return capability.Errorf(capability.CodeNotFound, opAsset, "no view of module %s declares %s", module, assetPath).
			With("asset_not_declared", "a module's views serve their bundlePath and what lies beside and below it")
	}
	reply, err := s.Engine.Invoke(r.Context(), inv)
	w.Header().Set("X-Junctor-Invocation", reply.Invocation)
	if err != nil {
		return statusError{err, http.StatusBadGateway}
	}
	file, err := router.DecodeAsset(reply.Result)
	if err != nil {
		return statusError{capability.Wrap(capability.CodeFailed, opAsset, "the endpoint's answer is not an asset", err), http.StatusBadGateway}
	}
	want := []string{file.Integrity}
	if declared != nil {
		want = append(want, declared.integrity[assetPath]...)
	}
	for _, integrity := range want {
		if integrity != "" && !router.MatchesIntegrity(file.Body, integrity) {
			return statusError{capability.Errorf(capability.CodeFailed, opAsset, "%s of module %s is not what its integrity value promises",
				assetPath, module).
				With("integrity_mismatch", "the file was changed after the manifest was written; deploy both again"), http.StatusBadGateway}
		}
	}
	writeAsset(w, r, file)
	return nil
}

func notAllowed(w http.ResponseWriter, r *http.Request, methods string) error {
	w.Header().Set("Allow", methods)
	return statusError{capability.Errorf(capability.CodeNotFound, "route", "%s is not a method of this path", r.Method).
		With("method_not_allowed", "use "+methods), http.StatusMethodNotAllowed}
}

// mobile names the restricted platform a request says it comes from. It helps
// honest clients to keep a store's rules and is not a security boundary.
func mobile(h http.Header) string {
	switch platform := h.Get("X-Eliza-Platform"); platform {
	case "ios", "android":
		return platform
	}
	_, shell, native := strings.Cut(strings.ToLower(h.Get("User-Agent")), "capacitor")
	switch {
	case native && strings.Contains(shell, "ios"):
		return "ios"
	case native && strings.Contains(shell, "android"):
		return "android"
	}
	return ""
}

// parseAsset takes the escaped rest of the URL apart; every segment is decoded
// once, and one that then holds a slash is refused.
func parseAsset(escaped string) (endpoint, module, assetPath string, err error) {
	first, rest, _ := strings.Cut(escaped, "/")
	endpoint, err = url.PathUnescape(first)
	if err != nil || strings.TrimSpace(endpoint) == "" || endpoint == "." || endpoint == ".." || strings.ContainsAny(endpoint, `/\`) {
		return "", "", "", capability.Errorf(capability.CodeInvalidInput, opAsset, "the asset URL does not name an endpoint").
			With("", "the form is "+assetBase+"ENDPOINT/MODULE/PATH")
	}
	module, assetPath, err = router.ParseAssetPath(rest)
	if wire, ok := errors.AsType[*router.Error](err); ok {
		err = wire.ToCapability(opAsset)
	}
	return endpoint, module, assetPath, err
}

// assetRules is what the views of one module allow to be fetched.
type assetRules struct {
	paths     map[string]bool
	dirs      []string // of bundles; what lies below is theirs, as chunks and maps are
	integrity map[string][]string
}

// assets are the rules of the module that serves the member on the endpoint;
// nil if it is missing.
func (v *view) assets(member capability.Member, endpoint string) *assetRules {
	for _, e := range v.snap.Member(member) {
		if e.Module.Endpoint != endpoint {
			continue
		}
		v.mu.Lock()
		defer v.mu.Unlock()
		rules, ok := v.rules[e.Module]
		if !ok {
			rules = newAssetRules(e.Module)
			v.rules[e.Module] = rules
		}
		return rules
	}
	return nil
}

func newAssetRules(m *capability.Module) *assetRules {
	rules := &assetRules{paths: make(map[string]bool), integrity: make(map[string][]string)}
	manifest, err := router.ParseModule(m.Manifest)
	if err != nil {
		return rules // nothing is declared in what cannot be read
	}
	for _, declared := range manifest.Views {
		if bundle, err := router.CleanAssetPath(declared.BundlePath); err == nil {
			rules.paths[bundle] = true
			rules.dirs = append(rules.dirs, path.Dir(bundle))
			if declared.Integrity != "" {
				rules.integrity[bundle] = append(rules.integrity[bundle], declared.Integrity)
			}
		}
		if frame, err := router.CleanAssetPath(declared.FramePath); err == nil {
			rules.paths[frame] = true
		}
	}
	return rules
}

// allow reports whether the path is declared or below a bundle's directory. A
// bundle at the top opens its own level only, or it would open all there is.
func (a *assetRules) allow(p string) bool {
	if a.paths[p] {
		return true
	}
	for _, dir := range a.dirs {
		if dir == "/" && path.Dir(p) == "/" || dir != "/" && strings.HasPrefix(p, dir+"/") {
			return true
		}
	}
	return false
}

func writeAsset(w http.ResponseWriter, r *http.Request, file router.Asset) {
	sum := sha256.Sum256(file.Body)
	etag := `"` + hex.EncodeToString(sum[:]) + `"`
	head := w.Header()
	head.Set("Etag", etag)
	head.Set("Cache-Control", "no-cache") // keep it, but ask again
	head.Set("X-Content-Type-Options", "nosniff")
	contentType, script := mediaType(file.ContentType)
	if !script {
		// A document of the remote must not run as a page of ours.
		head.Set("Content-Security-Policy", "sandbox")
	}
	if file.Integrity != "" {
		head.Set(router.HeaderIntegrity, file.Integrity)
	}
	if router.MatchesETag(r.Header.Get("If-None-Match"), etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	head.Set("Content-Type", contentType)
	head.Set("Content-Length", strconv.Itoa(len(file.Body)))
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		_, _ = w.Write(file.Body) // a failed write means the caller is gone
	}
}

// mediaType is the type to answer with, and whether browsers run it as a script
// and never show it as a document. What cannot be read as a type is bytes.
func mediaType(declared string) (contentType string, script bool) {
	kind, _, err := mime.ParseMediaType(declared)
	if err != nil {
		return "application/octet-stream", false
	}
	switch kind {
	case "text/javascript", "application/javascript", "application/x-javascript", "text/ecmascript", "application/ecmascript":
		return declared, true
	}
	return declared, false
}
