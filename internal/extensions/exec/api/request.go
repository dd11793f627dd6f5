package api

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/command"
	"github.com/junctor-run/junctor/internal/core/command/fault"
)

// Flags returns the flags that every api action accepts. They are declared beside the
// action's own, so that the parser treats the word after a flag as its value.
func Flags() []command.Flag {
	value := func(name, short, text string, repeat bool) command.Flag {
		return command.Flag{Arg: command.Arg{Name: name, Description: text}, Short: short, TakesValue: true, Repeat: repeat}
	}
	return []command.Flag{
		value("header", "H", "a header, name:value", true),
		value("query", "", "a query parameter, name=value", true),
		value("json", "", "a JSON body", false),
		value("data", "d", "a body", false),
		value("form", "", "a form field, name=value", true),
		value("method", "X", "the method of api.call", false),
		value("auth", "", "who it is: a setting or secret for a bearer token, or basic:USER:NAME, header:HEADER:NAME, query:PARAMETER:NAME",
			false),
		value("variables", "", "the variables of api.graphql, as JSON", false),
		{Arg: command.Arg{Name: "raw", Description: "the body alone"}},
		{Arg: command.Arg{Name: "no-cache", Description: "do not use a stored answer"}},
	}
}

// ParseAuth parses the flag --auth. name is the name of the setting or stored secret
// from which the caller sets Secret.
func ParseAuth(text string) (a Auth, name string, err error) {
	kind, rest, several := strings.Cut(text, ":")
	if !several {
		return Auth{Kind: "bearer"}, text, nil
	}
	first, name, ok := strings.Cut(rest, ":")
	if !ok || first == "" || name == "" {
		return a, "", fault.InvalidArgs("", "--auth is a name, or basic:USER:NAME, header:HEADER:NAME or query:PARAMETER:NAME")
	}
	switch kind {
	case "basic":
		return Auth{Kind: kind, User: first}, name, nil
	case "header", "query":
		return Auth{Kind: kind, Name: first}, name, nil
	}
	return a, "", fault.InvalidArgs("", "%.20q is not a kind of --auth: use basic, header or query", kind)
}

// FromRoute returns the request that a route describes: the method from the runner
// (api.get, …, api.graphql, api.call with --method); the URL from the first argument,
// or the action's base_url with the first argument as the path below it. The caller
// sets Policy, Auth and User. With a base_url, the call and therefore Auth stay on its
// host. Errors are invalid_input, reason invalid_args or unsupported_runner.
func FromRoute(r *command.Route) (Request, error) {
	req := Request{Extension: r.Command.Extension, Header: make(http.Header), Timeout: r.Action.Timeout}
	words := r.Positional
	verb, _ := strings.CutPrefix(r.Action.Runner, "api.")
	verbs := []string{"get", "post", "put", "patch", "delete", "head"}
	switch {
	case slices.Contains(verbs, verb):
		req.Method = strings.ToUpper(verb)
	case verb == "graphql":
		req.Method = http.MethodPost
	case verb == "call":
		method, _ := r.Flag("method")
		if req.Method = strings.ToUpper(method); method == "" {
			req.Method = http.MethodGet
		} else if !slices.Contains(verbs, strings.ToLower(method)) {
			return req, fault.InvalidArgs("", "the method is one of %s", strings.Join(verbs, ", "))
		}
	default:
		return req, fault.UnsupportedRunner(r.Action.Runner, append(verbs, "graphql", "call"))
	}
	var path string
	if verb != "graphql" || r.Action.BaseURL == "" {
		if len(words) == 0 && r.Action.BaseURL == "" {
			return req, fault.InvalidArgs("", "the URL is missing")
		}
		if len(words) > 0 {
			path, words = words[0], words[1:]
		}
	}
	full, err := resolve(r.Action.BaseURL, path)
	if err != nil {
		return req, err
	}
	req.URL = full
	for name, value := range r.Action.Headers {
		req.Header.Set(name, value)
	}
	for _, h := range list(r, "header") {
		name, value, ok := strings.Cut(h, ":")
		if !ok {
			return req, fault.InvalidArgs("", "a header is written name:value")
		}
		req.Header.Set(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	req.Query = list(r, "query")
	req.Raw, req.NoCache = r.Flags["raw"] == true, r.Flags["no-cache"] == true
	req.CacheTTL, req.Version = r.Action.Cache, r.Command.Generation
	return req, body(&req, r, verb, words)
}

// list returns the values of a flag that may be given once or several times.
func list(r *command.Route, flag string) []string {
	switch v := r.Flags[flag].(type) {
	case []string:
		return v
	case string:
		return []string{v}
	}
	return nil
}

// resolve joins a base URL and the typed path. Without a base, the path must be the
// whole URL and is returned unchanged. A path that leads out of the base (another host
// or scheme, "..") is invalid_input.
func resolve(base, path string) (string, error) {
	if base == "" {
		return path, nil
	}
	b, err := url.Parse(base)
	if err != nil || b.Host == "" {
		return "", fault.InvalidArgs("", "the base_url of the action is not a URL")
	}
	if path == "" {
		return base, nil
	}
	outside := fault.InvalidArgs("", "the address must be a path below %s", b.Redacted())
	p, err := url.Parse(path)
	if err != nil || p.Opaque != "" || p.User != nil {
		return "", outside
	}
	if p.Host != "" || p.Scheme != "" {
		if p.Scheme != b.Scheme || !strings.EqualFold(p.Host, b.Host) {
			return "", outside
		}
		p.Path = "/" + strings.TrimPrefix(strings.TrimPrefix(p.Path, strings.TrimRight(b.Path, "/")), "/")
	}
	for part := range strings.SplitSeq(p.Path, "/") {
		if part == ".." || part == "." {
			return "", outside
		}
	}
	full := b.JoinPath(strings.TrimPrefix(p.EscapedPath(), "/")) // which decodes once
	if full.RawQuery = p.RawQuery; b.RawQuery != "" && p.RawQuery != "" {
		full.RawQuery = b.RawQuery + "&" + p.RawQuery
	} else if p.RawQuery == "" {
		full.RawQuery = b.RawQuery
	}
	return full.String(), nil
}

// body sets the body and its type: for graphql from the words and --variables, else
// from --json, --data or --form. More than one of these is invalid_input.
func body(req *Request, r *command.Route, verb string, words []string) error {
	if verb == "graphql" {
		query := strings.Join(words, " ")
		if query == "" {
			return fault.InvalidArgs("", "the GraphQL query is missing")
		}
		doc := struct {
			Query     string     `json:"query"`
			Variables *jsonx.Raw `json:"variables,omitzero"`
		}{Query: query}
		if v, ok := r.Flag("variables"); ok {
			if !jsonx.Valid([]byte(v)) {
				return fault.InvalidArgs("", "the variables are not JSON")
			}
			raw := jsonx.Raw(v)
			doc.Variables = &raw
		}
		data, err := jsonx.Marshal(doc)
		req.Body, req.BodyType = data, "application/json"
		return err
	}
	given := 0
	if v, ok := r.Flag("json"); ok {
		if !json.Valid([]byte(v)) {
			return fault.InvalidArgs("", "the value of --json is not JSON")
		}
		req.Body, req.BodyType = []byte(v), "application/json"
		given++
	}
	if v, ok := r.Flag("data"); ok {
		req.Body, req.BodyType = []byte(v), "text/plain; charset=utf-8"
		given++
	}
	if fields := list(r, "form"); len(fields) > 0 {
		form := make(url.Values)
		for _, f := range fields {
			name, value, _ := strings.Cut(f, "=")
			form.Add(name, value)
		}
		req.Body, req.BodyType = []byte(form.Encode()), "application/x-www-form-urlencoded"
		given++
	}
	if given > 1 {
		return fault.InvalidArgs("", "only one of --json, --data and --form can be the body")
	}
	return nil
}

// target returns the URL of a call with its query and, for Auth kind query, the secret. A URL that
// is not absolute http or https, has a user, or a host outside ASCII is invalid_input.
func target(req Request) (*url.URL, error) {
	bad := func(text string) (*url.URL, error) { return nil, fault.InvalidArgs("", "%s", text) }
	if len(req.URL) > maxURL {
		return bad("the URL is too long")
	}
	u, err := url.Parse(req.URL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return bad("the URL is not an absolute http or https URL")
	case u.User != nil:
		return bad("a URL with a user in it is refused: use the extension's configuration")
	}
	for i := range len(u.Host) {
		if u.Host[i] > 0x7e {
			return bad("write an international host name as xn--…")
		}
	}
	u.Fragment, u.RawFragment = "", ""
	query := u.Query()
	for _, pair := range req.Query {
		name, value, _ := strings.Cut(pair, "=")
		query.Add(name, value)
	}
	if a := req.Auth; a != nil && a.Kind == "query" {
		query.Set(a.Name, a.Secret.Reveal())
	}
	if len(req.Query) > 0 || req.Auth != nil && req.Auth.Kind == "query" {
		u.RawQuery = query.Encode()
	}
	return u, nil
}

// build returns the HTTP request with headers and credentials. Headers of the
// connection (Host, Connection, Proxy-…), and values with a line end, are refused.
func build(ctx context.Context, req Request, u *url.URL) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, req.Method, u.String(), bytes.NewReader(req.Body))
	if err != nil {
		return nil, capability.Wrap(capability.CodeInvalidInput, op, "the request cannot be made", err).With("invalid_args", "")
	}
	for name, values := range req.Header {
		lower := strings.ToLower(name)
		if !token(name) || strings.HasPrefix(lower, "proxy-") || slices.Contains([]string{
			"host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade", "keep-alive", "accept-encoding",
		}, lower) || req.Auth != nil && (lower == "range" || lower == "if-range") { // a part may hold half of a credential
			return nil, fault.InvalidArgs("", "the header %.64q cannot be set", name)
		}
		for _, v := range values {
			if strings.ContainsAny(v, "\r\n\x00") {
				return nil, fault.InvalidArgs("", "the value of the header %s holds a line end", name)
			}
			r.Header.Add(name, v)
		}
	}
	if len(req.Body) > 0 && r.Header.Get("Content-Type") == "" {
		r.Header.Set("Content-Type", req.BodyType)
	}
	if r.Header.Get("User-Agent") == "" {
		r.Header.Set("User-Agent", "junctor")
	}
	if a := req.Auth; a != nil {
		switch a.Kind {
		case "bearer":
			r.Header.Set("Authorization", "Bearer "+a.Secret.Reveal())
		case "basic":
			r.SetBasicAuth(a.User, a.Secret.Reveal())
		case "header":
			if !token(a.Name) {
				return nil, fault.InvalidArgs("", "the header of the credentials has no name")
			}
			r.Header.Set(a.Name, a.Secret.Reveal())
		case "query":
		default:
			return nil, fault.InvalidArgs("", "the kind of credentials %q is unknown", a.Kind)
		}
	}
	return r, nil
}

// token reports whether s is a valid header name (RFC 9110, token).
func token(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0) {
			return false
		}
	}
	return s != ""
}
