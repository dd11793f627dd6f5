package upstream

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/naming"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/ingest"
)

// extensionID returns the catalog-wide id of an upstream.
func extensionID(kind, name string) string { return naming.ExtensionID(kind+".", name) }

// provider makes the calls to one upstream.
type provider struct{ *upstream }

var (
	_ capability.Prompt = (*provider)(nil)
	_ capability.Prober = (*provider)(nil)

	_ capability.Resumer = (*agentProvider)(nil)
)

// Key implements capability.Provider.
func (p *provider) Key() capability.ProviderKey { return p.key }

// ReturnsPromptly implements capability.Prompt: a call returns when its context ends.
func (p *provider) ReturnsPromptly() {}

// view holds the bindings for calls. It is replaced before the catalog receives the
// module, so that every entry has its binding.
type view struct {
	bindings     map[capability.Member]*binding
	instructions string // those that were approved
}

// binding is the definition of a member.
type binding struct {
	kind  string
	name  string
	held  bool
	shown *ingest.Definition
	// output compiles the output schema at the first use; nil without one.
	output func() (*catalog.Schema, error)
	// withheld are the resources and templates that kindRead does not read.
	withheld []*ingest.Definition
}

// fits reports whether a binding of resources may read the address.
func (b *binding) fits(uri string) bool {
	if len(uri) > ingest.MaxURI {
		return false
	}
	if b.kind == kindRead {
		return uri != "" && !slices.ContainsFunc(b.withheld, func(d *ingest.Definition) bool { return covers(d, uri) })
	}
	return covers(b.shown, uri)
}

// covers reports whether a resource or template has the address.
func covers(d *ingest.Definition, uri string) bool {
	if d.Pattern != nil {
		return d.Pattern.MatchString(uri)
	}
	return d.Name == uri
}

// Kinds of members without a definition.
const (
	kindCompletion = "completion"
	nameComplete   = "complete"
	// kindRead reads resources that the upstream does not list but linked to, or offers on one
	// connection only.
	kindRead = "resource-read"
	nameRead = "read"
)

// Instructions returns what the upstream states about its tools, as far as it was approved.
func (r *Registry) Instructions(name string) string {
	if u, err := r.get(name); err == nil {
		return u.view.Load().instructions
	}
	return ""
}

// show publishes the current state.
func (u *upstream) show() {
	u.changing.Lock()
	defer u.changing.Unlock()
	u.publish()
}

// publish publishes the current module to the catalog. The caller holds changing.
func (u *upstream) publish() {
	publish, err := u.reg.running()
	if err != nil {
		return
	}
	u.mu.Lock()
	gone := u.gone
	u.mu.Unlock()
	if gone {
		return
	}
	if err := publish(u.batch()); err != nil {
		u.reg.cfg.Logger.Error("what an upstream declares could not be published", "upstream", u.record.Name, "err", err)
	}
}

func (u *upstream) source() string { return u.record.Origin() + "/" + u.record.Name }

// batch returns the visible definitions as one module, and replaces the view. The ids of
// contributions are computed from all listed definitions, including hidden ones, so that
// an approval does not change the id of another one. The caller holds changing.
func (u *upstream) batch() capability.Batch {
	u.mu.Lock()
	state, server, current := u.state, u.server, u.current
	u.mu.Unlock()
	ext := extensionID(u.record.Origin(), u.record.Name)
	b := capability.Batch{Source: u.source(), Providers: []capability.Provider{u.provider()}}
	m := capability.Module{
		Extension: ext, ID: ext, Name: u.record.Name, Label: u.record.Name, Version: cleanText(server.Release, 64), Origin: u.record.Origin(),
	}
	v := &view{bindings: make(map[capability.Member]*binding)}
	ids := u.contributionIDs()
	rows := u.pins.Sorted()
	read := &binding{kind: kindRead, name: nameRead}
	for _, p := range rows {
		resource := p.Kind == ingest.Resource || p.Kind == ingest.Template
		if resource && p.Listed && p.State != ingest.Published {
			read.withhold(p)
		}
		if !p.Visible() {
			continue
		}
		if p.Kind == ingest.Instructions {
			v.instructions = p.Shown.Description
			continue
		}
		member := capability.Member{Module: ext, Kind: string(p.Kind), Name: p.Name}
		v.bindings[member] = bind(p)
		m.Contributions = append(m.Contributions, u.contribution(p, ids[p.Key()], member, state))
	}
	for _, method := range []struct {
		feature, id, title string
		known              *bool
		binding            *binding
	}{
		{"completions", "completion.complete", "Completion of arguments", &u.completed, &binding{kind: kindCompletion, name: nameComplete}},
		{"resources", "resource.read", "Resources that a result links to", &u.reads, read},
	} {
		if current != nil {
			*method.known = current.client.Has(method.feature)
		}
		if !*method.known || current == nil && len(m.Contributions) == 0 {
			continue
		}
		member := capability.Member{Module: ext, Kind: method.binding.kind, Name: method.binding.name}
		v.bindings[member] = method.binding
		id := method.id
		if ids[ingest.PinKey{Kind: ingest.Tool, Name: id}] == id {
			id += "-" + naming.Mark("capability.rpc")
		}
		m.Contributions = append(m.Contributions, capability.Contribution{
			ID: id, Kind: "capability.rpc", Title: method.title, Member: member, Provider: u.key, Effect: capability.EffectRead,
			Availability: state,
			Timeout:      u.timeout(), Telemetry: u.telemetry(),
		})
	}
	slices.SortFunc(m.Contributions, func(a, b capability.Contribution) int { return cmp.Compare(a.ID, b.ID) })
	u.view.Store(v)
	if !u.record.Disabled {
		b.Modules = []capability.Module{m}
	}
	return b
}

func bind(p *ingest.PinRow) *binding {
	b := &binding{kind: string(p.Kind), name: p.Name, held: p.State == ingest.Held, shown: p.Shown}
	if doc := p.Shown.Output; doc != nil {
		b.output = sync.OnceValues(func() (*catalog.Schema, error) { return catalog.CompileSchema(doc) })
	}
	return b
}

// contributionIDs returns unique contribution ids for all listed definitions.
func (u *upstream) contributionIDs() map[ingest.PinKey]string {
	var tools, prompts []string
	for _, p := range u.pins {
		switch {
		case !p.Listed:
		case p.Kind == ingest.Tool:
			tools = append(tools, p.Name)
		case p.Kind == ingest.Prompt:
			prompts = append(prompts, p.Name)
		}
	}
	out := make(map[ingest.PinKey]string, len(u.pins))
	taken := make(map[string]bool)
	for name, id := range naming.ContributionIDs("", tools) {
		out[ingest.PinKey{Kind: ingest.Tool, Name: name}] = id
		taken[id] = true
	}
	for name, id := range naming.ContributionIDs("prompt.", prompts) {
		if taken[id] {
			id += "-" + naming.Mark("capability.interaction")
		}
		out[ingest.PinKey{Kind: ingest.Prompt, Name: name}] = id
	}
	for _, p := range u.pins {
		if p.Kind != ingest.Resource && p.Kind != ingest.Template {
			continue
		}
		prefix := "resource."
		if p.Kind == ingest.Template {
			prefix = "template."
		}
		id := prefix + naming.Mark(p.Name) + naming.Mark("again "+p.Name)
		if taken[id] {
			id += "-" + naming.Mark("capability.context-augmenter")
		}
		out[p.Key()] = id
	}
	return out
}

// hintsTrusted is the tag of tools whose own annotations are published unchanged.
const hintsTrusted = "hints:trusted"

func (u *upstream) contribution(p *ingest.PinRow, id string, member capability.Member,
	state capability.Availability,
) capability.Contribution {
	d := p.Shown
	c := capability.Contribution{
		ID: id, Title: d.Title, Description: d.Description, Member: member, Provider: u.key, Effect: capability.EffectRead,
		Definition: d.Published, Availability: state, Timeout: u.timeout(), Telemetry: u.telemetry(),
	}
	switch p.Kind {
	case ingest.Tool:
		c.Kind, c.Tool, c.InputSchema, c.OutputSchema, c.Approval = "capability.agent-tool", d.Name, d.Input, d.Output, d.Destructive
		if d.Input == nil { // an unknown dialect
			c.InputSchema = []byte(`{"type":"object"}`)
		}
		c.Effect = capability.EffectExternal
		if d.ReadOnly && u.record.HintsTrusted && !d.Destructive { // a destructive tool is never read-only
			c.Effect = capability.EffectRead
		}
		if u.record.HintsTrusted {
			c.Tags = []string{hintsTrusted}
		}
	case ingest.Prompt:
		c.Kind, c.Tool, c.Visibility = "capability.interaction", d.Name, capability.VisibleNone
	default:
		c.Kind, c.Visibility = "capability.context-augmenter", capability.VisibleNone
	}
	return c
}

func (u *upstream) timeout() time.Duration {
	return time.Duration(u.record.TimeoutMS) * time.Millisecond
}

func (u *upstream) telemetry() map[string]string {
	name := u.record.Name
	return map[string]string{"source": u.record.Origin(), "upstream": name[:min(len(name), 64)]}
}

// cleanText returns untrusted text as one line for display.
func cleanText(s string, most int) string {
	return text.CutRunes(text.OneLine(ingest.Shown(s)), most)
}

// withhold excludes a resource or template that waits for an approval.
func (b *binding) withhold(p *ingest.PinRow) {
	for _, d := range []*ingest.Definition{p.Shown, p.Offer} {
		if d != nil {
			b.withheld = append(b.withheld, d)
		}
	}
	if p.Shown == nil {
		b.withheld = append(b.withheld, &ingest.Definition{Kind: p.Kind, Name: p.Name})
	}
}
