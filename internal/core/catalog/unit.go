package catalog

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog/actions"
	"github.com/junctor-run/junctor/internal/core/catalog/ordered"
	"github.com/junctor-run/junctor/internal/core/catalog/rules"
)

// unit is the batch of one source with the modules built from it.
type unit struct {
	batch   capability.Batch
	modules []*module
}

// module is one module of a unit with its entries. It is immutable.
type module struct {
	*capability.Module
	entries   []*Entry // in the catalog's order
	rejected  map[string]string
	special   bool     // declares something that the ruling depends on
	ruled     []*Entry // with a slot, a backend or an augmenter
	relations []relation
	mappable  []mappable
	sum       ordered.Sum
	members   func() []*Entry        // ordered by member
	declares  func() map[string]bool // runtime ids that are not rejected
}

// relation holds the dependencies that a contribution declares. It is settled if it only
// requires plain contributions of its own module, which exist.
type relation struct {
	runtime string
	*capability.Depends
	settled bool
}

// relate sets ruled and relations, the parts of the module that the ruling depends on, so that
// a change of another module need not scan the entries of this one.
func (m *module) relate() {
	plain := make(map[string]bool) // runtime ids that only a contest can withhold
	if slices.ContainsFunc(m.entries, func(e *Entry) bool { return e.Contribution.Depends != nil }) {
		for _, e := range m.entries {
			plain[e.Runtime] = e.Contribution.Depends == nil && e.Contribution.Backend == nil
		}
	}
	for _, e := range m.entries {
		c := e.Contribution
		if c.Arbitration != nil && c.Arbitration.Slot != "" || c.Backend != nil || c.Augment != nil {
			m.ruled = append(m.ruled, e)
		}
		if d := c.Depends; d != nil && (len(m.relations) == 0 || m.relations[len(m.relations)-1].runtime != e.Runtime) {
			needs := slices.ContainsFunc(d.Requires, func(id string) bool { return !plain[id] })
			m.relations = append(m.relations, relation{e.Runtime, d, !needs && len(d.Conflicts)+len(d.Supersedes) == 0})
		}
	}
}

// mappable is a tool that may join a family with tools of the same name.
type mappable struct {
	runtime string
	action  capability.Action
	schema  ordered.Sum
	base    bool // its schema serves the registry's family
}

// compareEntries orders entries as the catalog lists them: by action, then in the order of
// selection's last step.
func compareEntries(a, b *Entry) int {
	return cmp.Or(
		cmp.Compare(a.Action, b.Action),
		cmp.Compare(a.Module.Extension, b.Module.Extension),
		cmp.Compare(a.Contribution.ID, b.Contribution.ID),
		cmp.Compare(a.key, b.key),
	)
}

func entryOrder() ordered.Order[*Entry] {
	return ordered.Order[*Entry]{Compare: compareEntries, Sum: func(e *Entry) ordered.Sum { return e.sum }}
}

// builder turns batches into units under one set of settings.
type builder struct {
	settings *Settings
	joined   func(runtime string) (capability.Action, bool) // the family a mappable tool joined
	known    func(schema []byte) bool                       // an entry has this schema document, so it was checked before
	families map[string]*actions.Row                        // of unreviewed actions, by domain
	scratch  []byte
}

// unit builds the modules of a batch.
func (b *builder) unit(batch capability.Batch) *unit {
	u := &unit{batch: batch}
	providers := make(map[capability.ProviderKey]capability.Provider, len(batch.Providers))
	for _, p := range batch.Providers {
		providers[p.Key()] = p
	}
	for i := range batch.Modules {
		u.modules = append(u.modules, b.module(&batch.Modules[i], providers))
	}
	return u
}

// module builds one module. A contribution that cannot be admitted is listed in rejected with
// its reason and gets no entries. A module that is not active gets no entries at all.
func (b *builder) module(in *capability.Module, providers map[capability.ProviderKey]capability.Provider) *module {
	m := &module{Module: in}
	sum := put(nil, in.Extension, in.ID, in.Name, in.Version, in.Endpoint, in.Digest, in.Stage, in.Origin, in.Label)
	m.sum = sha256.Sum256(put(sum, in.Users...))
	m.entries = make([]*Entry, 0, len(in.Contributions))
	for i := range in.Contributions {
		c := &in.Contributions[i]
		if c.Arbitration != nil && c.Arbitration.Slot != "" || c.Depends != nil || c.Backend != nil || c.Augment != nil {
			m.special = true
		}
		if !in.Active() {
			continue
		}
		e, reason := b.entry(m, c, providers)
		if reason != "" {
			if m.rejected == nil {
				m.rejected = make(map[string]string)
			}
			m.rejected[in.Extension+"/"+c.ID] = reason
			continue
		}
		if e != nil {
			m.entries = append(m.entries, e)
		}
	}
	if m.rejected != nil { // one invalid action rejects all entries of its contribution
		m.entries = slices.DeleteFunc(m.entries, func(e *Entry) bool { return m.rejected[e.Runtime] != "" })
		m.mappable = slices.DeleteFunc(m.mappable, func(p mappable) bool { return m.rejected[p.runtime] != "" })
	}
	slices.SortFunc(m.entries, compareEntries)
	m.relate()
	m.declares = sync.OnceValue(func() map[string]bool {
		ids := make(map[string]bool, len(in.Contributions))
		for i := range in.Contributions {
			id := in.Extension + "/" + in.Contributions[i].ID
			ids[id] = m.rejected[id] == ""
		}
		return ids
	})
	m.members = sync.OnceValue(func() []*Entry {
		list := slices.Clone(m.entries)
		slices.SortStableFunc(list, compareMembers)
		return list
	})
	return m
}

func compareMembers(a, b *Entry) int {
	x, y := a.Contribution.Member, b.Contribution.Member
	return cmp.Or(cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Name, y.Name))
}

// entry builds the entry of one contribution. It returns nil and "" for kinds that intake
// stores, and nil and a reason if the contribution is rejected.
func (b *builder) entry(m *module, c *capability.Contribution, providers map[capability.ProviderKey]capability.Provider) (*Entry, string) {
	ceiling, known, kernel := kernelKind(c.Kind)
	switch {
	case !known:
		return nil, "unknown_kind"
	case !kernel:
		return nil, ""
	}
	if c.ID == "" || strings.ContainsFunc(c.ID, func(r rune) bool { return r <= ' ' || r == '#' || r == '@' || r == 0x7f }) {
		return nil, "invalid_id"
	}
	if !b.readable(c.InputSchema) || !b.readable(c.OutputSchema) {
		return nil, "invalid_schema"
	}
	e := &Entry{
		Action: c.Action, Contribution: c, Module: m.Module, Provider: providers[c.Provider], Effect: c.Effect,
		Runtime: m.Extension + "/" + c.ID,
	}
	if strings.HasPrefix(string(c.Action), "ext.") && c.Action != mintedAction(m, c) {
		return nil, "unknown_canonical_action" // a minted action belongs to one tool
	}
	mapped := b.resolveAction(m, e)
	if reason := b.family(e); reason != "" {
		return nil, reason
	}
	if reason := checkArbitration(c, e.Family); reason != "" {
		return nil, reason
	}
	switch e.Effect {
	case capability.EffectRead, capability.EffectWrite, capability.EffectAdmin:
	default: // including unknown ones
		e.Effect = capability.EffectExternal
	}
	if e.Row != nil && (c.Effect == "" || !e.Effect.AtLeast(e.Row.Effect)) {
		e.Effect = e.Row.Effect // a module may call its work more dangerous, never less
	}
	e.key = keyOf(m, c, e.Family, mapped)
	domain, _, instance := e.key.Parts()
	if e.Row == nil && accountDomains()[domain] {
		return nil, "reserved_domain" // its key could be that of an account, which rules and bindings name
	}
	id := e.Runtime + "#" + string(e.Action) + "@" + instance
	e.ID, e.Runtime = capability.ID(id), id[:len(e.Runtime)] // one string in memory serves three fields
	if e.Row == nil {
		e.Action = capability.Action(id[len(e.Runtime)+1:][:len(e.Action)])
	}
	e.ceiling = ceilingOf(ceiling, c, e.Family)
	b.scratch = appendContent(b.scratch[:0], e)
	e.sum = sha256.Sum256(b.scratch)
	return e, ""
}

// readable reports whether a schema document is absent, or a JSON object of at most 256 KiB to
// which a selector can be added. It is compiled only at its first use.
func (b *builder) readable(doc []byte) bool {
	if len(doc) == 0 || b.known(doc) {
		return true
	}
	var parts struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
	}
	return len(doc) <= maxSchemaBytes && bytes.HasPrefix(bytes.TrimLeft(doc, " \t\r\n"), []byte("{")) && json.Unmarshal(doc, &parts) == nil
}

// mintedAction returns the action id of a tool that has no canonical action.
func mintedAction(m *module, c *capability.Contribution) capability.Action {
	return capability.Action("ext." + m.Extension + "." + c.ID)
}

// resolveAction sets e.Action: the action the contribution names, that of its kind, a family
// it joined, or a minted one. It reports whether the tool joined a family, and adds mappable
// tools to the module.
func (b *builder) resolveAction(m *module, e *Entry) (mapped bool) {
	c := e.Contribution
	wanted := c.Action
	if wanted == "" {
		if wanted = familyOfKind(c.Kind); wanted != "" {
			e.Action = wanted
			return false
		}
		for _, rule := range b.settings.CanonicalMap {
			if rule.Tool == e.Declared() && rules.Glob(rule.Ext, m.Extension) {
				wanted = rule.Action
				break
			}
		}
	}
	if wanted == "" {
		e.Action = mintedAction(m, c)
		return false
	}
	if c.Action != "" && !strings.HasPrefix(string(c.Action), "fn.") {
		e.Action = wanted
		return false
	}
	row := registryRow(wanted)
	m.special = true
	m.mappable = append(m.mappable, mappable{
		runtime: e.Runtime, action: wanted, schema: schemaSum(c.InputSchema), base: row == nil || serves(c.InputSchema, row.InputSchema),
	})
	if action, ok := b.joined(e.Runtime); ok {
		e.Action = action
		return true
	}
	e.Action = mintedAction(m, c)
	return false
}

// family sets the entry's registry row and family from its action, or returns the reason why
// the action is invalid.
func (b *builder) family(e *Entry) (reason string) {
	if reason := checkAction(e.Action); reason != "" {
		return reason
	}
	if row := registryRow(e.Action); row != nil {
		e.Action, e.Row, e.Family = row.ID, row, row
		return ""
	}
	if strings.HasPrefix(string(e.Action), "ext.") {
		e.Family = mintedFamily()
		return ""
	}
	domain, _, _ := strings.Cut(string(e.Action), ".")
	if b.families[domain] == nil {
		b.families[domain] = unreviewed(domain)
	}
	e.Family = b.families[domain]
	return ""
}

// checkArbitration returns the reason why the declared arbitration is invalid, or "". A
// contribution may not declare another mode than the registry's.
func checkArbitration(c *capability.Contribution, family *actions.Row) string {
	a := c.Arbitration
	if a == nil {
		return ""
	}
	switch actions.Mode(a.Mode) {
	case "", family.Mode:
	case actions.ModeExclusive, actions.ModeRanked, actions.ModeParallel, actions.ModeComposed:
		return "arbitration_override_forbidden"
	default:
		return "unknown_arbitration_mode"
	}
	if a.Slot != "" && !knownSlot(a.Slot) {
		return "unknown_slot"
	}
	return ""
}

// keyOf returns the provider key: the declared one, or one derived from the contribution. A
// mapped tool's key moves to the domain of its new family.
func keyOf(m *module, c *capability.Contribution, family *actions.Row, mapped bool) capability.ProviderKey {
	domain, kind, instance := family.Domain, lastSegment(m.Extension), "default"
	if c.Provider != "" {
		if !mapped {
			return c.Provider
		}
		_, kind, instance = c.Provider.Parts()
		return capability.ProviderKey(domain + ":" + kind + ":" + instance) // the segments are escaped already
	}
	switch {
	case c.Backend != nil:
		domain, kind, instance = "runtime-backend", c.Backend.Class, c.Backend.ID
	case c.Arbitration != nil && c.Arbitration.SelectorID != "":
		kind = c.Arbitration.SelectorID
		if c.Kind == "capability.context-engine" {
			domain = SlotContextEngine
		}
	case family == mintedFamily():
		kind = m.Extension
	}
	return capability.NewProviderKey(domain, kind, instance)
}
