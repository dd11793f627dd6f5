package declaration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// Parse decodes and checks one extension of at most 4 MiB. diagnostics names, by path,
// unknown fields and values that were changed. Member names are case-sensitive and must
// not be repeated. On an error the whole manifest must be rejected.
func Parse(data []byte) (ext Extension, diagnostics []string, err error) {
	if len(data) > MaxBytes {
		return ext, nil, capability.Errorf(capability.CodeTooLarge, "manifest", "the manifest has %d bytes; the limit is %d", len(data), MaxBytes)
	}
	if err := jsonx.Unmarshal(data, &ext); err != nil {
		return Extension{}, nil, capability.Errorf(capability.CodeInvalidInput, "manifest", "the manifest does not fit: %s",
			Clean(err.Error(), maxDescription)).
			With("invalid_manifest", "")
	}
	for _, at := range unknown(data, reflect.TypeFor[Extension]()) {
		diagnostics = append(diagnostics, at+" is not a known field")
	}
	for i := range ext.Contributions {
		c := &ext.Contributions[i]
		at := "/contributions/" + strconv.Itoa(i)
		if c.identify() {
			diagnostics = append(diagnostics, at+"/scope names who the adapter is; its accounts are taken as provider instances")
		}
		if utf8.RuneCountInString(c.Description) > maxDescription {
			diagnostics = append(diagnostics, at+"/description is cut to "+strconv.Itoa(maxDescription)+" characters")
		}
		if c.Adapter == nil {
			continue
		}
		for j, word := range c.Adapter.Actions {
			if _, known := ActionOf(word); !known && !strings.Contains(word, ".") {
				diagnostics = append(diagnostics, at+"/adapter/actions/"+strconv.Itoa(j)+": "+strconv.Quote(Clean(word, maxValue))+
					" is in no family; it stays a tool of its own")
			}
		}
	}
	return ext, diagnostics, ext.Check()
}

// checker stores the first error.
type checker struct {
	where string
	err   error
}

func (k *checker) bad(format string, args ...any) {
	if k.err == nil {
		k.err = capability.Errorf(capability.CodeInvalidInput, "manifest", "%s: %s", k.where,
			fmt.Sprintf(format, args...)).With("invalid_manifest", "")
	}
}

func (k *checker) most(what string, n, limit int) {
	if n > limit {
		k.bad("%d %s; the limit is %d", n, what, limit)
	}
}

// one adds an error unless value is empty or one of the words.
func (k *checker) one(what, value, words string) {
	if value != "" && !slices.Contains(strings.Fields(words), value) {
		k.bad("%s is %q; want one of: %s", what, Clean(value, maxValue), words)
	}
}

func (k *checker) list(what string, values []string, words string) {
	k.most(what, len(values), maxList)
	for _, v := range values {
		if v == "" {
			k.bad("%s holds an empty value", what)
		}
		k.one(what, v, words)
	}
}

// text adds an error for a value that is too long or has control characters.
func (k *checker) text(what string, values ...string) {
	for _, v := range values {
		if len(v) > maxName || Clean(v, maxName) != v {
			k.bad("%s %q is longer than %d bytes or holds characters that are not shown", what, Clean(v, maxValue), maxName)
		}
	}
}

// Check validates ids, enumerations and limits and returns the first error. Kinds,
// actions, arbitration modes and slots are not checked: the catalog checks these for each
// contribution, so that an error in one does not affect the others.
func (x *Extension) Check() error {
	k := &checker{where: "extension " + Clean(x.ID, maxName)}
	if !validID(x.ID) {
		k.bad("%q is not an extension id: letters, digits, '.', '_' and '-', at most 128, the first a letter or digit", Clean(x.ID, maxName))
	}
	if x.Origin != "" && originStrength(x.Origin) == 0 {
		k.bad("%q is not an origin", Clean(x.Origin, maxValue))
	}
	k.one("stage", x.Stage, "declared validated dependency-resolved policy-approved approved activated disabled failed")
	k.text("version", x.Version)
	k.text("label", x.Label)
	k.text("disabledReason", x.DisabledReason)
	k.most("characters of the name", utf8.RuneCountInString(x.Name), maxTitle)
	k.most("contributions", len(x.Contributions), maxContributions)
	k.most("channels", len(x.Channels), maxChannels)
	k.most("entries", len(x.Entries), maxList)
	k.most("provenance members", len(x.Provenance), maxTags)
	if x.Install != nil {
		k.one("install.defaultChoice", x.Install.DefaultChoice, "package local")
	}
	for i := range x.Channels {
		if !validID(x.Channels[i].ID) {
			k.bad("%q is not a channel id", Clean(x.Channels[i].ID, maxName))
		}
		k.dock(x.Channels[i].Dock)
	}
	offered := 0
	for i := range x.Contributions {
		c := &x.Contributions[i]
		k.where = x.ID + "/" + Clean(c.ID, maxName)
		if !validID(c.ID) {
			k.bad("%q is not a contribution id", Clean(c.ID, maxName))
		}
		c.check(k)
		offered += max(1, len(c.Actions)+c.words()) * max(1, c.accounts())
	}
	k.where = "extension " + x.ID
	k.most("offers (actions of all accounts)", offered, maxOffered)
	return k.err
}

func (c *Contribution) words() int {
	if c.Adapter == nil {
		return 0
	}
	return len(c.Adapter.Actions)
}

func (c *Contribution) accounts() int {
	if c.Provider == nil {
		return 0
	}
	return len(c.Provider.Instances)
}

const (
	visibilities = "agent operator both none"
	states       = "ready degraded starting draining unconfigured unauthenticated unavailable"
	effects      = "observe-only augment veto resolve"
	failures     = "fail-open fail-closed"
	selectors    = "provider channel kind store account instance endpoint node extension conversation"
	chats        = "dm group channel thread call cli"
)

func (c *Contribution) check(k *checker) {
	if c.Kind == "" {
		k.bad("it has no kind")
	}
	k.text("kind", c.Kind)
	k.most("characters of the title", utf8.RuneCountInString(c.Title), maxTitle)
	k.most("actions", len(c.Actions), maxActions)
	k.one("visibility", string(c.Visibility), visibilities)
	k.one("permissionMode", c.PermissionMode, "advisory host-enforced sandbox-enforced")
	k.most("permissions", len(c.Permissions), maxList)
	k.text("permission", c.Permissions...)
	k.list("selectors", c.Selectors, selectors)
	k.one("availability", string(c.Availability.State), states)
	k.tags(c)
	k.depends(c.depends())
	if p := c.Policy; p != nil {
		k.one("policy.promptMutation", p.PromptMutation, "none append-only replace-allowed")
		k.one("policy.routeEffect", p.RouteEffect, effects)
		k.one("policy.failureMode", p.FailureMode, failures)
		k.one("policy.executionMode", p.ExecutionMode, "parallel sequential sync-sequential")
	}
	if s := c.Scope; s != nil {
		for _, list := range [][]string{s.Workspace, s.Agent, s.Session, s.Account, s.Channel, s.Conversation, s.ConversationKind, s.Provider} {
			k.most("values in one dimension of the scope", len(list), maxList)
		}
	}
	k.tool(c.Tool)
	k.provider(c.Provider)
	k.blocks(c)
	k.surfaces(c)
}

func (k *checker) tags(c *Contribution) {
	k.most("tags", len(c.Tags), maxTags)
	k.most("telemetry tags", len(c.TelemetryTags), maxTags)
	for _, tag := range c.Tags {
		if tag == "" || len(tag) > maxValue || Clean(tag, maxValue) != tag {
			k.bad("%q is not a tag: 1 to %d bytes that can be shown", Clean(tag, maxValue), maxValue)
		}
	}
	for name, value := range c.TelemetryTags {
		if !telemetryKey(name) {
			k.bad("%q is not a telemetry tag: a-z, 0-9, '_' and '.', at most 32", Clean(name, maxValue))
		}
		if len(value) > maxValue || Clean(value, maxValue) != value {
			k.bad("the telemetry tag %s is longer than %d bytes or holds characters that are not shown", name, maxValue)
		}
	}
}

func telemetryKey(name string) bool {
	for i := range len(name) {
		c := name[i]
		if !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '_' || c == '.') {
			return false
		}
	}
	return name != "" && len(name) <= 32
}

func (k *checker) depends(d *capability.Depends) {
	if d == nil {
		return
	}
	for _, list := range [][]string{d.Requires, d.Optional, d.Conflicts, d.Supersedes} {
		k.most("runtime ids in one relation", len(list), maxList)
		for _, id := range list {
			ext, contribution, _ := strings.Cut(id, "/")
			if !validID(ext) || !validID(contribution) {
				k.bad("%q in dependsOn is not a runtime id (extension/contribution)", Clean(id, maxName))
			}
		}
	}
}

func (k *checker) tool(t *Tool) {
	if t == nil {
		return
	}
	if t.Name == "" && t.Action == "" {
		k.bad("the tool has neither name nor action")
	}
	k.text("tool name", t.Name)
	k.most("aliases", len(t.Aliases), maxTags*2)
	k.text("alias", t.Aliases...)
	k.schema("input", t.InputSchema)
	k.schema("output", t.OutputSchema)
}

// schema adds an error unless doc is empty or a JSON object within the size limit. The
// catalog compiles it later.
func (k *checker) schema(which string, doc json.RawMessage) {
	k.most("bytes of the "+which+" schema", len(doc), maxSchema)
	if doc = bytes.TrimSpace(doc); len(doc) > 0 && doc[0] != '{' {
		k.bad("the %s schema is not an object", which)
	}
}

func (k *checker) provider(p *Provider) {
	if p == nil {
		return
	}
	k.text("provider kind", p.Kind)
	k.most("instances", len(p.Instances), maxInstances)
	seen := make(map[string]bool, len(p.Instances))
	for i := range p.Instances {
		in := &p.Instances[i]
		if strings.TrimSpace(in.ID) != in.ID || in.ID == "" || seen[in.ID] {
			k.bad("the instance id %q is empty, blank at an end, or given twice", Clean(in.ID, maxValue))
		}
		seen[in.ID] = true
		k.text("instance id", in.ID)
		k.text("instance label", in.Label)
		k.most("actions of an instance", len(in.Actions), maxActions)
		k.one("availability of "+Clean(in.ID, maxValue), string(in.Availability.State), states)
	}
}

func (k *checker) blocks(c *Contribution) {
	if b := c.Backend; b != nil {
		if b.Class == "" || b.ID == "" {
			k.bad("a backend needs a class and an id")
		}
		k.text("backend", append([]string{b.Class, b.ID}, b.Selectors...)...)
		k.most("selectors of the backend", len(b.Selectors), maxList)
		k.one("backend.exclusivity", b.Exclusivity, "exclusive shared")
		k.one("backend.health", string(b.Health), "healthy degraded unhealthy unknown")
	}
	if a := c.Augment; a != nil {
		k.one("augment.effect", a.Effect, effects)
		k.one("augment.ownership", a.Ownership, "exclusive")
		k.one("augment.failureMode", a.FailureMode, failures)
		k.most("targets", len(a.Targets), maxList)
	}
	if a := c.Adapter; a != nil {
		k.list("adapter.conversationKinds", a.ConversationKinds, chats)
		k.most("adapter.actions", len(a.Actions), maxActions)
		for _, word := range a.Actions {
			if !validID(word) || len(word) > maxValue {
				k.bad("%q is not the name of an adapter action", Clean(word, maxValue))
			}
		}
		k.most("adapter.gatewayFeatures", len(a.GatewayFeatures), maxList)
		k.most("adapter.interactionClasses", len(a.InteractionClasses), maxList)
		k.dock(a.Dock)
	}
}

func (k *checker) dock(d *Dock) {
	if d == nil {
		return
	}
	if !validID(d.AdapterID) {
		k.bad("%q in dock is not an adapter id", Clean(d.AdapterID, maxName))
	}
	k.list("dock.chatTypes", d.ChatTypes, chats)
	k.most("dock.agentPrompt.messageToolHints", len(d.AgentPrompt.MessageToolHints), maxTags)
	k.most("dock.allowFrom.stripPrefixes", len(d.AllowFrom.StripPrefixes), maxTags)
	k.most("dock.mentions.stripPatterns", len(d.Mentions.StripPatterns), maxTags)
	if d.TextChunkLimit < 0 || d.Streaming.MinChars < 0 || d.Streaming.IdleMs < 0 {
		k.bad("the dock holds a negative number")
	}
}
