package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog/actions"
	"github.com/junctor-run/junctor/internal/core/catalog/naming"
	"github.com/junctor-run/junctor/internal/core/catalog/ordered"
	"github.com/junctor-run/junctor/internal/core/catalog/rules"
)

// Settings is the operator's configuration of the catalog. The zero value means all defaults.
type Settings struct {
	Slots          map[string]SlotSetting         `json:"slots,omitempty"`
	Policy         []rules.Rule                   `json:"policy,omitempty"`
	Ranks          map[capability.ProviderKey]int `json:"ranks,omitempty"` // replaces the declared rank
	Backends       map[string]BackendSetting      `json:"backends,omitempty"`
	ForcedDefaults []ForcedDefault                `json:"forcedDefaults,omitempty"`
	CrossContext   string                         `json:"crossContext,omitempty"` // any (default), same-adapter, same-account
	Naming         NamingSetting                  `json:"naming,omitempty"`
	Owners         map[string]string              `json:"owners,omitempty"` // conflict key → runtime id of the winner
	CanonicalMap   []Mapping                      `json:"canonicalMap,omitempty"`
	Exposure       Exposure                       `json:"exposure,omitempty"`

	sum ordered.Sum
}

// SlotSetting chooses the provider of a slot. The most specific override wins:
// workspace and agent, agent, workspace.
type SlotSetting struct {
	Selected  string         `json:"selected,omitempty"` // selector id or runtime id; "" is the slot's default
	Mode      string         `json:"mode,omitempty"`     // exclusive (default) or parallel; context-engine is always exclusive
	Overrides []SlotOverride `json:"overrides,omitempty"`
}

// SlotOverride is a slot's setting for one workspace, agent or both.
type SlotOverride struct {
	Workspace string `json:"workspace,omitempty"`
	Agent     string `json:"agent,omitempty"`
	Selected  string `json:"selected"`
	Mode      string `json:"mode,omitempty"`
}

// BackendSetting chooses the backend of a class, and whether the class is an
// exclusive slot.
type BackendSetting struct {
	Selected  string `json:"selected,omitempty"`
	Exclusive bool   `json:"exclusive,omitempty"`
}

// ForcedDefault is a default provider set by policy (step 5 of a selection). It does not
// restrict which provider a caller may name.
type ForcedDefault struct {
	Action    string                 `json:"action"` // glob
	Provider  capability.ProviderKey `json:"provider"`
	Agent     string                 `json:"agent,omitempty"`
	Workspace string                 `json:"workspace,omitempty"`
}

// NamingSetting decides contested tool names.
type NamingSetting struct {
	Pins          map[string]string `json:"pins,omitempty"`        // name → runtime id
	OnCollision   string            `json:"onCollision,omitempty"` // label (default) or reject
	ExposeAliases []string          `json:"exposeAliases,omitempty"`
	// Upstreams decides whether names of tools of MCP servers begin with the server's name: always,
	// or, if needed (default), only while another tool declares the same name.
	Upstreams string `json:"upstreams,omitempty"`
	// Former are names that tools had before Upstreams was changed.
	Former []FormerName `json:"-"`
}

// The values of NamingSetting.Upstreams.
const (
	NamesAlways = "always"
	NamesNeeded = "needed"
)

// FormerName is a name that a tool had. Until then a call of it reaches the tool, if its definition
// is the same and no other tool has the name.
type FormerName struct {
	Name       string            `json:"name"`
	Action     capability.Action `json:"action"`
	Definition string            `json:"definition"` // see DefinitionSum
	Until      time.Time         `json:"until"`
}

// DefinitionSum returns a digest of the definition of an entry.
func DefinitionSum(e *Entry) string {
	sum := sha256.Sum256(e.Contribution.Definition)
	return hex.EncodeToString(sum[:])
}

// Declared returns the name that an entry's tool claims under the settings.
func (s *Settings) Declared(e *Entry) string {
	if s.Naming.Upstreams == NamesAlways && FromMCP(e) {
		return naming.Prefixed(e.Label(), e.Declared())
	}
	return e.Declared()
}

// FromMCP reports whether an entry is a tool of an MCP server without a canonical action.
func FromMCP(e *Entry) bool {
	return e.Minted() && e.Module.Origin == "mcp" && e.Contribution.Tool != ""
}

// Mapping assigns the tools of that name to a canonical action.
type Mapping struct {
	Ext    string            `json:"ext"` // glob over extension ids
	Tool   string            `json:"tool"`
	Action capability.Action `json:"action"`
}

// Exposure bounds the tools that are listed to a model; it finds the others by search.
type Exposure struct {
	MaxDirect      int      `json:"maxDirect,omitempty"`      // 0: 40; negative: no limit
	MaxSchemaBytes int      `json:"maxSchemaBytes,omitempty"` // 0: 64 KiB; negative: no limit
	Direct         []string `json:"direct,omitempty"`         // patterns that are always shown
	// OwnTools is whether lists have the tools of junctor itself: OwnListed, OwnHidden, or "" for listed.
	OwnTools string `json:"own,omitempty"`
}

// The values of Exposure.OwnTools.
const (
	OwnListed = "listed"
	OwnHidden = "hidden" // except those that Direct names, and in views that name their module
)

// The slots of the core. A claim on any other slot is rejected.
const (
	SlotMemory        = "memory"
	SlotContextEngine = "context-engine"
)

// defaultSelector is the provider that holds a slot when nothing is configured.
const defaultSelector = "builtin"

func knownSlot(slot string) bool { return slot == SlotMemory || slot == SlotContextEngine }

// check returns an error that names the first invalid setting, or nil.
func (s *Settings) check() error {
	bad := func(format string, args ...any) *capability.Error {
		return capability.Errorf(capability.CodeInvalidInput, "catalog.settings", format, args...).With("invalid_settings", "")
	}
	for slot, set := range s.Slots {
		if !knownSlot(slot) {
			return bad("there is no slot %q; there are %s and %s", slot, SlotContextEngine, SlotMemory).With("unknown_slot", "")
		}
		modes := []string{set.Mode}
		for _, o := range set.Overrides {
			if o.Workspace == "" && o.Agent == "" {
				return bad("an override of slot %s names a workspace or an agent", slot)
			}
			modes = append(modes, o.Mode)
		}
		for _, mode := range modes {
			switch {
			case mode != "" && mode != "exclusive" && mode != "parallel":
				return bad("slot %s: the mode is exclusive or parallel, not %q", slot, mode)
			case mode == "parallel" && slot != SlotMemory:
				return bad("slot %s is always exclusive", slot)
			}
		}
	}
	switch s.CrossContext {
	case "", "any", "same-adapter", "same-account":
	default:
		return bad("crossContext is any, same-adapter or same-account, not %q", s.CrossContext)
	}
	switch s.Naming.Upstreams {
	case "", NamesAlways, NamesNeeded:
	default:
		return bad("naming.upstreams is %s or %s, not %q", NamesAlways, NamesNeeded, s.Naming.Upstreams)
	}
	switch s.Exposure.OwnTools {
	case "", OwnListed, OwnHidden:
	default:
		return bad("exposure.own is %s or %s, not %q", OwnListed, OwnHidden, s.Exposure.OwnTools)
	}
	switch s.Naming.OnCollision {
	case "", "label", "reject":
	default:
		return bad("naming.onCollision is label or reject, not %q", s.Naming.OnCollision)
	}
	for _, m := range s.CanonicalMap {
		if m.Ext == "" || m.Tool == "" {
			return bad("a canonical mapping needs ext, tool and action")
		}
		reason := checkAction(m.Action)
		if root, _, _ := strings.Cut(string(m.Action), "."); root == "ext" || root == "fn" {
			reason = "invalid_canonical_action" // reserved for the host
		}
		if reason != "" {
			return bad("a canonical mapping to %q: %s", m.Action, strings.ReplaceAll(reason, "_", " ")).With(reason, "")
		}
	}
	for _, f := range s.ForcedDefaults {
		if f.Action == "" || f.Provider == "" {
			return bad("a forced default needs an action and a provider")
		}
	}
	return nil
}

// checkAction returns "" or the reason why an id cannot be a contribution's
// action: bad grammar, or an unregistered id under a reserved root.
func checkAction(id capability.Action) string {
	if registryRow(id) != nil {
		return ""
	}
	s := string(id)
	root, rest, found := strings.Cut(s, ".")
	if root == "ext" || root == "fn" {
		if found && rest != "" && len(s) <= 400 {
			return ""
		}
		return "invalid_canonical_action"
	}
	segments := strings.Split(s, ".")
	if len(s) > 64 || len(segments) < 2 || len(segments) > 4 {
		return "invalid_canonical_action"
	}
	for _, seg := range segments {
		for i := range len(seg) {
			c := seg[i]
			lower := 'a' <= c && c <= 'z'
			if !(lower || i > 0 && ('A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-')) {
				return "invalid_canonical_action"
			}
		}
		if seg == "" {
			return "invalid_canonical_action"
		}
	}
	if slices.Contains(actions.ReservedRoots(), root) {
		return "unknown_canonical_action"
	}
	if coreFolds()[foldOf(s)] {
		return "invalid_canonical_action"
	}
	return ""
}
