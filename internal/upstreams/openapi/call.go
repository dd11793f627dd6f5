package openapi

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/secret"
)

const (
	typeForm      = "application/x-www-form-urlencoded"
	typeMultipart = "multipart/form-data"
)

// The ways in which a body is written.
const (
	bodyJSON = iota
	bodyForm
	bodyMultipart
	bodyText
	bodyBytes
)

func bodyKind(mediaType string) int {
	switch {
	case strings.HasSuffix(mediaType, "json"):
		return bodyJSON
	case mediaType == typeForm:
		return bodyForm
	case mediaType == typeMultipart:
		return bodyMultipart
	case strings.HasPrefix(mediaType, "text/"), strings.HasSuffix(mediaType, "xml"):
		return bodyText
	}
	return bodyBytes
}

// Call sends the request that a definition of [API.Load] describes, once, and returns the answer
// as an MCP result. An error status is a result with isError.
func (a *API) Call(ctx context.Context, definition, arguments json.RawMessage) (json.RawMessage, error) {
	var d struct {
		Meta meta `json:"_meta"`
	}
	if err := jsonx.Unmarshal(definition, &d); err != nil || d.Meta.HTTP.Method == "" {
		return nil, capability.Wrap(capability.CodeFailed, "upstream", "the definition has no plan of a request", err).With("upstream_error", "")
	}
	var in map[string]any
	decoder := json.NewDecoder(bytes.NewReader(arguments))
	decoder.UseNumber() // a large number keeps its digits
	if err := decoder.Decode(&in); err != nil && !errors.Is(err, io.EOF) {
		return nil, wrongInput("it is not an object", err)
	}
	p := &d.Meta.HTTP
	if !sameOrigin(p.URL, a.cfg.Base) {
		return nil, capability.Errorf(capability.CodeUnavailable, "upstream", "the operation is on another server than the one of this upstream").
			With("upstream_error", "")
	}
	req, err := p.request(ctx, in)
	if err != nil {
		return nil, err
	}
	secrets, err := a.authorize(ctx, req, p.Security)
	if err != nil {
		return nil, err
	}
	resp, err := a.http.Do(req)
	if err != nil {
		return nil, unreached("the API could not be reached", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return nil, unreached("the answer ends early", err)
	}
	if len(body) > maxAnswer {
		return nil, capability.Errorf(capability.CodeFailed, "upstream", "the answer is larger than 8 MiB").
			With("too_large", "ask for less: many APIs have a parameter for the size of a page")
	}
	// Before anything of it is shortened, because a part of a secret is not found.
	hide := hider(append(secrets, sentSecrets(resp)...))
	for _, values := range resp.Header {
		for i, v := range values {
			values[i] = hide(v)
		}
	}
	return p.result(resp, []byte(hide(string(body))))
}

// authorize adds the headers of the upstream and, if s is set, its secret. It returns the secrets.
func (a *API) authorize(ctx context.Context, req *http.Request, s *security) (secrets []string, err error) {
	if a.cfg.Header != nil {
		h, err := a.cfg.Header(ctx)
		if err != nil {
			return nil, err
		}
		maps.Copy(req.Header, h)
		for _, name := range append([]string{"Authorization"}, a.cfg.SecretHeaders...) {
			secrets = append(secrets, h.Values(name)...)
		}
	}
	if s == nil || a.cfg.Secret == nil {
		return secrets, nil
	}
	secret, err := a.cfg.Secret()
	if err != nil || secret == "" {
		return secrets, err
	}
	switch cookies := req.CookiesNamed(s.Name); {
	case s.How == "query" && req.URL.Query().Has(s.Name), s.How == "cookie" && len(cookies) > 0:
		return nil, wrongInput("it has a value for "+s.Name+", which is where the secret goes", nil)
	case s.How == "header":
		req.Header.Set(s.Name, secret)
	case s.How == "query":
		addQuery(req.URL, url.QueryEscape(s.Name)+"="+url.QueryEscape(secret))
	case s.How == "cookie":
		addCookie(req, s.Name+"="+secret)
	case s.How == "basic":
		req.Header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(secret)))
	default:
		req.Header.Set("Authorization", "Bearer "+secret)
	}
	return append(secrets, secret), nil
}

// sentSecrets returns the Authorization header as it was sent, to which the transport may have added a token.
func sentSecrets(resp *http.Response) []string {
	if resp.Request == nil {
		return nil
	}
	return resp.Request.Header.Values("Authorization")
}

// hider returns a function that replaces secrets of six bytes or more in an answer, because an API may
// repeat what it was sent. Of the value of a header it also replaces what follows a scheme such as Bearer,
// of Basic the decoded user and password, and of user:password the password.
func hider(secrets []string) func(string) string {
	for _, s := range secrets {
		if scheme, token, ok := strings.Cut(s, " "); ok {
			secrets = append(secrets, token)
			if pair, err := base64.StdEncoding.DecodeString(token); err == nil && strings.EqualFold(scheme, "basic") {
				secrets = append(secrets, string(pair))
			}
		}
	}
	for _, s := range secrets {
		if _, password, ok := strings.Cut(s, ":"); ok {
			secrets = append(secrets, password)
		}
	}
	secrets = slices.DeleteFunc(secrets, func(s string) bool { return len(s) < 6 })
	return secret.Redactor("•••", secrets...)
}

func addQuery(u *url.URL, pair string) {
	if u.RawQuery != "" {
		u.RawQuery += "&"
	}
	u.RawQuery += pair
}

func addCookie(req *http.Request, pair string) {
	if before := req.Header.Get("Cookie"); before != "" {
		pair = before + "; " + pair
	}
	req.Header.Set("Cookie", pair)
}

// request writes the input into a request.
func (p *plan) request(ctx context.Context, in map[string]any) (*http.Request, error) {
	var body []byte
	var contentType string
	var err error
	if p.GraphQL != "" {
		contentType = "application/json"
		body, err = json.Marshal(map[string]any{"query": p.GraphQL, "variables": in})
	} else {
		body, contentType, err = p.content(in["body"])
	}
	if err != nil {
		return nil, err
	}
	// The path is filled in segment by segment, so that a value cannot leave its own.
	path := p.URL
	for _, par := range p.Parameters {
		if par.In != "path" {
			continue
		}
		value := serialize(&par, in[par.Key], url.PathEscape)
		if value == "" || value == "." || value == ".." {
			return nil, wrongInput(par.Key+" is missing, or cannot be a part of a path", nil)
		}
		path = strings.ReplaceAll(path, "{"+par.Name+"}", value)
	}
	req, err := http.NewRequestWithContext(ctx, p.Method, path, bytes.NewReader(body))
	if err != nil {
		return nil, wrongInput("its path cannot be written", err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	req.Header.Set("Accept", "application/json, */*;q=0.5")
	for _, par := range p.Parameters {
		value, given := in[par.Key]
		if !given || value == nil {
			continue
		}
		switch par.In {
		case "query":
			for _, pair := range pairs(&par, value) {
				addQuery(req.URL, pair)
			}
		case "header":
			text := serialize(&par, value, func(s string) string { return s })
			if strings.ContainsAny(text, "\r\n\x00") {
				return nil, wrongInput(par.Key+" has a line break", nil)
			}
			req.Header.Set(par.Name, text)
		case "cookie":
			for _, pair := range pairs(&par, value) {
				addCookie(req, pair)
			}
		}
	}
	return req, nil
}

// content writes the body.
func (p *plan) content(value any) (body []byte, contentType string, err error) {
	if value == nil || p.Body == "" {
		return nil, "", nil
	}
	members, _ := value.(map[string]any)
	switch bodyKind(p.Body) {
	case bodyJSON:
		body, err = json.Marshal(value)
		return body, p.Body, err
	case bodyForm:
		form := make(url.Values)
		for name, v := range members {
			form[name] = texts(v)
		}
		return []byte(form.Encode()), p.Body, nil
	case bodyMultipart:
		var buf bytes.Buffer
		w := multipart.NewWriter(&buf)
		for _, name := range slices.Sorted(maps.Keys(members)) {
			for _, v := range texts(members[name]) {
				if err := w.WriteField(name, v); err != nil {
					return nil, "", wrongInput("a part cannot be written", err)
				}
			}
		}
		err = w.Close()
		return buf.Bytes(), w.FormDataContentType(), err
	}
	s, ok := value.(string)
	if !ok {
		return nil, "", wrongInput("body is not a string", nil)
	}
	if bodyKind(p.Body) == bodyText {
		return []byte(s), p.Body, nil
	}
	if body, err = base64.StdEncoding.DecodeString(s); err != nil {
		return nil, "", wrongInput("body is not base64", err)
	}
	return body, p.Body, nil
}

// word returns a value as text; an object or a list as JSON.
func word(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case nil:
		return ""
	case json.Number:
		return v.String()
	}
	data, _ := json.Marshal(v)
	return string(data)
}

// texts returns the members of a list, or the one value.
func texts(v any) (out []string) {
	list, ok := v.([]any)
	if !ok {
		return []string{word(v)}
	}
	for _, one := range list {
		out = append(out, word(one))
	}
	return out
}

// serialize writes a value in the styles simple, label and matrix of a path or header.
func serialize(p *parameter, v any, escape func(string) string) string {
	if p.Style == "json" {
		data, _ := json.Marshal(v)
		return escape(string(data))
	}
	var parts []string
	object, isObject := v.(map[string]any)
	if isObject {
		for _, name := range slices.Sorted(maps.Keys(object)) {
			between := ","
			if p.Explode {
				between = "="
			}
			parts = append(parts, escape(name)+between+escape(word(object[name])))
		}
	} else {
		for _, one := range texts(v) {
			parts = append(parts, escape(one))
		}
	}
	switch {
	case v == nil:
		return ""
	case p.Style == "label" && p.Explode:
		return "." + strings.Join(parts, ".")
	case p.Style == "label":
		return "." + strings.Join(parts, ",")
	case p.Style == "matrix" && p.Explode && isObject:
		return ";" + strings.Join(parts, ";")
	case p.Style == "matrix" && p.Explode:
		return ";" + escape(p.Name) + "=" + strings.Join(parts, ";"+escape(p.Name)+"=")
	case p.Style == "matrix":
		return ";" + escape(p.Name) + "=" + strings.Join(parts, ",")
	}
	return strings.Join(parts, ",")
}

// pairs writes a value as NAME=VALUE pairs of a query or cookie.
func pairs(p *parameter, v any) (out []string) {
	name, object := url.QueryEscape(p.Name), map[string]any(nil)
	if p.Style == "json" {
		data, _ := json.Marshal(v)
		return []string{name + "=" + url.QueryEscape(string(data))}
	}
	if m, ok := v.(map[string]any); ok {
		object = m
	}
	separator := map[string]string{"spaceDelimited": "%20", "pipeDelimited": "%7C"}[p.Style]
	if separator == "" {
		separator = ","
	}
	var words []string
	for _, key := range slices.Sorted(maps.Keys(object)) {
		value := url.QueryEscape(word(object[key]))
		switch {
		case p.Style == "deepObject":
			out = append(out, url.QueryEscape(p.Name+"["+key+"]")+"="+value)
		case p.Explode:
			out = append(out, url.QueryEscape(key)+"="+value)
		default:
			words = append(words, url.QueryEscape(key), value)
		}
	}
	if object == nil {
		for _, one := range texts(v) {
			if one = url.QueryEscape(one); p.Explode {
				out = append(out, name+"="+one)
			} else {
				words = append(words, one)
			}
		}
	}
	if len(words) > 0 {
		out = append(out, name+"="+strings.Join(words, separator))
	}
	return out
}

// result converts an answer to an MCP result.
func (p *plan) result(resp *http.Response, body []byte) (json.RawMessage, error) {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	out := map[string]any{"_meta": map[string]any{"junctor.run/status": resp.StatusCode}}
	var content []any
	if p.GraphQL != "" && failedGraphQL(body) {
		out["isError"] = true
	}
	add := func(s string) { content = append(content, map[string]any{"type": "text", "text": s}) }
	switch {
	case resp.StatusCode >= 300:
		out["isError"] = true
		shown := fmt.Sprintf("HTTP %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
		if to := resp.Header.Get("Location"); to != "" {
			shown += "; it leads to " + text.ShortenBytes(to, 200) + ", which is not followed"
		}
		if after := resp.Header.Get("Retry-After"); after != "" {
			shown += "; try again after " + text.ShortenBytes(after, 40)
		}
		if len(body) > 0 && utf8.Valid(body) {
			shown += "\n" + text.ShortenBytes(string(body), maxFailed)
		}
		add(shown)
	case len(body) == 0:
		add(fmt.Sprintf("HTTP %d, without a body", resp.StatusCode))
	case utf8.Valid(body):
		add(string(body))
		if object := bytes.TrimSpace(body); bodyKind(kind) == bodyJSON && len(object) > 0 && object[0] == '{' && jsonx.Valid(object) {
			out["structuredContent"] = jsonx.Raw(object)
		}
	case strings.HasPrefix(kind, "image/"):
		content = append(content, map[string]any{"type": "image", "mimeType": kind, "data": body})
	default:
		if kind == "" {
			kind = "application/octet-stream"
		}
		content = append(content, map[string]any{"type": "resource", "resource": map[string]any{"uri": p.URL, "mimeType": kind, "blob": body}})
	}
	if next := p.next(resp); next != "" {
		add("More follows. For the next page call this again with " + next)
	}
	out["content"] = content
	value, err := jsonx.Marshal(out)
	if err != nil {
		return nil, capability.Wrap(capability.CodeFailed, "upstream", "the answer cannot be passed on", err).With("upstream_error", "")
	}
	return value, nil
}

// next returns the parameters of the next page that a Link header names (RFC 8288), as JSON, if
// the next page is one of the same operation.
func (p *plan) next(resp *http.Response) string {
	for _, link := range resp.Header.Values("Link") {
		for part := range strings.SplitSeq(link, ",") {
			target, attributes, ok := strings.Cut(strings.TrimSpace(part), ">")
			u, err := resp.Request.URL.Parse(strings.TrimPrefix(target, "<"))
			if !ok || err != nil || !strings.Contains(strings.ReplaceAll(attributes, `"`, ""), "rel=next") || u.Path != resp.Request.URL.Path ||
				u.Host != resp.Request.URL.Host {
				continue
			}
			with := make(map[string]string)
			for _, par := range p.Parameters {
				if value := u.Query().Get(par.Name); par.In == "query" && value != "" {
					with[par.Key] = value
				}
			}
			if data, err := jsonx.Marshal(with); err == nil && len(with) > 0 && len(data) < 4<<10 {
				return string(data)
			}
		}
	}
	return ""
}

func wrongInput(what string, cause error) error {
	return capability.Wrap(capability.CodeInvalidInput, "upstream", "the input does not fit the operation: "+what, cause).
		With("invalid_input", "see the schema of the tool")
}

// unreached returns an error without the address of the request, which may hold a secret. The code
// is unavailable only if nothing was sent.
func unreached(what string, err error) error {
	if of := new(url.Error); errors.As(err, &of) {
		err = of.Err
	}
	if e := new(capability.Error); errors.As(err, &e) {
		return e
	}
	code := capability.CodeFailed // it may have arrived
	if of := new(net.OpError); errors.As(err, &of) && of.Op == "dial" {
		code = capability.CodeUnavailable
	}
	return capability.Wrap(code, "upstream", what, err).With(capability.ReasonConnectionFailed,
		"check that the API is up, then look before you repeat a write")
}
