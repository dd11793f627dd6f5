// Package declaration decodes the declarations of extensions: one JSON form for every
// source, whether a file, a mapping of another protocol, or a scenario. Decoding is
// bounded and strict about types; unknown fields are reported. Package catalog applies declarations to calls, package operator to
// what operators see. [Permissions] lists the permissions that a declaration may name.
package declaration

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog/actions"
)

// Extension is one extension as declared.
type Extension struct {
	ID      string `json:"id"`
	Name    string `json:"name,omitempty"`
	Version string `json:"version,omitempty"`
	Label   string `json:"label,omitempty"`
	Origin  string `json:"origin,omitempty"` // config, workspace, global, bundled (default), remote, catalog-file
	Stage   string `json:"stage,omitempty"`  // default activated
	Enabled *bool  `json:"enabled,omitempty"`
	// DisabledReason is why the host refused to activate the package. It is stored so
	// that a restart refuses it again.
	DisabledReason string `json:"disabledReason,omitempty"`
	// Entries names the files that contain the code, for installers. This package does
	// not open them.
	Entries       []string          `json:"entries,omitempty"`
	Provenance    map[string]string `json:"provenance,omitempty"` // where the package came from, as recorded at install
	Install       *Install          `json:"install,omitempty"`
	Channels      []Channel         `json:"channels,omitempty"`
	Contributions []Contribution    `json:"contributions,omitempty"`
}

// Install describes where an extension can be obtained.
type Install struct {
	PackageSpec   string `json:"packageSpec,omitempty"`
	LocalPath     string `json:"localPath,omitempty"`
	DefaultChoice string `json:"defaultChoice,omitempty"` // package, local
}

// Contribution is one declaration of an extension.
type Contribution struct {
	ID             string                `json:"id"`
	Kind           string                `json:"kind"`
	Title          string                `json:"title,omitempty"`
	Description    string                `json:"description,omitempty"`
	Actions        []capability.Action   `json:"actions,omitempty"`
	Tool           *Tool                 `json:"tool,omitempty"`
	Provider       *Provider             `json:"provider,omitempty"`
	Scope          *capability.Scope     `json:"scope,omitempty"`
	Global         bool                  `json:"global,omitempty"` // the empty scope
	Visibility     capability.Visibility `json:"visibility,omitempty"`
	Arbitration    *Arbitration          `json:"arbitration,omitempty"`
	Policy         *Gates                `json:"policy,omitempty"`
	Permissions    []string              `json:"permissions,omitempty"`
	PermissionMode string                `json:"permissionMode,omitempty"`
	DependsOn      *capability.Depends   `json:"dependsOn,omitempty"`
	Supersedes     []string              `json:"supersedes,omitempty"` // short for dependsOn.supersedes
	Selectors      []string              `json:"selectors,omitempty"`
	Availability   Availability          `json:"availability,omitzero"`
	Tags           []string              `json:"tags,omitempty"`
	TelemetryTags  map[string]string     `json:"telemetryTags,omitempty"`
	Backend        *Backend              `json:"backend,omitempty"`
	Command        *Command              `json:"command,omitempty"`
	Auth           *Auth                 `json:"auth,omitempty"`
	Adapter        *Adapter              `json:"adapter,omitempty"`
	Routes         []Route               `json:"routes,omitempty"`
	Augment        *Augment              `json:"augment,omitempty"`
	CLI            *CLI                  `json:"cli,omitempty"`
	Setup          *Setup                `json:"setup,omitempty"`
}

// Tool is a single agent tool.
type Tool struct {
	Name         string            `json:"name"`
	Action       capability.Action `json:"action,omitempty"`
	Exact        bool              `json:"exact,omitempty"`
	Aliases      []string          `json:"aliases,omitempty"`
	Effect       capability.Effect `json:"effect,omitempty"`
	InputSchema  json.RawMessage   `json:"inputSchema,omitempty"`
	OutputSchema json.RawMessage   `json:"outputSchema,omitempty"`
	Approval     bool              `json:"approval,omitempty"`
}

// Provider describes who executes a contribution: one or several accounts.
type Provider struct {
	Kind      string     `json:"kind,omitempty"`
	Instances []Instance `json:"instances,omitempty"`
}

// Instance is one account, endpoint or node of a provider.
type Instance struct {
	ID           string              `json:"id"`
	Label        string              `json:"label,omitempty"`
	Actions      []capability.Action `json:"actions,omitempty"` // nil: all of the contribution
	Rank         int                 `json:"rank,omitempty"`
	Availability Availability        `json:"availability,omitzero"`
}

// Arbitration is how a contribution is chosen among others.
type Arbitration struct {
	capability.Arbitration
	Rank int `json:"rank,omitempty"`
}

// Gates are the typed policies of a contribution.
type Gates struct {
	PromptMutation string `json:"promptMutation,omitempty"`
	RouteEffect    string `json:"routeEffect,omitempty"`
	FailureMode    string `json:"failureMode,omitempty"`
	ExecutionMode  string `json:"executionMode,omitempty"`
}

// Backend is a runtime backend.
type Backend struct {
	Class        string            `json:"class"`
	ID           string            `json:"id"`
	Selectors    []string          `json:"selectors,omitempty"`
	Exclusivity  string            `json:"exclusivity,omitempty"` // exclusive, shared (default)
	Health       capability.Health `json:"health,omitempty"`
	Capabilities []string          `json:"capabilities,omitempty"`
	Probe        json.RawMessage   `json:"probe,omitempty"`
}

// Augment is a route augmenter.
type Augment struct {
	Effect      string   `json:"effect"`
	Targets     []string `json:"targets,omitempty"`
	Ownership   string   `json:"ownership,omitempty"` // exclusive
	Priority    int      `json:"priority,omitempty"`
	FailureMode string   `json:"failureMode,omitempty"`
}

// Availability is a state, or a state with its reason.
type Availability struct{ capability.Availability }

// UnmarshalJSON accepts {"state","reason"} or the state as a string.
func (a *Availability) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		return json.Unmarshal(data, &a.State)
	}
	return json.Unmarshal(data, &a.Availability)
}

// MarshalJSON writes the full form.
func (a Availability) MarshalJSON() ([]byte, error) { return json.Marshal(a.Availability) }

// IsZero reports whether neither state nor reason is set.
func (a Availability) IsZero() bool { return a.State == "" && a.Reason == "" }

func validID(id string) bool { return ValidName(id, 128, "._-~") }

// ValidName reports whether a name has 1 to maxBytes ASCII letters, digits and characters
// of punctuation, and begins with a letter or a digit.
func ValidName(name string, maxBytes int, punctuation string) bool {
	for i := range len(name) {
		c := name[i]
		alnum := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !alnum && (i == 0 || strings.IndexByte(punctuation, c) < 0) {
			return false
		}
	}
	return name != "" && len(name) <= maxBytes
}

// stage returns the effective stage: disabled if the extension is switched off or was
// refused, else Stage.
func (x *Extension) stage() string {
	if x.Enabled != nil && !*x.Enabled || x.DisabledReason != "" {
		return capability.StageDisabled
	}
	return x.Stage
}

// Module converts the extension for the catalog: one contribution for each action of each instance.
func (x *Extension) Module() capability.Module {
	m := capability.Module{
		Extension: x.ID, ID: x.ID, Name: Clean(x.Name, maxTitle), Label: Clean(x.Label, maxTitle), Version: x.Version, Origin: x.origin(),
		Stage: x.stage(),
	}
	for i := range x.Contributions {
		m.Contributions = append(m.Contributions, x.Contributions[i].flatten(x)...)
	}
	return m
}

func (c *Contribution) flatten(x *Extension) []capability.Contribution {
	base := capability.Contribution{
		ID: c.ID, Kind: c.Kind, Title: Clean(c.Title, maxTitle), Description: Clean(c.Description, maxDescription), Permissions: c.Permissions,
		Tags: c.Tags, Telemetry: c.TelemetryTags, Visibility: c.Visibility, Scope: normal(c.Scope), Depends: c.depends(),
		Availability: c.Availability.Availability,
	}
	if c.Global {
		base.Scope = nil
	}
	if a := c.Arbitration; a != nil {
		base.Rank = a.Rank
		base.Arbitration = &a.Arbitration
	}
	if b := c.Backend; b != nil {
		base.Backend = &capability.Backend{
			Class: b.Class, ID: b.ID, Selectors: b.Selectors, Exclusive: b.Exclusivity == "exclusive", Health: b.health(),
			Capabilities: b.Capabilities,
		}
	}
	if a := c.Augment; a != nil {
		base.Augment = &capability.Augment{
			Effect: a.Effect, Targets: a.Targets, Exclusive: a.Ownership == "exclusive", Priority: a.Priority,
			FailureMode: a.FailureMode,
		}
	}
	list, tools := c.families()
	if t := c.Tool; t != nil {
		base.Tool, base.Exact, base.Aliases, base.Effect, base.Approval = t.Name, t.Exact, t.Aliases, t.Effect, t.Approval
		base.InputSchema, base.OutputSchema = t.InputSchema, t.OutputSchema
		if t.Action != "" && !slices.Contains(list, t.Action) {
			list = append(slices.Clip(list), t.Action)
		}
	}
	if len(list) == 0 && len(tools) == 0 {
		list = []capability.Action{""}
	}
	var out []capability.Contribution
	for _, action := range list {
		one := base
		one.Action = action
		one.Member = capability.Member{Module: x.ID, Kind: "contribution", Name: c.ID}
		if action != "" {
			one.Member.Name += "." + string(action)
		}
		out = append(out, c.instances(x, one, "")...)
	}
	for _, name := range tools {
		out = append(out, c.instances(x, c.loose(x, base, name), name)...)
	}
	return out
}

// instances returns the contribution once for each instance, with its provider key.
func (c *Contribution) instances(x *Extension, one capability.Contribution, word string) []capability.Contribution {
	p := c.Provider
	if p == nil || p.Kind == "" && len(p.Instances) == 0 {
		return []capability.Contribution{one} // the catalog sets the default key
	}
	domain := "ext"
	if one.Action != "" {
		if row, ok := actions.Lookup(one.Action); ok {
			domain = row.Domain
		} else {
			domain, _, _ = strings.Cut(string(one.Action), ".")
		}
	}
	kind := p.Kind
	if kind == "" {
		kind = x.ID[strings.LastIndexByte(x.ID, '.')+1:]
	}
	instances := p.Instances
	if len(instances) == 0 {
		instances = []Instance{{ID: "default"}}
	}
	out := make([]capability.Contribution, 0, len(instances))
	for _, in := range instances {
		of := one
		of.Provider = capability.NewProviderKey(domain, kind, in.ID)
		of.Rank += in.Rank
		if !in.Availability.IsZero() {
			of.Availability = in.Availability.Availability
		}
		of.Unsupported = !in.supports(one.Action, word)
		out = append(out, of)
	}
	return out
}

func (c *Contribution) depends() *capability.Depends {
	if len(c.Supersedes) == 0 {
		return c.DependsOn
	}
	d := capability.Depends{}
	if c.DependsOn != nil {
		d = *c.DependsOn
	}
	d.Supersedes = append(slices.Clone(d.Supersedes), c.Supersedes...)
	return &d
}

// health returns the declared health; otherwise unknown if the backend has a probe, else healthy.
func (b *Backend) health() capability.Health {
	switch {
	case b.Health != "":
		return b.Health
	case len(b.Probe) > 0:
		return capability.HealthUnknown
	}
	return capability.HealthHealthy
}

func (x *Extension) origin() string {
	if x.Origin == "" {
		return "bundled"
	}
	return x.Origin
}

// originStrength returns the precedence of an origin among packages with one id; 0 for an
// invalid origin.
func originStrength(origin string) int {
	return 1 + slices.Index([]string{"catalog-file", "remote", "bundled", "global", "workspace", "config"}, origin)
}

func (x *Extension) String() string { return fmt.Sprintf("%s (%s)", x.ID, x.origin()) }
