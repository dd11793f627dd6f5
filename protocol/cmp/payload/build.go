package payload

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/protocol/cmp"
)

// Draft builds a skill. The zero value is ready to use.
type Draft struct {
	Name           string // "": DefaultName
	Namespace      string
	GatewayAddress string // omitted if empty
	SkillVersion   string
	Description    string
	Publisher      string

	capabilities []Capability
	modules      []Module
}

// Offer describes one capability of a draft. Zero values mean the defaults of the format.
type Offer struct {
	Alias         string
	FunctionName  string // "": the alias
	NodeID        string
	Timeout       time.Duration
	Stream        *bool
	LoadBalancing any // nil: true
	MediaType     string
	Codec         string
	Languages     []string
	Metadata      map[string]any
	CodeExport    string // export of the last attached module to bind to
	Description   string
	Effect        string

	SampleRate, Channels int // of voices; 0: 16000 and 1
}

// Attach adds a module of code. It removes white space around a source first, so that the hash
// matches the source.
func (d *Draft) Attach(m Module) {
	m.Source = strings.TrimSpace(m.Source)
	if m.SHA256 == "" && m.Source != "" {
		sum := sha256.Sum256([]byte(m.Source))
		m.SHA256 = hex.EncodeToString(sum[:])
	}
	if m.Language == "" {
		m.Language = DefaultLanguage
	}
	d.modules = append(d.modules, m)
}

// Add adds a plain capability.
func (d *Draft) Add(o Offer) error { return d.add(o, DefaultMediaType, false) }

// AddMedia adds a capability that streams by default and must have a media type.
func (d *Draft) AddMedia(o Offer) error {
	if o.MediaType == "" {
		return invalid("the media capability %.80q must name its media type", o.Alias)
	}
	return d.add(o, "", true)
}

// AddVoice adds a capability of raw audio, which always streams in pcm16.
func (d *Draft) AddVoice(o Offer) error {
	o.MediaType, o.Codec, o.Stream = "audio/raw", "pcm16", nil
	meta := make(map[string]any, len(o.Metadata)+2)
	for k, v := range o.Metadata {
		meta[k] = v
	}
	for name, value := range map[string][2]int{"sample_rate_hz": {o.SampleRate, 16000}, "channels": {o.Channels, 1}} {
		if _, there := meta[name]; there {
			continue
		}
		if meta[name] = value[0]; value[0] == 0 {
			meta[name] = value[1]
		}
	}
	o.Metadata = meta
	return d.add(o, "", true)
}

// add adds a capability with a default media type. Errors: duplicate_alias; invalid_payload.
func (d *Draft) add(o Offer, mediaType string, stream bool) error {
	c := Capability{
		Alias: strings.TrimSpace(o.Alias), FunctionName: d.Qualify(o), Stream: stream, MediaType: o.MediaType,
		LoadBalancing: json.RawMessage("true"), Description: o.Description, Effect: o.Effect,
		NodeID: optional(o.NodeID), Codec: optional(o.Codec), GatewayAddress: optional(d.GatewayAddress),
	}
	if c.MediaType == "" {
		c.MediaType = mediaType
	}
	if o.Stream != nil {
		c.Stream = *o.Stream
	}
	if o.Timeout > 0 {
		seconds := o.Timeout.Seconds()
		c.Timeout = &seconds
	}
	if slices.ContainsFunc(d.capabilities, func(other Capability) bool { return other.Alias == c.Alias }) {
		return cmp.Errorf(cmp.ReasonDuplicateAlias, "the alias %.80q is given twice", c.Alias)
	}
	meta := make(map[string]any, len(o.Metadata)+2)
	for k, v := range o.Metadata {
		meta[k] = v
	}
	if languages := normal(o.Languages); len(languages) > 0 {
		meta["languages"] = languages
	}
	if o.CodeExport != "" {
		if len(d.modules) == 0 {
			return invalid("the capability %.80q names the export %.80q, but no module of code is attached", c.Alias, o.CodeExport)
		}
		meta["code_binding"] = cmp.CodeBinding{ModuleID: d.modules[len(d.modules)-1].ModuleID, Export: o.CodeExport}
	}
	var err error
	if c.Metadata, err = jsonx.Marshal(meta); err == nil && o.LoadBalancing != nil {
		c.LoadBalancing, err = jsonx.Marshal(o.LoadBalancing)
	}
	if err != nil {
		return invalid("the capability %.80q: %w", c.Alias, err)
	}
	if err := c.complete(nil); err != nil {
		return within(err, "the capability %.80q", c.Alias)
	}
	d.capabilities = append(d.capabilities, c)
	return nil
}

// Qualify returns the function name of an offer, with the draft's namespace as prefix unless it has it
// already.
func (d *Draft) Qualify(o Offer) string {
	name := strings.TrimSpace(o.FunctionName)
	if name == "" {
		name = strings.TrimSpace(o.Alias)
	}
	if d.Namespace == "" || strings.HasPrefix(name, d.Namespace+".") {
		return name
	}
	return d.Namespace + "." + name
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// written is the form of a skill that Export writes.
type written struct {
	Schema         string       `json:"schema"`
	Version        string       `json:"version"`
	SkillName      string       `json:"skill_name"`
	Namespace      string       `json:"namespace"`
	CreatedAt      string       `json:"created_at"`
	Capabilities   []Capability `json:"capabilities"`
	GatewayAddress string       `json:"gateway_address,omitzero"`
	Modules        []Module     `json:"runtime_modules,omitempty"`
	SkillVersion   string       `json:"skill_version,omitzero"`
	Description    string       `json:"description,omitzero"`
	Publisher      string       `json:"publisher,omitzero"`
}

// Export encodes the skill, with capabilities sorted by alias, each with all eleven members. It decodes
// the result before it returns it, so that invalid skills are errors.
func (d *Draft) Export(now time.Time) (json.RawMessage, error) {
	w := written{
		Schema: Schema, Version: Version, SkillName: d.Name, Namespace: d.Namespace, CreatedAt: cmp.Time(now),
		Capabilities:   slices.Clone(d.capabilities),
		GatewayAddress: d.GatewayAddress, Modules: d.modules, SkillVersion: d.SkillVersion, Description: d.Description, Publisher: d.Publisher,
	}
	if w.SkillName == "" {
		w.SkillName = DefaultName
	}
	slices.SortFunc(w.Capabilities, func(a, b Capability) int { return strings.Compare(a.Alias, b.Alias) })
	raw, err := jsonx.Marshal(w)
	if err != nil {
		return nil, invalid("the skill: %w", err)
	}
	p, err := Decode(raw, cmp.DefaultLimits().Payload)
	if err == nil {
		_, err = p.Sources(cmp.DefaultLimits())
	}
	if err != nil {
		return nil, err
	}
	return raw, nil
}
