package ingest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/catalog"
)

// schemas checks the schemas of a tool and sets Input, Output and Headers.
func (d *Definition) schemas(in *declared) error {
	var head struct {
		Dialect any `json:"$schema"`
		Type    any `json:"type"`
	}
	switch {
	case len(in.InputSchema) == 0:
		return errors.New("it has no input schema")
	case jsonx.Unmarshal(in.InputSchema, &head) != nil || head.Type != "object":
		return errors.New("its input schema is not that of an object")
	}
	var err error
	if d.Input, err = d.schema("input", in.InputSchema); err != nil {
		return err
	}
	if len(in.OutputSchema) > 0 && in.OutputSchema.Kind() != 'n' {
		if d.Output, err = d.schema("output", in.OutputSchema); err != nil {
			return err
		}
	}
	d.Headers, err = headers(in.InputSchema)
	return err
}

// schema returns the schema if it is usable here, or nil if its dialect is unknown. A
// schema that is invalid or too large is an error.
func (d *Definition) schema(which string, doc jsonx.Raw) (json.RawMessage, error) {
	var head struct {
		Dialect any `json:"$schema"`
	}
	if doc.Kind() != '{' || jsonx.Unmarshal(doc, &head) != nil {
		return nil, fmt.Errorf("its %s schema is not an object", which)
	}
	if name, given := head.Dialect.(string); given && !knownDialect(name) {
		d.Advice = append(d.Advice, fmt.Sprintf("its %s schema speaks a dialect that is not known here, so only the server itself checks by it",
			which))
		return nil, nil
	}
	if weight(doc) > maxWeight {
		return nil, fmt.Errorf("its %s schema refers to itself so often that checking by it would not end", which)
	}
	if _, err := catalog.CompileSchema(doc); err != nil {
		return nil, fmt.Errorf("its %s schema cannot be used: %s", which, text.CutBytes(Shown(err.Error()), 300))
	}
	return json.RawMessage(doc), nil
}

// knownDialect reports whether the compiler supports that dialect.
func knownDialect(uri string) bool {
	uri = strings.TrimSuffix(uri, "#")
	for _, scheme := range []string{"https://", "http://"} {
		if rest, ok := strings.CutPrefix(uri, scheme+"json-schema.org/"); ok {
			return slices.Contains([]string{
				"draft/2020-12/schema", "draft/2019-09/schema", "draft-07/schema", "draft-06/schema",
				"draft-04/schema",
			}, rest)
		}
	}
	return false
}

// strange is the weight of a reference that cannot be resolved here.
const strange = 1000

// weight returns the number of subschemas of a document after every local reference is
// expanded. A recursive reference weighs nothing, because it applies to another value.
func weight(doc []byte) int {
	var root any
	if json.Unmarshal(doc, &root) != nil {
		return 0 // the compiler reports the error
	}
	w := weigher{root: root, named: make(map[string]any), known: make(map[string]int), under: make(map[string]bool)}
	w.names(root)
	return w.of(root)
}

type weigher struct {
	root  any
	named map[string]any // by anchor or id, in the form of references
	known map[string]int
	under map[string]bool
}

// names collects the subschemas that have an anchor or id.
func (w *weigher) names(v any) {
	switch x := v.(type) {
	case []any:
		for _, item := range x {
			w.names(item)
		}
	case map[string]any:
		for name, item := range x {
			switch text, _ := item.(string); {
			case text != "" && (name == "$anchor" || name == "$dynamicAnchor"):
				w.named["#"+text] = x
			case text != "" && (name == "$id" || name == "id"):
				w.named[text] = x
			default:
				w.names(item)
			}
		}
	}
}

func (w *weigher) of(v any) int {
	sum := 0
	switch x := v.(type) {
	case []any:
		for _, item := range x {
			sum = min(sum+w.of(item), maxWeight+1)
		}
	case map[string]any:
		sum = 1
		for name, item := range x {
			if ref, ok := item.(string); ok && (name == "$ref" || name == "$dynamicRef") {
				sum += w.ref(ref)
			} else if name != "$defs" && name != "definitions" && name != "enum" && name != "const" && name != "default" && name != "examples" {
				sum += w.of(item)
			}
			sum = min(sum, maxWeight+1)
		}
	}
	return sum
}

func (w *weigher) ref(ref string) int {
	if n, ok := w.known[ref]; ok {
		return n
	}
	if w.under[ref] {
		return 0
	}
	at, named := w.named[ref]
	path, ok := strings.CutPrefix(ref, "#")
	switch {
	case named:
		path = ""
	case !ok:
		return strange // the compiler refuses it or resolves it differently
	default:
		at = w.root
	}
	for part := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		if part == "" {
			break
		}
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		object, _ := at.(map[string]any)
		at = object[part]
	}
	if at == nil {
		return strange
	}
	w.under[ref] = true
	n := w.of(at)
	delete(w.under, ref)
	w.known[ref] = n
	return n
}

// property holds the members of a schema that x-mcp-header uses.
type property struct {
	Type   any       `json:"type"`
	Header jsonx.Raw `json:"x-mcp-header"`
	// Properties are decoded one level at a time, because their content may have any form.
	Properties map[string]jsonx.Raw `json:"properties"`
}

// headers returns the arguments that are sent as headers. An invalid one is an error,
// because the server could otherwise make callers send any header.
func headers(schema []byte) ([]Header, error) {
	if !bytes.Contains(schema, []byte("x-mcp-header")) && !bytes.Contains(schema, []byte(`\u`)) {
		return nil, nil
	}
	var out []Header
	taken := make(map[string]bool)
	var walk func(doc []byte, path []string) error
	walk = func(doc []byte, path []string) error {
		var p property
		if len(doc) == 0 || doc[0] != '{' || jsonx.Unmarshal(doc, &p) != nil {
			return nil // the compiler reports the error
		}
		if p.Header != nil {
			var name string
			switch {
			case len(path) == 0 || p.Type != "string" && p.Type != "integer" && p.Type != "boolean":
				return errors.New("its x-mcp-header stands where no text, integer or boolean is")
			case jsonx.Unmarshal(p.Header, &name) != nil || !token(name):
				return errors.New("its x-mcp-header is not a name of a header")
			case taken[strings.ToLower(name)]:
				return errors.New("it names one x-mcp-header twice")
			}
			taken[strings.ToLower(name)] = true
			out = append(out, Header{Path: slices.Clone(path), Name: name})
		}
		for name, child := range p.Properties {
			if err := walk(child, append(path, name)); err != nil {
				return err
			}
		}
		return nil
	}
	if err := walk(bytes.TrimSpace(schema), nil); err != nil {
		return nil, err
	}
	slices.SortFunc(out, func(a, b Header) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// token reports whether s is a valid header name (RFC 9110).
func token(s string) bool {
	return s != "" && len(s) <= 64 && !strings.ContainsFunc(s, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", r))
	})
}

// pattern returns an expression that matches the addresses of a template (RFC 6570). It
// keeps calls within the template and may match slightly more.
func pattern(template string) (*regexp.Regexp, error) {
	var b strings.Builder
	b.WriteString("^")
	rest, parts := template, 0
	for rest != "" {
		literal, expression, found := strings.Cut(rest, "{")
		if strings.Contains(literal, "}") {
			return nil, errors.New("its address is not a template")
		}
		b.WriteString(regexp.QuoteMeta(literal))
		if !found {
			break
		}
		var inside string
		if inside, rest, found = strings.Cut(expression, "}"); !found || inside == "" || strings.Contains(inside, "{") {
			return nil, errors.New("its address is not a template")
		}
		if parts++; parts > 32 {
			return nil, errors.New("its address has more than 32 parts to fill in")
		}
		switch inside[0] {
		case '+', '#', '/', '?', '&', ';', '.':
			b.WriteString(".*")
		default:
			if strings.HasSuffix(inside, "*") {
				b.WriteString(".*")
			} else {
				b.WriteString("[^/?#]*")
			}
		}
	}
	b.WriteString("$")
	return regexp.Compile(b.String())
}
