// Package payload decodes and encodes skills: payloads that name aliases and the function
// of each, and optionally contain code. Nothing is run or bound here.
//
// A decoded payload keeps its original bytes (Raw), which are stored, hashed and signed, so
// that unknown fields survive.
package payload

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/protocol/cmp"
)

const (
	// Schema is the only supported schema.
	Schema = "easyremote.remote-skill-pipeline"
	// Version is the version that is written; every 1.x is accepted.
	Version = "1.0"
	// DefaultName is the name of a skill that sets none.
	DefaultName = "remote-skill"
)

// Payload is a decoded skill that passed all checks of [Decode].
type Payload struct {
	Raw json.RawMessage // one object, as it came

	SkillName      string // never empty
	Namespace      string
	CreatedAt      string
	GatewayAddress string
	Capabilities   []Capability // in the order they came
	Modules        []Module     // in the order they came

	SkillVersion string
	Description  string
	Publisher    string
	Requires     []string // labels
	Permissions  []string
	Signature    *Signature
}

// document is the payload's outer form. Some members stay raw, so that errors about their types are
// reported in the defined order.
type document struct {
	SkillName      *string         `json:"skill_name"`
	Namespace      *string         `json:"namespace"`
	CreatedAt      json.RawMessage `json:"created_at"`
	Capabilities   json.RawMessage `json:"capabilities"`
	GatewayAddress *string         `json:"gateway_address"`
	Modules        json.RawMessage `json:"runtime_modules"`
	SkillVersion   *string         `json:"skill_version"`
	Description    *string         `json:"description"`
	Publisher      *string         `json:"publisher"`
	Requires       []string        `json:"requires"`
	Permissions    []string        `json:"permissions"`
	Signature      *Signature      `json:"signature"`
}

var versionGrammar = regexp.MustCompile(`^1(\.[0-9]{1,9}){1,2}$`)

// Decode decodes a payload of at most limit bytes: an object, a JSON string that contains one, or the
// bytes ($bytes) of such a text. The order of the checks is fixed, and the first failure is
// returned: invalid_payload, unsupported_schema, unsupported_version, duplicate_alias or
// payload_too_large. Code is only checked by [Payload.Sources].
func Decode(data json.RawMessage, limit int) (*Payload, error) {
	raw, err := object(data, limit)
	if err != nil {
		return nil, err
	}
	var kind struct {
		Schema  json.RawMessage `json:"schema"`
		Version json.RawMessage `json:"version"`
	}
	if err := jsonx.Unmarshal(raw, &kind); err != nil {
		return nil, invalid("the payload: %w", err)
	}
	if err := known(kind.Schema, kind.Version); err != nil {
		return nil, err
	}
	var d document
	if err := jsonx.Unmarshal(raw, &d); err != nil {
		return nil, invalid("the payload: %w", err)
	}
	p := &Payload{
		Raw: raw, SkillName: strings.TrimSpace(text(d.SkillName)), Namespace: strings.TrimSpace(text(d.Namespace)),
		GatewayAddress: strings.TrimSpace(text(d.GatewayAddress)), SkillVersion: text(d.SkillVersion), Description: text(d.Description),
		Publisher: text(d.Publisher), Requires: d.Requires, Permissions: d.Permissions, Signature: d.Signature,
	}
	if err := p.header(&d); err != nil {
		return nil, err
	}
	if err := p.capabilities(d.Capabilities); err != nil {
		return nil, err
	}
	if err := p.modules(d.Modules); err != nil {
		return nil, err
	}
	seen := make(map[string]bool, len(p.Capabilities))
	for _, c := range p.Capabilities {
		if seen[c.Alias] {
			return nil, cmp.Errorf(cmp.ReasonDuplicateAlias, "the alias %q is given twice", c.Alias)
		}
		seen[c.Alias] = true
	}
	return p, nil
}

// object returns the payload's object, unwrapped from a string or bytes.
func object(data json.RawMessage, limit int) (json.RawMessage, error) {
	tooLarge := func(n int) error {
		return cmp.Errorf(cmp.ReasonTooLarge, "the payload has %d bytes; the limit is %d", n, limit).With(cmp.ReasonTooLarge,
			"send large code by reference, as an asset")
	}
	data = bytes.TrimSpace(data)
	if len(data) > 6*limit+64 { // in a JSON string each byte may take six
		return nil, tooLarge(len(data))
	}
	if b, ok, err := cmp.ReadBytes(data); ok {
		if err != nil {
			return nil, within(err, "the payload")
		}
		data = bytes.TrimSpace(b)
	} else if len(data) > 0 && data[0] == '"' {
		var s string
		if err := jsonx.Unmarshal(data, &s); err != nil {
			return nil, invalid("the payload: %w", err)
		}
		data = bytes.TrimSpace([]byte(s))
	}
	if len(data) > limit {
		return nil, tooLarge(len(data))
	}
	if len(data) == 0 || data[0] != '{' {
		return nil, invalid("the payload is no JSON object")
	}
	if err := cmp.CheckJSON(data); err != nil {
		return nil, within(err, "the payload")
	}
	if bytes.Contains(data, []byte(`\u0000`)) {
		var v any
		if err := jsonx.Unmarshal(data, &v); err != nil || holdsNUL(v) {
			return nil, invalid("the payload holds a NUL character")
		}
	}
	return bytes.Clone(data), nil
}

func holdsNUL(v any) bool {
	switch v := v.(type) {
	case string:
		return strings.ContainsRune(v, 0)
	case []any:
		for _, item := range v {
			if holdsNUL(item) {
				return true
			}
		}
	case map[string]any:
		for name, item := range v {
			if strings.ContainsRune(name, 0) || holdsNUL(item) {
				return true
			}
		}
	}
	return false
}

// known checks schema and version before anything else is decoded.
func known(rawSchema, rawVersion json.RawMessage) error {
	switch schema, ok := asText(rawSchema); {
	case !ok || schema == "":
		return invalid("the payload has no schema; it must be %s", Schema)
	case schema != Schema:
		return cmp.Errorf(cmp.ReasonSchema, "the schema %.100q is not known; it must be %s", schema, Schema)
	}
	switch version, ok := asText(rawVersion); {
	case !ok || version == "":
		return invalid("the payload has no version; it must be 1.x, as text")
	case !versionGrammar.MatchString(version):
		return cmp.Errorf(cmp.ReasonVersion, "the version %.40q is not read here; it must be 1.x", version)
	}
	return nil
}

func (p *Payload) header(d *document) error {
	if p.SkillName == "" {
		p.SkillName = DefaultName
	}
	if err := cmp.CheckSkill(p.SkillName); err != nil {
		return err
	}
	p.CreatedAt, _ = asText(d.CreatedAt)
	switch {
	case len(p.Requires) > maxItems || len(p.Permissions) > maxItems:
		return cmp.Errorf(cmp.ReasonTooLarge, "requires and permissions have at most %d items", maxItems)
	case len(p.Namespace) > cmp.MaxFunction:
		return invalid("the namespace has more than %d bytes", cmp.MaxFunction)
	}
	for _, permission := range p.Permissions {
		if err := printable("a permission", permission); err != nil {
			return err
		}
	}
	return printable("the publisher", p.Publisher)
}

// printable returns invalid_payload for a text that the device's owner is shown unless it is short and
// without control and format characters, with which it could forge other lines of the question.
func printable(what, s string) error {
	hidden := func(r rune) bool { return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) }
	if len(s) > cmp.MaxFunction || strings.ContainsFunc(s, hidden) {
		return invalid("%s has more than %d bytes or a control character: %.80q", what, cmp.MaxFunction, s)
	}
	return nil
}

func (p *Payload) capabilities(raw json.RawMessage) error {
	if raw == nil {
		return nil
	}
	var list []json.RawMessage
	if raw[0] != '[' {
		return invalid("capabilities must be a list")
	}
	if err := jsonx.Unmarshal(raw, &list); err != nil {
		return invalid("capabilities: %w", err)
	}
	if len(list) > MaxCapabilities {
		return cmp.Errorf(cmp.ReasonTooLarge, "there are %d capabilities; the limit is %d", len(list), MaxCapabilities)
	}
	for i, item := range list {
		c, err := readCapability(item)
		if err != nil {
			return within(err, "capabilities[%d]", i)
		}
		p.Capabilities = append(p.Capabilities, c)
	}
	return nil
}

func (p *Payload) modules(raw json.RawMessage) error {
	if raw == nil || string(raw) == "null" {
		return nil
	}
	if raw[0] != '[' {
		return invalid("runtime_modules must be a list, or null")
	}
	var list []json.RawMessage
	if err := jsonx.Unmarshal(raw, &list); err != nil {
		return invalid("runtime_modules: %w", err)
	}
	if len(list) > maxItems {
		return cmp.Errorf(cmp.ReasonTooLarge, "there are %d modules; the limit is %d", len(list), maxItems)
	}
	for i, item := range list {
		m, err := readModule(item)
		if err != nil {
			return within(err, "runtime_modules[%d]", i)
		}
		p.Modules = append(p.Modules, m)
	}
	return nil
}

// Capability returns the entry with an alias.
func (p *Payload) Capability(alias string) (Capability, bool) {
	for _, c := range p.Capabilities {
		if c.Alias == alias {
			return c, true
		}
	}
	return Capability{}, false
}

// within adds the position to an error, which becomes invalid_payload.
func within(err error, format string, args ...any) error {
	what := err.Error()
	if e, ok := errors.AsType[*capability.Error](err); ok {
		what = e.Message
	}
	return invalid("%s: %s", fmt.Sprintf(format, args...), what)
}

func invalid(format string, args ...any) error { return cmp.Errorf(cmp.ReasonPayload, format, args...) }

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// asText parses a member that must be a string, and trims it.
func asText(raw json.RawMessage) (string, bool) {
	var s string
	if len(raw) == 0 || raw[0] != '"' || jsonx.Unmarshal(raw, &s) != nil {
		return "", false
	}
	return strings.TrimSpace(s), true
}
