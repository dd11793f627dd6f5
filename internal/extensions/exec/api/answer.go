package api

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/secret"
)

// answer is a Result with the status line and headers of the response.
type answer struct {
	Result
	status string
	header http.Header
}

// finish returns the Result, and an error failed for a status of 400 or more.
func (a answer) finish() (Result, error) {
	if a.Status < 400 {
		return a.Result, nil
	}
	return a.Result, capability.Errorf(capability.CodeFailed, op, "the service answered %s", a.status).
		With("execution_failed", "").Detail("status", a.Status)
}

// shownHeaders returns the response headers that are part of the output.
func shownHeaders() []string {
	return []string{"Content-Type", "Content-Length", "Etag", "Last-Modified", "Location", "Cache-Control", "Retry-After", "Link"}
}

// read builds the answer of a response: output, body and metadata, without the call's
// secret. A body of more than MaxBody bytes is cut.
func read(req Request, u *url.URL, res *http.Response, body []byte) answer {
	cut := len(body) > MaxBody
	if cut {
		body = body[:MaxBody]
	}
	media, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if err != nil {
		media = ""
	}
	hide := hider(req)
	a := answer{status: hide(clean(res.Status)), header: res.Header}
	a.Status, a.Type = res.StatusCode, media
	var b strings.Builder
	if !req.Raw {
		b.WriteString("HTTP " + a.status + "\n")
		for _, name := range shownHeaders() {
			for _, v := range res.Header.Values(name) {
				b.WriteString(strings.ToLower(name) + ": " + hide(clean(v)) + "\n")
			}
		}
		b.WriteByte('\n')
	}
	a.Body = hide(show(media, body, req.Raw))
	if cut { // and with the end what could be the beginning of the secret
		a.Body = text.ClipBytes(a.Body, max(len(a.Body)-maxPartial(req), 0))
	}
	a.Output = b.String() + a.Body
	if cut {
		a.Output += fmt.Sprintf("\n[cut after %d bytes]\n", MaxBody)
	}
	a.Metadata = map[string]any{
		"status": res.StatusCode, "url": hide(masked(u)), "content_type": media, "bytes": len(body), "truncated": cut, "cached": false,
	}
	limits := make(map[string]string)
	for name, header := range map[string]string{
		"limit": "X-Ratelimit-Limit", "remaining": "X-Ratelimit-Remaining",
		"reset": "X-Ratelimit-Reset",
	} {
		if v := res.Header.Get(header); v != "" {
			limits[name] = hide(clean(v))
		}
	}
	if len(limits) > 0 {
		a.Metadata["rate"] = limits
	}
	if to := res.Header.Get("Location"); to != "" && res.StatusCode >= 300 && res.StatusCode < 400 {
		a.Metadata["redirect_not_followed"] = true // to another host, or one too many
	}
	return a
}

// show returns a body as text: JSON indented (unless raw), binary data as its digest.
func show(media string, body []byte, raw bool) string {
	if !utf8.Valid(body) {
		if strings.HasPrefix(media, "text/") {
			return clean(strings.ToValidUTF8(string(body), "\uFFFD"))
		}
		sum := sha256.Sum256(body)
		return fmt.Sprintf("[%d bytes of %s, sha256 %s]\n", len(body), media, hex.EncodeToString(sum[:]))
	}
	if !raw && (media == "application/json" || strings.HasSuffix(media, "+json")) {
		if doc, err := jsonx.MarshalIndent(jsonx.Raw(body)); err == nil && jsonx.Valid(body) {
			return strings.TrimSpace(string(doc)) + "\n"
		}
	}
	return clean(string(body))
}

// clean removes control characters, which could control a terminal.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, s)
}

// secretName matches names of query parameters whose values are secret.
var secretName = regexp.MustCompile(`(?i)key|token|secret|passw|sig|auth|session|code`)

// masked returns the URL with *** for the values of query parameters whose names match secretName.
func masked(u *url.URL) string {
	pairs := strings.Split(u.RawQuery, "&")
	for i, p := range pairs {
		if name, _, ok := strings.Cut(p, "="); ok && secretName.MatchString(name) {
			pairs[i] = name + "=***"
		}
	}
	shown := *u
	shown.RawQuery = strings.Join(pairs, "&")
	return shown.String()
}

// maxPartial returns how many bytes at the end of a body that was cut may be a part of the call's secret, in
// any form: of one byte the longest is &amp;amp;#x00ff; or \u00ff with eight backslashes.
func maxPartial(req Request) int {
	if req.Auth == nil {
		return 0
	}
	return formBytes * (len(req.Auth.User) + len(req.Auth.Secret.Reveal()))
}

// hider returns a function that replaces the call's secret with ••• in a text, in the forms of
// [secret.Redactor].
func hider(req Request) func(string) string {
	if req.Auth == nil || req.Auth.Secret.Empty() {
		return secret.Redactor("•••")
	}
	plain := req.Auth.Secret.Reveal()
	if req.Auth.Kind == "basic" { // which hides a short one too, as it is sent
		return secret.Redactor("•••", req.Auth.User+":"+plain, plain)
	}
	return secret.Redactor("•••", plain)
}
