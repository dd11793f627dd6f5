package payload

import (
	"encoding/json"
	"math"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/protocol/cmp"
)

// DefaultMediaType is the media type of a capability that sets none.
const DefaultMediaType = "application/json"

// Capability is one entry of a skill. The first eleven members are always
// written.
type Capability struct {
	Alias          string          `json:"alias"`
	FunctionName   string          `json:"function_name"`
	NodeID         *string         `json:"node_id"`
	Timeout        *float64        `json:"timeout"` // seconds
	Stream         bool            `json:"stream"`
	LoadBalancing  json.RawMessage `json:"load_balancing"` // boolean, text or object
	MediaType      string          `json:"media_type"`
	Codec          *string         `json:"codec"`
	Languages      []string        `json:"languages"` // normalised
	Metadata       json.RawMessage `json:"metadata"`  // an object, as given
	GatewayAddress *string         `json:"gateway_address"`

	Description  string          `json:"description,omitzero"`
	InputSchema  json.RawMessage `json:"input_schema,omitzero"`
	OutputSchema json.RawMessage `json:"output_schema,omitzero"`
	Effect       string          `json:"effect,omitzero"`

	meta metadata
}

// metadata holds the members of a capability's metadata that this package uses.
type metadata struct {
	DeviceAction json.RawMessage `json:"device_action"`
	Tags         json.RawMessage `json:"tags"`
	Consent      json.RawMessage `json:"requires_user_consent"`
	EveryCall    json.RawMessage `json:"consent_every_call"`
	CodeBinding  json.RawMessage `json:"code_binding"`
	Module       json.RawMessage `json:"runtime_module"`
	Export       json.RawMessage `json:"runtime_export"`
	Languages    json.RawMessage `json:"languages"`

	tags            []string
	consent, always bool
}

// entry is a capability before its checks.
type entry struct {
	Alias          json.RawMessage `json:"alias"`
	FunctionName   json.RawMessage `json:"function_name"`
	NodeID         *string         `json:"node_id"`
	Timeout        *float64        `json:"timeout"`
	Stream         json.RawMessage `json:"stream"`
	LoadBalancing  json.RawMessage `json:"load_balancing"`
	MediaType      *string         `json:"media_type"`
	Codec          *string         `json:"codec"`
	Languages      json.RawMessage `json:"languages"`
	Metadata       json.RawMessage `json:"metadata"`
	GatewayAddress *string         `json:"gateway_address"`
	Description    *string         `json:"description"`
	InputSchema    json.RawMessage `json:"input_schema"`
	OutputSchema   json.RawMessage `json:"output_schema"`
	Effect         *string         `json:"effect"`
}

// readCapability decodes and checks one capability and sets its defaults.
func readCapability(raw json.RawMessage) (Capability, error) {
	if len(raw) == 0 || raw[0] != '{' {
		return Capability{}, invalid("it is no object")
	}
	var e entry
	if err := jsonx.Unmarshal(raw, &e); err != nil {
		return Capability{}, err
	}
	c := Capability{
		NodeID: e.NodeID, Timeout: e.Timeout, Codec: e.Codec, GatewayAddress: e.GatewayAddress, Description: text(e.Description),
		Effect: text(e.Effect),
	}
	var ok bool
	if c.Alias, ok = asText(e.Alias); !ok || c.Alias == "" {
		return Capability{}, invalid("it has no alias")
	}
	if c.FunctionName, ok = asText(e.FunctionName); !ok || c.FunctionName == "" {
		return Capability{}, invalid("it has no function_name")
	}
	if e.MediaType == nil {
		c.MediaType = DefaultMediaType
	} else {
		c.MediaType = strings.TrimSpace(*e.MediaType)
	}
	c.LoadBalancing, c.Metadata = orElse(e.LoadBalancing, "true"), orElse(e.Metadata, "{}")
	c.InputSchema, c.OutputSchema = orElse(e.InputSchema, ""), orElse(e.OutputSchema, "")
	var err error
	if c.Stream, err = cmp.Bool(orElse(e.Stream, "false"), "stream", false); err != nil {
		return Capability{}, err
	}
	if err := c.complete(orElse(e.Languages, "")); err != nil {
		return Capability{}, err
	}
	return c, nil
}

// orElse returns raw, or fallback if raw is absent or null.
func orElse(raw json.RawMessage, fallback string) json.RawMessage {
	if raw != nil && string(raw) != "null" {
		return raw
	}
	if fallback == "" {
		return nil
	}
	return json.RawMessage(fallback)
}

// complete checks a capability and parses its metadata. languages is the separate member, or nil.
func (c *Capability) complete(languages json.RawMessage) error {
	if err := cmp.CheckAlias(c.Alias); err != nil {
		return err
	}
	if err := cmp.CheckFunction(c.FunctionName); err != nil {
		return err
	}
	switch {
	case c.MediaType == "" || len(c.MediaType) > cmp.MaxName:
		return invalid("media_type must be 1 to %d bytes", cmp.MaxName)
	case !strings.ContainsRune(`tf"{`, rune(c.LoadBalancing[0])):
		return invalid("load_balancing must be true or false, text, or an object")
	case c.Metadata[0] != '{':
		return invalid("metadata must be an object")
	case c.Timeout != nil && (*c.Timeout < 0 || *c.Timeout > maxTimeout || math.IsNaN(*c.Timeout)):
		return invalid("timeout must be 0 to %d seconds, or null", maxTimeout)
	case c.Effect != "" && !slices.Contains([]string{cmp.EffectRead, cmp.EffectWrite, cmp.EffectExecute, cmp.EffectAdminister}, c.Effect):
		return invalid("the effect %.40q is not read, write, execute or administer", c.Effect)
	case len(c.InputSchema) > 0 && c.InputSchema[0] != '{' || len(c.OutputSchema) > 0 && c.OutputSchema[0] != '{':
		return invalid("a schema must be an object")
	}
	if c.Timeout != nil && *c.Timeout == 0 {
		c.Timeout = nil // the original treats 0 as no timeout
	}
	if err := jsonx.Unmarshal(c.Metadata, &c.meta); err != nil {
		return invalid("metadata: %w", err)
	}
	var err error
	if c.meta.consent, err = cmp.Bool(orElse(c.meta.Consent, ""), "metadata.requires_user_consent", false); err != nil {
		return err
	}
	if c.meta.always, err = cmp.Bool(orElse(c.meta.EveryCall, ""), "metadata.consent_every_call", false); err != nil {
		return err
	}
	if c.meta.tags, err = words(orElse(c.meta.Tags, "[]"), "metadata.tags"); err != nil {
		return err
	}
	if languages == nil {
		languages = orElse(c.meta.Languages, "[]")
	}
	list, err := words(languages, "languages")
	c.Languages = normal(list)
	return err
}

func words(raw json.RawMessage, name string) ([]string, error) {
	var list []string
	if err := jsonx.Unmarshal(raw, &list); err != nil {
		return nil, invalid("%s must be a list of texts", name)
	}
	if len(list) > maxItems {
		return nil, invalid("%s has more than %d items", name, maxItems)
	}
	return cmp.Words(list), nil
}

func normal(languages []string) []string {
	out := make([]string, 0, len(languages))
	for _, l := range languages {
		out = append(out, strings.ToLower(strings.ReplaceAll(strings.TrimSpace(l), "_", "-")))
	}
	return cmp.Words(out)
}

// ActionName returns the device action that the capability is bound to: metadata.device_action if
// set, else the alias.
func (c *Capability) ActionName() string {
	if name, ok := asText(c.meta.DeviceAction); ok && name != "" {
		return name
	}
	return c.Alias
}

// Tags returns the tags of the metadata, sorted and not empty.
func (c *Capability) Tags() []string { return c.meta.tags }

// NeedsConsent reports whether the device's owner must consent before the capability is installed.
func (c *Capability) NeedsConsent() bool { return c.meta.consent }

// NeedsConsentEachCall reports whether the owner must consent to each call.
func (c *Capability) NeedsConsentEachCall() bool { return c.meta.always }

// Code returns the binding to transferred code. bound is false if the metadata have none. A binding
// with an empty part matches no module.
func (c *Capability) Code() (b cmp.CodeBinding, bound bool) {
	if raw := c.meta.CodeBinding; len(raw) > 0 && raw[0] == '{' {
		var parts struct {
			ModuleID json.RawMessage `json:"module_id"`
			Export   json.RawMessage `json:"export"`
		}
		_ = jsonx.Unmarshal(raw, &parts) // raw is an object, so this cannot fail
		b.ModuleID, _ = asText(parts.ModuleID)
		b.Export, _ = asText(parts.Export)
		return b, true
	}
	b.ModuleID, _ = asText(c.meta.Module)
	b.Export, _ = asText(c.meta.Export)
	return b, b.ModuleID != "" || b.Export != ""
}
