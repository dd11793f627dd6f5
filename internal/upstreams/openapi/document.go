// Package openapi calls the operations of an HTTP API that an OpenAPI document of version 3
// describes. Each operation is a tool. Its definition holds the whole plan of the request, so
// that an approved definition determines what is sent, and where.
package openapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

// ReasonDocument is the reason of errors about a document that cannot be used.
const ReasonDocument = "invalid_openapi"

// Config configures an API.
type Config struct {
	// GraphQL marks Base as the address of a GraphQL API, which describes itself: Document is not used.
	GraphQL bool
	// Document is an https URL, an http URL if Local, or the absolute path of a file.
	Document string
	// Base is the URL below which all operations are. If it equals Document, the document's first
	// server is used, which must have the origin of Document.
	Base  string
	Local bool
	// HTTP sends calls; it connects to the host of Base only. Fetch reads a document of another host.
	HTTP, Fetch *http.Client
	// Header returns headers with credentials for Base, and Secret the secret for the security
	// scheme of an operation, or "". They go to the origin of Base only. Of the headers, Authorization
	// and SecretHeaders are replaced where an answer repeats them.
	Header        func(context.Context) (http.Header, error)
	SecretHeaders []string
	Secret        func() (string, error)
}

// API is an HTTP API. It is safe for concurrent use, and has no connection to lose.
type API struct {
	cfg  Config
	http *http.Client
}

// Info describes a document.
type Info struct {
	OpenAPI, Title, Version string
	Definitions             []json.RawMessage // as MCP tools, by path and method
}

// New returns an API without contacting it. Errors: invalid_input.
func New(cfg Config) (*API, error) {
	u, err := url.Parse(cfg.Base)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" || u.RawQuery != "" && cfg.Base != cfg.Document ||
		u.Scheme != "https" && (u.Scheme != "http" || !cfg.Local) {
		return nil, capability.Errorf(capability.CodeInvalidInput, "upstream",
			"%.100q is not the address of an API: https, or http if it is local", cfg.Base)
	}
	client := *cfg.HTTP // a redirect would send a request that the document does not describe
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &API{cfg, &client}, nil
}

// Load reads the document. Errors: unavailable if it cannot be fetched; invalid_input, reason
// invalid_openapi.
func (a *API) Load(ctx context.Context) (Info, error) {
	if a.cfg.GraphQL {
		return a.loadGraphQL(ctx)
	}
	data, err := a.read(ctx)
	if err != nil {
		return Info{}, err
	}
	return parse(ctx, data, &a.cfg)
}

func (a *API) read(ctx context.Context) ([]byte, error) {
	if u, err := url.Parse(a.cfg.Document); err != nil || u.Host == "" {
		return readFile(a.cfg.Document)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.cfg.Document, http.NoBody)
	if err != nil {
		return nil, invalid("its address cannot be read", err)
	}
	client := a.cfg.Fetch
	if sameOrigin(a.cfg.Document, a.cfg.Base) {
		client = a.http
		if _, err := a.authorize(ctx, req, nil); err != nil {
			return nil, err
		}
	}
	req.Header.Set("Accept", "application/json, application/yaml;q=0.9, */*;q=0.1")
	return fetch(client, req)
}

// fetch returns the document with which a request is answered.
func fetch(client *http.Client, req *http.Request) ([]byte, error) {
	resp, err := client.Do(req)
	if err != nil {
		return nil, unreached("the document cannot be fetched", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, capability.Errorf(capability.CodeUnavailable, "upstream", "the document cannot be fetched: %s", resp.Status).
			With("upstream_error", "check the address, and whether it needs a credential")
	}
	return readDocument(resp.Body)
}

func readFile(name string) ([]byte, error) {
	if info, err := os.Stat(name); err != nil || !info.Mode().IsRegular() {
		return nil, invalid(name+" is not a file that can be read", err)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, invalid(name+" is not a file that can be read", err)
	}
	defer f.Close()
	return readDocument(f)
}

func readDocument(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxDocument+1))
	if err != nil {
		return nil, unreached("the document ends early", err)
	}
	if len(data) > maxDocument {
		return nil, invalid("it is larger than 16 MiB", nil)
	}
	return data, nil
}

// parse returns the operations of a document as tools.
func parse(ctx context.Context, data []byte, cfg *Config) (Info, error) {
	loader := openapi3.NewLoader() // refuses references to other documents
	doc, err := loader.LoadFromData(data)
	external := new(openapi3.DisallowedExternalRefError)
	switch {
	case errors.As(err, &external):
		return Info{}, invalid("it refers to another document, "+text.ShortenBytes(external.Ref, 100)+"; bundle it into one document", nil)
	case doc != nil && doc.OpenAPI == "" || err != nil && strings.Contains(string(data[:min(len(data), 4096)]), "swagger"):
		return Info{}, invalid("it is not OpenAPI 3; convert a document of version 2 (Swagger) first", err)
	case err != nil:
		return Info{}, invalid(text.ShortenBytes(err.Error(), 300), err)
	case !strings.HasPrefix(doc.OpenAPI, "3.0") && !strings.HasPrefix(doc.OpenAPI, "3.1"):
		return Info{}, invalid("its version is "+text.ShortenBytes(doc.OpenAPI, 20)+"; supported are 3.0 and 3.1", nil)
	}
	base, err := baseOf(doc.Servers, cfg)
	if err != nil {
		return Info{}, err
	}
	t := &tools{doc: doc, base: base, schemas: newSchemas(doc)}
	info := Info{OpenAPI: doc.OpenAPI}
	if doc.Info != nil {
		info.Title, info.Version = text.ShortenBytes(doc.Info.Title, 200), text.ShortenBytes(doc.Info.Version, 100)
	}
	info.Definitions, err = t.definitions(ctx)
	return info, err
}

// baseOf returns the URL that paths are appended to.
func baseOf(servers openapi3.Servers, cfg *Config) (*url.URL, error) {
	given, err := url.Parse(cfg.Base)
	if err != nil || cfg.Base != cfg.Document {
		return given, err
	}
	if len(servers) == 0 {
		return given.Parse("/")
	}
	at := serverURL(servers[0])
	u, err := given.Parse(at)
	if err != nil || !sameOrigin(u.String(), cfg.Base) {
		return nil, invalid("its server "+text.ShortenBytes(at, 200)+" is not where the document is; confirm the server with --url", err)
	}
	return u, nil
}

// serverURL returns the URL of a server with the defaults of its variables.
func serverURL(s *openapi3.Server) string {
	at := s.URL
	for name, v := range s.Variables {
		if v != nil {
			at = strings.ReplaceAll(at, "{"+name+"}", v.Default)
		}
	}
	return at
}

func sameOrigin(a, b string) bool {
	x, err := url.Parse(a)
	y, err2 := url.Parse(b)
	return err == nil && err2 == nil && x.Host != "" && strings.EqualFold(x.Scheme, y.Scheme) && strings.EqualFold(x.Host, y.Host)
}

// tools makes the definitions of one document.
type tools struct {
	doc     *openapi3.T
	base    *url.URL
	schemas *schemas
}

// operation is one operation with the path item that it belongs to.
type operation struct {
	method, path string
	item         *openapi3.PathItem
	op           *openapi3.Operation
}

func (t *tools) definitions(ctx context.Context) ([]json.RawMessage, error) {
	var all []operation
	for path, item := range t.doc.Paths.Map() {
		for method, op := range item.Operations() {
			if op != nil && below(path) && slices.Contains(methods(), method) && t.here(item.Servers) && (op.Servers == nil || t.here(*op.Servers)) {
				all = append(all, operation{method, path, item, op})
			}
		}
	}
	if len(all) == 0 {
		return nil, invalid("it has no operation on its server", nil)
	}
	if len(all) > maxOperations {
		return nil, invalid("it has more than 5000 operations", nil)
	}
	slices.SortFunc(all, func(a, b operation) int { return strings.Compare(a.path+" "+a.method, b.path+" "+b.method) })
	wanted := make(map[string]int)
	for _, o := range all {
		wanted[strings.ToLower(o.name())]++
	}
	out, size := make([]json.RawMessage, 0, len(all)), 0
	for _, o := range all {
		if ctx.Err() != nil {
			return nil, capability.AsError(ctx.Err())
		}
		name := o.name()
		if wanted[strings.ToLower(name)] > 1 || len(name) > maxName { // in every document, whatever the order
			name = name[:min(len(name), maxName-9)] + "_" + digest(o.method+" "+o.path)
		}
		d, err := t.definition(name, o)
		if err != nil {
			return nil, err
		}
		if size += len(d); size > maxTools {
			return nil, invalid("its tools would take more than 64 MiB", nil)
		}
		out = append(out, d)
	}
	return out, nil
}

// below reports whether a path stays below the base that it is appended to.
func below(path string) bool {
	plain, err := url.PathUnescape(path)
	return err == nil && !strings.ContainsAny(path, "?#") && !strings.Contains(plain, `\`) &&
		!slices.ContainsFunc(strings.Split(plain, "/"), func(s string) bool { return s == "." || s == ".." })
}

// methods returns the methods of operations that become tools.
func methods() []string {
	return []string{http.MethodDelete, http.MethodGet, http.MethodHead, http.MethodPatch, http.MethodPost, http.MethodPut}
}

// here reports whether an operation with these servers of its own is on the API's origin.
func (t *tools) here(servers openapi3.Servers) bool {
	if len(servers) == 0 {
		return true
	}
	u, err := t.base.Parse(serverURL(servers[0]))
	return err == nil && u.String() == t.base.String()
}

// name returns the operation's own name, or one of its method and path, of letters, digits, _ and -.
func (o *operation) name() string {
	name := o.op.OperationID
	if name == "" {
		name = strings.ToLower(o.method) + o.path
	}
	name = strings.Map(func(r rune) rune {
		if r < 0x80 && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-') {
			return r
		}
		return '_'
	}, name)
	for strings.Contains(name, "__") {
		name = strings.ReplaceAll(name, "__", "_")
	}
	if name = strings.Trim(name, "_"); name == "" {
		name = strings.ToLower(o.method)
	}
	return name
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:4])
}

// meta holds the plan in the definition of a tool.
type meta struct {
	HTTP plan `json:"junctor.run/http"`
}

// plan describes how a call becomes a request.
type plan struct {
	Method     string      `json:"method"`
	URL        string      `json:"url"` // with {name} for parameters in the path
	Parameters []parameter `json:"parameters,omitempty"`
	Body       string      `json:"body,omitempty"` // its media type
	Security   *security   `json:"security,omitempty"`
	GraphQL    string      `json:"graphql,omitempty"` // the document that is sent with the input as its variables
}

// parameter is a member of the input that goes into the request.
type parameter struct {
	Key     string `json:"key"` // in the input
	Name    string `json:"name"`
	In      string `json:"in"`
	Style   string `json:"style"` // "json" for one that is sent as JSON
	Explode bool   `json:"explode,omitempty"`
}

// security is how the secret is sent: in a header, query or cookie, or as bearer or basic.
type security struct {
	How  string `json:"how"`
	Name string `json:"name,omitempty"`
}

func (t *tools) definition(name string, o operation) (json.RawMessage, error) {
	d := mcpwire.Tool{Name: name, Title: text.ShortenBytes(o.op.Summary, 200)}
	lines := []string{o.op.Summary, o.op.Description, o.method + " " + o.path}
	if o.op.Deprecated {
		lines = append([]string{"Deprecated."}, lines...)
	}
	lines = slices.DeleteFunc(lines, func(s string) bool { return s == "" })
	d.Description = text.ShortenBytes(strings.TrimSpace(strings.Join(lines, "\n")), 4<<10)
	read := o.method == http.MethodGet || o.method == http.MethodHead
	d.Annotations = map[string]bool{
		"readOnlyHint": read, "destructiveHint": o.method == http.MethodDelete, "openWorldHint": true,
		"idempotentHint": read || o.method == http.MethodPut || o.method == http.MethodDelete,
	}
	in := &input{schemas: t.schemas, properties: make(map[string]any), defs: make(map[string]any)}
	var p plan
	p.Method, p.URL = o.method, strings.TrimSuffix(t.base.String(), "/")+"/"+strings.TrimPrefix(o.path, "/")
	p.Security = t.security(o.op)
	for _, par := range parametersOf(o) {
		if s := p.Security; s == nil || s.How != par.In || s.Name != par.Name { // the secret goes there
			p.Parameters = append(p.Parameters, in.parameter(par))
		}
	}
	if body := o.op.RequestBody; body != nil && body.Value != nil {
		p.Body = in.body(body.Value)
	}
	d.InputSchema, d.Meta = in.schema(), meta{p}
	out, err := jsonx.Marshal(d)
	if err != nil {
		return nil, invalid("its operation "+o.method+" "+text.ShortenBytes(o.path, 100)+" cannot be written", err)
	}
	return out, nil
}

var pathParameter = regexp.MustCompile(`\{([^{}/]+)\}`)

// parametersOf returns the parameters of an operation and of its path, which the former override.
func parametersOf(o operation) (out []*openapi3.Parameter) {
	byPlace := make(map[string]*openapi3.Parameter)
	for _, m := range pathParameter.FindAllStringSubmatch(o.path, -1) { // documents forget some
		byPlace["path "+m[1]] = &openapi3.Parameter{Name: m[1], In: "path"}
	}
	for _, list := range []openapi3.Parameters{o.item.Parameters, o.op.Parameters} {
		for _, ref := range list {
			if ref == nil || ref.Value == nil || ref.Value.Name == "" {
				continue
			}
			p := ref.Value
			if p.In == "header" && ownHeader(strings.ToLower(p.Name)) {
				continue
			}
			byPlace[p.In+" "+p.Name] = p
		}
	}
	for _, place := range slices.Sorted(maps.Keys(byPlace)) {
		out = append(out, byPlace[place])
	}
	return out
}

// ownHeader reports whether a header, by its name in lower case, describes the connection or the
// sender, can change the method, or brings an answer in which credentials are not found. A document cannot declare it as a parameter.
func ownHeader(name string) bool {
	return strings.HasPrefix(name, "proxy-") || strings.HasPrefix(name, "x-forwarded-") || slices.Contains([]string{
		"accept", "content-type", "authorization", "host", "content-length", "cookie", "connection", "keep-alive", "transfer-encoding", "te",
		"trailer", "upgrade", "expect", "forwarded", "x-http-method-override", "x-http-method", "x-method-override",
		"range", "if-range", "accept-encoding",
	}, name)
}

// security returns how the first scheme that an operation accepts alone is sent, or nil.
func (t *tools) security(op *openapi3.Operation) *security {
	wanted := t.doc.Security
	if op.Security != nil {
		wanted = *op.Security
	}
	for _, alternative := range wanted {
		if len(alternative) != 1 || t.doc.Components == nil {
			continue
		}
		for name := range alternative {
			if ref := t.doc.Components.SecuritySchemes[name]; ref != nil && ref.Value != nil {
				if s := securityOf(ref.Value); s != nil {
					return s
				}
			}
		}
	}
	return nil
}

func securityOf(s *openapi3.SecurityScheme) *security {
	switch kind := strings.ToLower(s.Type + " " + s.Scheme); {
	case s.Type == "apiKey" && s.Name != "" && slices.Contains([]string{"header", "query", "cookie"}, s.In):
		return &security{How: s.In, Name: s.Name}
	case kind == "http basic":
		return &security{How: "basic"}
	case kind == "http bearer", s.Type == "oauth2", s.Type == "openIdConnect":
		return &security{How: "bearer"}
	}
	return nil
}

func invalid(what string, cause error) error {
	return capability.Wrap(capability.CodeInvalidInput, "upstream", "the OpenAPI document cannot be used: "+what, cause).
		With(ReasonDocument, "correct the document, or name another one")
}
