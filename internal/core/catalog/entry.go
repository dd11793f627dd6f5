package catalog

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog/actions"
	"github.com/junctor-run/junctor/internal/core/catalog/naming"
	"github.com/junctor-run/junctor/internal/core/catalog/ordered"
	"github.com/junctor-run/junctor/internal/core/catalog/rules"
)

// Entry is one capability of one provider instance. It is immutable.
type Entry struct {
	ID           capability.ID
	Action       capability.Action // canonical, or minted: "ext.<extension>.<contribution>"
	Family       *actions.Row      // what the action means; a synthetic row for unreviewed and minted ones
	Row          *actions.Row      // the registry's row; nil for unreviewed and minted actions
	Contribution *capability.Contribution
	Module       *capability.Module
	Provider     capability.Provider // nil if the source published no provider with that key
	Effect       capability.Effect
	Runtime      string // runtime id: <extension>/<contribution>
	key          capability.ProviderKey
	ceiling      audienceSet
	sum          ordered.Sum
	schema       *document
}

// Key returns the provider key of the entry.
func (e *Entry) Key() capability.ProviderKey { return e.key }

// Minted reports whether the entry is a tool outside the registry, whose action id the host
// made ("ext." or "fn.").
func (e *Entry) Minted() bool {
	return strings.HasPrefix(string(e.Action), "ext.") || strings.HasPrefix(string(e.Action), "fn.")
}

// Declared returns the name that a minted tool requests: its function name, its tool name,
// or else its contribution id.
func (e *Entry) Declared() string {
	if fn, ok := strings.CutPrefix(string(e.Action), "fn."); ok {
		return fn
	}
	if e.Contribution.Tool != "" {
		return e.Contribution.Tool
	}
	return e.Contribution.ID
}

// Label returns the short provider name that labels of contested names contain: "node" for a
// function, else the module's label or the last segment of its extension id.
func (e *Entry) Label() string {
	if strings.HasPrefix(string(e.Action), "fn.") {
		return "node"
	}
	if e.Module.Label != "" {
		return e.Module.Label
	}
	return lastSegment(e.Module.Extension)
}

func lastSegment(ext string) string { return ext[strings.LastIndexByte(ext, '.')+1:] }

// Name returns a readable name that does not depend on a context: the canonical action, the
// declared name of a minted tool, or, for an entry of an internal "runtime." action, its
// member address.
func (e *Entry) Name() string {
	if strings.HasPrefix(string(e.Action), "runtime.") {
		return e.Contribution.Member.String()
	}
	if e.Minted() {
		return e.Declared()
	}
	return string(e.Action)
}

// VisibleTo reports whether the audience can ever see the entry: the kind's
// ceiling, narrowed by the family and by what the contribution declares.
// Contexts and rules narrow further.
func (e *Entry) VisibleTo(a capability.Audience) bool { return e.ceiling.has(a) }

// Eligible reports whether calls may go to the entry now.
func (e *Entry) Eligible() bool {
	return e.Contribution.Availability.Eligible() && !e.Contribution.Unsupported
}

// Approval reports whether the source requires an approval of each call.
func (e *Entry) Approval() bool { return e.Contribution.Approval }

// Facts returns the attributes that the operator's rules match.
func (e *Entry) Facts() rules.Facts {
	return rules.Facts{
		Action: string(e.Action), Provider: string(e.key), Extension: e.Module.Extension, Effect: e.Effect, Tags: e.Contribution.Tags,
	}
}

// Sum returns the digest of the entry's published content, without volatile times.
func (e *Entry) Sum() ordered.Sum { return e.sum }

// Schema returns the compiled input schema, or nil if the entry has none. It is compiled at
// the first call and cached; entries with equal documents share it. A schema that
// cannot be compiled is an error with code failed at every call.
func (e *Entry) Schema() (*Schema, error) {
	if e.schema == nil {
		return nil, nil
	}
	schema, err := e.schema.compile()
	if err != nil {
		return nil, capability.Wrap(capability.CodeFailed, "schema", fmt.Sprintf("the input schema of %s cannot be used: %s", e.ID, err), err)
	}
	return schema, nil
}

// InputSchema returns the contribution's schema document, else the registry's, else nil.
func (e *Entry) InputSchema() []byte {
	if len(e.Contribution.InputSchema) > 0 {
		return e.Contribution.InputSchema
	}
	if e.Row != nil {
		return e.Row.InputSchema
	}
	return nil
}

// OutputSchema returns the registry's schema document of the result, else the contribution's, or
// nil if none is declared.
func (e *Entry) OutputSchema() []byte {
	if e.Row != nil && len(e.Row.OutputSchema) > 0 {
		return e.Row.OutputSchema
	}
	return e.Contribution.OutputSchema
}

// ContentHash returns the hash that approvals and grants are bound to: the module's digest
// or, if the module has none, a hash of the contribution's id, effect, description, input
// schema, permissions and definition.
func (e *Entry) ContentHash() string {
	if e.Module.Digest != "" {
		return e.Module.Digest
	}
	c := e.Contribution
	sum := sha256.Sum256(put(put(nil, string(e.ID), string(c.Effect), c.Description, string(c.InputSchema)), c.Permissions...))
	if len(c.Definition) > 0 {
		sum = sha256.Sum256(append(sum[:], c.Definition...))
	}
	return "sha256:" + hex.EncodeToString(sum[:])
}

// DisplayName returns the human label: the registry's title with the provider, or the
// contribution's own title.
func (e *Entry) DisplayName() string {
	_, kind, instance := e.key.Parts()
	title := e.Contribution.Title
	if e.Row != nil {
		title = e.Row.Title + " (" + kind + "/" + instance + ")"
	}
	title = cmp.Or(title, e.Contribution.ID)
	return title
}

// Description returns the description of a canonical action from the registry, never from
// the provider.
func (e *Entry) Description() string {
	if e.Row != nil {
		return e.Row.Description
	}
	return e.Contribution.Description
}

// TelemetryTags returns the tags, which always include extension, contribution, source and
// origin.
func (e *Entry) TelemetryTags() map[string]string {
	tags := map[string]string{
		"extension": e.Module.Extension, "contribution": e.Contribution.ID, "source": e.Module.Origin, "origin": e.Module.Origin,
	}
	for k, v := range e.Contribution.Telemetry {
		tags[k] = v
	}
	return tags
}

type audienceSet uint8

const (
	toAgent audienceSet = 1 << iota
	toOperator
	toInternal
)

func (s audienceSet) has(a capability.Audience) bool {
	switch a {
	case capability.AudienceAgent:
		return s&toAgent != 0
	case capability.AudienceOperator:
		return s&toOperator != 0
	case capability.AudienceInternal:
		return s&toInternal != 0
	}
	return false
}

// kernelKind returns the widest audience of a kind. known is false for an unknown kind; kernel
// is false for operator and host kinds, which get no entries because intake stores them.
func kernelKind(kind string) (ceiling audienceSet, known, kernel bool) {
	switch kind {
	case "adapter.runtime", "capability.agent-tool", "capability.memory", "capability.interaction":
		return toAgent | toOperator | toInternal, true, true
	case "capability.context-engine", "capability.runtime-backend", "capability.context-augmenter",
		"capability.event-handler", "capability.route-augmenter", "capability.rpc":
		return toInternal, true, true
	case "capability.control-command", "capability.provider-integration", "service.background",
		"surface.cli", "surface.setup", "surface.config", "surface.status", "surface.http-route":
		return 0, true, false
	}
	return 0, false, false
}

// ceilingOf narrows the kind's audience by the family's and by the contribution's visibility.
// Neither can widen it.
func ceilingOf(kind audienceSet, c *capability.Contribution, family *actions.Row) audienceSet {
	s := kind
	switch family.Visibility {
	case capability.AudienceOperator:
		s &^= toAgent
	case capability.AudienceInternal:
		s &^= toAgent | toOperator
	}
	visibility := c.Visibility
	if visibility == "" && c.Kind == "capability.interaction" {
		visibility = capability.VisibleNone
	}
	switch visibility {
	case capability.VisibleAgent:
		s &^= toOperator
	case capability.VisibleOperator:
		s &^= toAgent
	case capability.VisibleNone:
		s &^= toAgent | toOperator
	}
	return s
}

// familyOfKind returns the internal action of a kind whose contributions name none, or "".
func familyOfKind(kind string) capability.Action {
	switch kind {
	case "capability.context-engine":
		return "context.engine"
	case "capability.context-augmenter":
		return "context.augment"
	case "capability.event-handler":
		return "event.observe"
	case "capability.route-augmenter":
		return "route.augment"
	case "capability.runtime-backend":
		return "runtime.backend"
	case "capability.rpc":
		return "runtime.rpc"
	}
	return ""
}

// registryRow returns the row of a registered id or alias, or nil. Equal rows are equal
// pointers.
func registryRow(id capability.Action) *actions.Row {
	i, ok := rowIndex()[id]
	if !ok {
		return nil
	}
	return i
}

// Views of the registry, which is constant. They are computed at first use.
var (
	rowIndex = sync.OnceValue(func() map[capability.Action]*actions.Row {
		index := make(map[capability.Action]*actions.Row)
		for _, row := range actions.Rows() {
			index[row.ID] = &row
			for _, alias := range row.Aliases {
				index[capability.Action(alias)] = &row
			}
		}
		return index
	})
	coreFolds = sync.OnceValue(func() map[string]bool {
		folds := make(map[string]bool)
		for _, row := range actions.Rows() {
			folds[foldOf(string(row.ID))] = true
		}
		return folds
	})
	// accountDomains holds the domains whose provider keys name accounts.
	accountDomains = sync.OnceValue(func() map[string]bool {
		domains := make(map[string]bool)
		for _, row := range actions.Rows() {
			if row.RouteAware {
				domains[row.Domain] = true
			}
		}
		return domains
	})
	mintedFamily = sync.OnceValue(func() *actions.Row { return unreviewed("ext") })
)

func foldOf(s string) string { return naming.Fold(s) }

// Reserved reports whether a folded name belongs to a canonical action, even one without
// a provider.
func Reserved(fold string) bool { return coreFolds()[fold] }

// unreviewed returns the synthetic row for actions of a domain outside the registry.
func unreviewed(domain string) *actions.Row {
	fields := []string{"kind", "instance", "extension"}
	if domain == "fn" {
		fields = []string{"node"}
	}
	return &actions.Row{
		Mode: actions.ModeParallel, Address: actions.AddressNone, Pin: actions.PinStrict, Effect: capability.EffectExternal,
		Domain: domain, Visibility: capability.AudienceAgent, Status: actions.StatusStable,
		SelectorFields: fields,
	}
}

// appendContent appends the published content of an entry, for its digest.
func appendContent(b []byte, e *Entry) []byte {
	c := e.Contribution
	b = put(b, string(e.ID), string(e.key), c.Kind, c.Tool, c.Title, c.Description, string(e.Effect), string(c.Availability.State),
		c.Availability.Reason, c.Member.Module, c.Member.Kind, c.Member.Name, e.Module.Digest, e.Module.Label, string(c.Visibility))
	b = put(b, c.Confirm)
	b = put(b, c.Permissions...)
	b = put(b, c.Tags...)
	b = put(b, c.Aliases...)
	b = append(binary.AppendUvarint(b, uint64(len(c.InputSchema))), c.InputSchema...)
	b = append(binary.AppendUvarint(b, uint64(len(c.OutputSchema))), c.OutputSchema...)
	b = append(binary.AppendUvarint(b, uint64(len(c.Definition))), c.Definition...)
	b = append(strconv.AppendInt(b, int64(c.Rank), 10), 0, flag(c.Exact), flag(c.Unsupported), flag(c.Approval), flag(e.Provider != nil))
	if c.Scope != nil || c.Arbitration != nil || c.Depends != nil || c.Backend != nil || c.Augment != nil || len(c.Telemetry) > 0 {
		more, _ := json.Marshal([]any{c.Scope, c.Arbitration, c.Depends, c.Backend, c.Augment, c.Telemetry}) // strings and numbers only
		b = append(b, more...)
	}
	return b
}

func flag(on bool) byte {
	if on {
		return 1
	}
	return 0
}

// put appends the number of parts and each part with its length, so that different lists of
// parts never result in the same bytes.
func put(b []byte, parts ...string) []byte {
	b = binary.AppendUvarint(b, uint64(len(parts)))
	for _, p := range parts {
		b = append(binary.AppendUvarint(b, uint64(len(p))), p...)
	}
	return b
}

// splitID parses a capability id: <extension>/<contribution>#<action>@<instance>.
func splitID(id string) (extension, contribution, action string, ok bool) {
	runtime, rest, found := strings.Cut(id, "#")
	if !found {
		return "", "", "", false
	}
	at := strings.LastIndexByte(rest, '@')
	extension, contribution, found = strings.Cut(runtime, "/")
	if at < 0 || !found {
		return "", "", "", false
	}
	return extension, contribution, rest[:at], true
}
