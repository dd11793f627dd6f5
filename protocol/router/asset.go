package router

import (
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// HeaderIntegrity is the HTTP header with an asset's integrity value.
const HeaderIntegrity = "X-Eliza-Asset-Integrity"

// Asset is a decoded file of a module's view.
type Asset struct {
	Path        string
	ContentType string
	Body        []byte
	Integrity   string // stated by the endpoint, not verified; may be empty
}

// DecodeAsset decodes the result of plugin.asset.get. It does not verify the integrity value.
func DecodeAsset(result json.RawMessage) (Asset, error) {
	const method = "plugin.asset.get"
	decoded, err := DecodeResult(method, result)
	if err != nil {
		return Asset{}, err
	}
	body, err := base64.StdEncoding.DecodeString(paramText(decoded, "bodyBase64"))
	if err != nil {
		d := decoder{}
		return Asset{}, asAnswer(d.fail(method, "\"bodyBase64\" %v", errBase64), method)
	}
	return Asset{
		Path: paramText(decoded, "path"), ContentType: paramText(decoded, "contentType"),
		Integrity: paramText(decoded, "integrity"), Body: body,
	}, nil
}

// EncodeAsset is the inverse of DecodeAsset.
func EncodeAsset(a Asset) (json.RawMessage, error) {
	return marshal(struct {
		Path        string `json:"path"`
		ContentType string `json:"contentType"`
		Body        string `json:"bodyBase64"`
		Integrity   string `json:"integrity,omitempty"`
	}{a.Path, a.ContentType, base64.StdEncoding.EncodeToString(a.Body), a.Integrity})
}

// Integrity returns the value for body: "sha256-" and the digest in base64.
func Integrity(body []byte) string {
	sum := sha256.Sum256(body)
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// MatchesIntegrity reports whether one of the tokens of integrity (sha256, sha384 or sha512,
// separated by blanks) is the digest of body. It ignores tokens of other kinds, and returns
// false if no other token is left.
func MatchesIntegrity(body []byte, integrity string) bool {
	for token := range strings.FieldsSeq(integrity) {
		alg, want, _ := strings.Cut(token, "-")
		var got []byte
		switch alg {
		case "sha256":
			sum := sha256.Sum256(body)
			got = sum[:]
		case "sha384":
			sum := sha512.Sum384(body)
			got = sum[:]
		case "sha512":
			sum := sha512.Sum512(body)
			got = sum[:]
		default:
			continue
		}
		want, _, _ = strings.Cut(want, "?")
		if subtle.ConstantTimeCompare([]byte(want), []byte(base64.StdEncoding.EncodeToString(got))) == 1 {
			return true
		}
	}
	return false
}

// ParseAssetPath splits the escaped remainder of an asset URL into the module id and the asset
// path with a leading slash, and decodes each segment once. Segments that are empty, "." or
// ".." after decoding, or contain slashes, backslashes or control characters, are errors.
func ParseAssetPath(escaped string) (module, path string, err error) {
	first, rest, ok := strings.Cut(escaped, "/")
	if !ok || rest == "" {
		return "", "", errAssetURL("needs a module id and an asset path")
	}
	if module, err = url.PathUnescape(first); err != nil || CheckModuleID(module) != nil {
		return "", "", errAssetURL("does not name a module")
	}
	var b strings.Builder
	for seg := range strings.SplitSeq(rest, "/") {
		dec, err := url.PathUnescape(seg)
		if err != nil {
			return "", "", errAssetURL("has a malformed percent escape")
		}
		if dec == "" || dec == "." || dec == ".." || strings.ContainsAny(dec, "/\\") || strings.IndexFunc(dec, isControl) >= 0 {
			return "", "", errAssetURL("has an unsafe segment")
		}
		b.WriteByte('/')
		b.WriteString(dec)
	}
	if err := CheckAssetPath(b.String()); err != nil {
		return "", "", errAssetURL(err.Error())
	}
	return module, b.String(), nil
}

func errAssetURL(msg string) *Error {
	return &Error{
		Code: CodeDecodeFailed, Status: http.StatusBadRequest, Method: "plugin.asset.get",
		Message: "the asset URL " + msg, Details: detailsOf(capability.CodeInvalidInput, ""),
	}
}

// asset serves a file of a module's view. A path that is not found is tried again undecoded.
func (h *handler) asset(w http.ResponseWriter, r *http.Request, backend Backend) {
	escaped := strings.TrimPrefix(r.URL.EscapedPath(), PathAssets)
	module, path, err := ParseAssetPath(escaped)
	if err != nil {
		writeError(w, asWire(err, ""))
		return
	}
	a, err := fetchAsset(r.Context(), backend, module, path)
	if _, raw, _ := strings.Cut(escaped, "/"); err != nil && "/"+raw != path && CheckAssetPath(raw) == nil {
		// Endpoints for the original implementation expect the undecoded form.
		if again, rawErr := fetchAsset(r.Context(), backend, module, "/"+raw); rawErr == nil {
			a, err = again, nil
		}
	}
	if err != nil {
		e := *inMethod(err, "plugin.asset.get")
		// An asset has no envelope, so the status must show the failure.
		e.Status = e.ToCapability("").Code.Row().HTTP
		writeError(w, &e)
		return
	}
	h.writeAsset(w, r, a)
}

func fetchAsset(ctx context.Context, backend Backend, module, path string) (Asset, error) {
	params, err := marshal(map[string]string{"moduleId": module, "path": path})
	if err != nil {
		return Asset{}, err
	}
	result, err := backend.Invoke(ctx, "plugin.asset.get", params)
	if err != nil {
		return Asset{}, err
	}
	return DecodeAsset(result)
}

func (h *handler) writeAsset(w http.ResponseWriter, r *http.Request, a Asset) {
	sum := sha256.Sum256(a.Body)
	etag := `"` + hex.EncodeToString(sum[:]) + `"`
	head := w.Header()
	head.Set("ETag", etag)
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Cache-Control", "no-cache") // may be cached, but must be revalidated
	if h.opts.OpenAssets {
		head.Set("Access-Control-Allow-Origin", "*")
	}
	if a.Integrity != "" {
		head.Set(HeaderIntegrity, a.Integrity)
	}
	if MatchesETag(r.Header.Get("If-None-Match"), etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.untilTaken(w, len(a.Body))
	head.Set("Content-Type", a.ContentType)
	head.Set("Content-Length", strconv.Itoa(len(a.Body)))
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		_, _ = w.Write(a.Body) // a failed write means the caller is gone
	}
}

// MatchesETag reports whether an If-None-Match header lists an entity tag.
func MatchesETag(header, etag string) bool {
	for tag := range strings.SplitSeq(header, ",") {
		tag = strings.TrimPrefix(strings.TrimSpace(tag), "W/")
		if tag == etag || tag == "*" {
			return true
		}
	}
	return false
}

func marshal(v any) (json.RawMessage, error) { return jsonx.Marshal(v) }
