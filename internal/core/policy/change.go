package policy

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/cedar-policy/cedar-go"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/actions"
	"github.com/junctor-run/junctor/internal/core/command"
)

// ManagedFile is the file in the policy folder that [Change.Apply] edits.
const ManagedFile = "tools.cedar"

// Setting is what a change makes of its target.
type Setting string

// The settings. Allow, ask, deny and reset are for a tool or an action; guarded, open and
// strict, the presets, are for a server. Reset and guarded remove the rule, so that the other
// rules decide.
const (
	SettingAllow   Setting = "allow"
	SettingAsk     Setting = "ask"
	SettingDeny    Setting = "deny"
	SettingReset   Setting = "reset"
	SettingGuarded Setting = "guarded"
	SettingOpen    Setting = "open"
	SettingStrict  Setting = "strict"
)

// ReasonUnknownTarget is the reason of a rule about a tool or server that does not exist.
const ReasonUnknownTarget = "unknown_target"

// ReasonUnknownPrincipal is the reason of a rule for a principal that no token makes.
const ReasonUnknownPrincipal = "unknown_principal"

// Change is one edit of the rules.
type Change struct {
	Setting Setting `json:"setting"`
	// Target is SERVER/TOOL, a canonical action, or for a preset SERVER.
	Target string `json:"target"`
	// For limits the rule to one principal, such as agent:claude. If empty, the rule is for
	// all principals except operators and administrators.
	For string `json:"for,omitempty"`
	// New allows For to be a principal that no token makes yet.
	New bool `json:"new,omitempty"`
	// IncludingDestructive makes open lift the approval that destructive tools request.
	IncludingDestructive bool `json:"including_destructive,omitempty"`
}

// preset reports whether the setting is for a whole server.
func (s Setting) preset() bool { return s == SettingGuarded || s == SettingOpen || s == SettingStrict }

// Check reports whether the change can be made: its setting fits its target, which exists in
// the catalog. Error: invalid_input, reason unknown_target with the nearest names if it does
// not exist.
func (c Change) Check(snap *catalog.Snapshot) error {
	const op = "policy.change"
	known := []Setting{SettingAllow, SettingAsk, SettingDeny, SettingReset, SettingGuarded, SettingOpen, SettingStrict}
	if !slices.Contains(known, c.Setting) {
		return capability.Errorf(capability.CodeInvalidInput, op, "%q is not a setting; use allow, ask, deny or reset for a tool, "+
			"guarded, open or strict for a server", c.Setting)
	}
	role, name, _ := strings.Cut(c.For, ":")
	if c.For != "" && (name == "" || !slices.Contains(capability.Roles(), capability.Role(role))) {
		return capability.Errorf(capability.CodeInvalidInput, op, "%q is not a principal; write its role and name, such as agent:claude", c.For)
	}
	if c.IncludingDestructive && c.Setting != SettingOpen {
		return capability.Errorf(capability.CodeInvalidInput, op, "destructive tools can be included only in the preset open")
	}
	names := namesOf(snap)
	kind := c.kind()
	switch {
	case c.Setting.preset() && kind != "Server":
		return capability.Errorf(capability.CodeInvalidInput, op, "%s is a preset of a server, and %q is not one", c.Setting, c.Target).
			With("", "for one tool use allow, ask or deny")
	case !c.Setting.preset() && kind == "Server":
		hint := "name one tool as SERVER/TOOL, or use a preset for the whole server: guarded, open or strict"
		if near := command.Nearest(c.Target, append(names["Tool"], names["Action"]...)); len(near) > 0 {
			hint = "did you mean " + strings.Join(near, " or ") + "? " + hint
		}
		return capability.Errorf(capability.CodeInvalidInput, op, "%q does not name a tool or an action", c.Target).
			With(ReasonUnknownTarget, hint)
	}
	if c.Setting == SettingReset || c.Setting == SettingGuarded || slices.Contains(names[kind], c.Target) {
		return nil
	}
	return unknown(op, kind, c.Target, names[kind])
}

// CheckFor reports whether a valid token makes the principal that the change is for, unless it is new
// or the change only removes a rule. Error: invalid_input, reason unknown_principal, with the nearest names.
func (c Change) CheckFor(tokens []Token, now time.Time) error {
	if c.For == "" || c.New || c.Rule() == "" {
		return nil
	}
	var known []string
	for _, t := range tokens {
		if t.Live(now) {
			known = append(known, t.Principal().ID)
		}
	}
	if slices.Contains(known, c.For) {
		return nil
	}
	hint := "see the names with: junctor tokens list"
	if near := command.Nearest(c.For, known); len(near) > 0 {
		hint = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return capability.Errorf(capability.CodeInvalidInput, "policy.change", "no valid token has the principal %q", c.For).
		With(ReasonUnknownPrincipal, hint+" For one that gets its token later, add --new")
}

// UnknownTarget returns the error about a name that no tool and no action has: invalid_input,
// reason unknown_target, with the nearest names.
func UnknownTarget(op, name string, snap *catalog.Snapshot) error {
	names := namesOf(snap)
	return unknown(op, "Tool", name, append(names["Tool"], names["Action"]...))
}

func unknown(op, kind, name string, names []string) error {
	hint := "see the names with: junctor tools list"
	if near := command.Nearest(name, names); len(near) > 0 {
		hint = "did you mean " + strings.Join(near, " or ") + "?"
	}
	return capability.Errorf(capability.CodeInvalidInput, op, "there is no %s %q here", strings.ToLower(kind), name).
		With(ReasonUnknownTarget, hint)
}

// CheckAgainst reports whether a file can be used and all names in it exist in the catalog,
// and returns its rules. Error: invalid_input that names the rule; reason unknown_target with
// the nearest names for a name that does not exist.
func CheckAgainst(d Document, snap *catalog.Snapshot) ([]Rule, error) {
	r, err := parseRules([]Document{d})
	if err != nil {
		return nil, err
	}
	known := namesOf(snap)
	for _, n := range r.names {
		if !slices.Contains(known[n.Type], n.ID) {
			err := capability.AsError(unknown("policy.check", n.Type, n.ID, known[n.Type]))
			err.Message = "the rule " + n.Rule + " cannot work: " + err.Message
			return nil, err
		}
	}
	return r.list, nil
}

// kind returns the entity type of the target.
func (c Change) kind() string {
	if strings.Contains(c.Target, "/") {
		return "Tool"
	}
	if _, ok := actions.Lookup(capability.Action(c.Target)); ok || strings.HasPrefix(c.Target, "ext.") {
		return "Action"
	}
	return "Server"
}

// ID returns the @id of the rule that the change makes, replaces or removes.
func (c Change) ID() string {
	id := strings.ToLower(c.kind()) + " " + c.Target
	if c.For != "" {
		id += " for " + c.For
	}
	return id
}

// Rule returns the rule in Cedar, or "" if the change only removes one.
func (c Change) Rule() string {
	principal, others := "principal", ` when { ["agent", "task", "node"].contains(principal.role) }`
	if c.For != "" {
		principal, others = "principal == Principal::"+quoted(c.For), ""
	}
	head := map[string]string{
		"Tool":   "action, resource == Tool::" + quoted(c.Target),
		"Server": "action, resource in Server::" + quoted(c.Target),
		"Action": "action == Action::" + quoted(c.Target) + ", resource",
	}[c.kind()]
	rule := func(annotation, effect string) string {
		return fmt.Sprintf("@id(%s)\n%s%s (%s, %s)%s;", quoted(c.ID()), annotation, effect, principal, head, others)
	}
	switch c.Setting {
	case SettingAllow:
		return rule("", "permit")
	case SettingOpen:
		if c.IncludingDestructive {
			return rule("@destructive(\"allowed\")\n", "permit")
		}
		return rule("", "permit")
	case SettingAsk, SettingStrict:
		return rule("@approval(\"operator\")\n", "forbid")
	case SettingDeny:
		return rule("", "forbid")
	}
	return ""
}

// managedHead is the beginning of a new file of rules.
const managedHead = `// Rules about single tools and servers, made by "junctor policy". You may edit this file:
// "junctor policy" replaces or removes the rule with the same @id and changes nothing else.
`

// Apply returns the text of the managed file with the change made. Rules with another @id,
// and comments, stay as they are.
func (c Change) Apply(text []byte) ([]byte, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		if c.Rule() == "" {
			return text, nil
		}
		text = []byte(managedHead)
	}
	list, err := cedar.NewPolicyListFromBytes(ManagedFile, text)
	if err != nil {
		return nil, capability.Errorf(capability.CodeInvalidInput, "policy.change", "the policy %s cannot be read: %s", ManagedFile, place(err)).
			With("", "correct the file in the policy folder of the home, or remove it")
	}
	rule := c.Rule()
	for _, p := range list {
		if string(p.Annotations()["id"]) != c.ID() {
			continue
		}
		begin := p.Position().Offset
		end := begin + len(ruleText(text[begin:]))
		if rule == "" {
			return append(bytes.TrimRight(slices.Clone(text[:begin]), "\n"), append([]byte("\n\n"),
				bytes.TrimLeft(text[end:], "\n")...)...), nil
		}
		return slices.Concat(text[:begin], []byte(rule), text[end:]), nil
	}
	if rule == "" {
		return text, nil
	}
	return slices.Concat(bytes.TrimRight(text, "\n"), []byte("\n\n"+rule+"\n")), nil
}

// quoted returns s as a string literal of Cedar.
func quoted(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case !unicode.IsPrint(r):
			fmt.Fprintf(&b, `\u{%x}`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// ruleText returns the text of the rule that text begins with, up to its semicolon.
func ruleText(text []byte) string {
	inString := false
	for i := 0; i < len(text); i++ {
		switch b := text[i]; {
		case inString && b == '\\':
			i++
		case b == '"':
			inString = !inString
		case inString:
		case b == '/' && i+1 < len(text) && text[i+1] == '/':
			if end := bytes.IndexByte(text[i:], '\n'); end >= 0 {
				i += end
			} else {
				i = len(text)
			}
		case b == ';':
			return string(text[:i+1])
		}
	}
	return string(text)
}

// namesOf returns the names that rules may use, by entity type, sorted.
func namesOf(snap *catalog.Snapshot) map[string][]string {
	sets := map[string]map[string]bool{"Action": {}, "Module": {}, "Server": {}, "Tool": {}}
	add := func(kind, name string) {
		if name != "" {
			sets[kind][name] = true
		}
	}
	for _, c := range []capability.Effect{capability.EffectRead, capability.EffectWrite, capability.EffectExternal, capability.EffectAdmin} {
		add("Action", string(c))
	}
	for _, row := range actions.Rows() {
		add("Action", string(row.ID))
	}
	for e := range snap.Entries() {
		add("Action", string(e.Action))
		add("Module", e.Module.Extension)
		add("Server", ServerOf(e))
		add("Tool", ToolOf(e))
	}
	out := make(map[string][]string, len(sets))
	for kind, set := range sets {
		for name := range set {
			out[kind] = append(out[kind], name)
		}
		slices.Sort(out[kind])
	}
	return out
}
