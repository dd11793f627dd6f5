package policy

import (
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
)

//go:embed default.cedar
var defaultCedar string

// DefaultRules returns the commented policy written into a new home.
func DefaultRules() string { return defaultCedar }

// Document is one policy file.
type Document struct {
	Name string
	Text []byte
}

// rules is a parsed policy set with the @consent of each permit.
type rules struct {
	set     *cedar.PolicySet
	consent map[cedar.PolicyID]Channel
	names   []Name // of the catalog, as mentioned by the rules
}

// Check returns an error that names the file if the documents cannot be used as rules.
func Check(docs []Document) error {
	_, err := parseRules(docs)
	return err
}

// parseRules parses every document, or fails naming the file, because an unreadable policy
// must never look like an empty one.
func parseRules(docs []Document) (*rules, error) {
	r := &rules{set: cedar.NewPolicySet(), consent: make(map[cedar.PolicyID]Channel)}
	for _, d := range docs {
		list, err := cedar.NewPolicyListFromBytes(d.Name, d.Text)
		if err != nil {
			return nil, capability.Errorf(capability.CodeInvalidInput, "policy", "the policy %s cannot be read: %s", d.Name, place(err)).With("",
				"correct the file in the policy folder of the home, or remove it")
		}
		for i, p := range list {
			id := cedar.PolicyID(fmt.Sprintf("%s#%d", strings.TrimSuffix(d.Name, ".cedar"), i))
			notes := p.Annotations()
			if name, ok := notes["id"]; ok {
				id = cedar.PolicyID(name)
			}
			if c, ok := notes["consent"]; ok {
				switch Channel(c) {
				case ChannelClient, ChannelOperator, ChannelDevice:
					r.consent[id] = Channel(c)
				default:
					return nil, capability.Errorf(capability.CodeInvalidInput, "policy",
						`%s: policy %s: @consent(%q) must be "client", "operator" or "device"`, d.Name, id, string(c))
				}
				if p.Effect() == cedar.Forbid {
					return nil, capability.Errorf(capability.CodeInvalidInput, "policy", "%s: policy %s: @consent belongs on a permit", d.Name, id)
				}
			}
			s, err := speaks(string(id), p)
			if err == nil && s.fault != "" {
				err = errors.New(s.fault)
			}
			if err != nil {
				return nil, capability.Errorf(capability.CodeInvalidInput, "policy", "%s: the rule %s at line %d cannot work: %w", d.Name, id,
					p.Position().Line, err).
					With("", "correct the file in the policy folder of the home, or remove it")
			}
			r.names = append(r.names, s.names...)
			if !r.set.Add(id, p) {
				return nil, capability.Errorf(capability.CodeInvalidInput, "policy", "%s: the policy id %s is used twice", d.Name, id)
			}
		}
	}
	return r, nil
}

// place describes a syntax error with its line and column in words of this package. An error of
// unknown form is returned unchanged.
func place(err error) string {
	if m := regexp.MustCompile(`<input>:(\d+):(\d+) "(.*?)": (.*)$`).FindStringSubmatch(err.Error()); m != nil {
		said := m[4]
		got, want, ok := strings.Cut(strings.TrimPrefix(said, "exact got "), " want ")
		switch {
		case ok && got == "":
			said = "the file ends where " + want + " belongs"
		case ok:
			said = got + " stands where " + want + " belongs"
		case m[3] == "":
			said = "the file ends in the middle of a rule"
		}
		return fmt.Sprintf("line %s, column %s: %s", m[1], m[2], said)
	}
	return err.Error()
}

// subject holds the three entities of one request: a principal in its role, an action in its
// effect class, and a capability in its module and provider.
type subject struct {
	principal, action, resource types.Entity
}

// Get implements types.EntityGetter.
func (s *subject) Get(uid types.EntityUID) (types.Entity, bool) {
	switch uid {
	case s.principal.UID:
		return s.principal, true
	case s.action.UID:
		return s.action, true
	case s.resource.UID:
		return s.resource, true
	}
	return types.Entity{}, false
}

// principalEntity returns the Cedar entity of a principal, whose parent is its role.
func principalEntity(p capability.Principal) types.Entity {
	labels := make([]types.Value, len(p.Labels))
	for i, l := range p.Labels {
		labels[i] = types.String(l)
	}
	return types.Entity{
		UID:     types.NewEntityUID("Principal", types.String(p.ID)),
		Parents: types.NewEntityUIDSet(types.NewEntityUID("Role", types.String(p.Role))),
		Attributes: types.NewRecord(types.RecordMap{
			"role": types.String(p.Role), "labels": types.NewSet(labels...),
		}),
	}
}

// entryEntities returns the Cedar entities of an entry's action and of the entry itself.
func entryEntities(e *catalog.Entry) (action, resource types.Entity) {
	// An action named like its effect ("read") would be its own parent. No registry row has
	// such a name, and minted names begin with "ext.".
	action = types.Entity{
		UID:     types.NewEntityUID("Action", types.String(e.Action)),
		Parents: types.NewEntityUIDSet(types.NewEntityUID("Action", types.String(e.Effect))),
	}
	resource = types.Entity{
		UID: types.NewEntityUID("Capability", types.String(e.ID)),
		Parents: types.NewEntityUIDSet(
			types.NewEntityUID("Module", types.String(e.Module.Extension)),
			types.NewEntityUID("Provider", types.String(e.Key())),
		),
		Attributes: types.NewRecord(types.RecordMap{
			"action":      types.String(e.Action),
			"effect":      types.String(e.Effect),
			"module":      types.String(e.Module.Extension),
			"provider":    types.String(e.Key()),
			"origin":      types.String(e.Module.Origin),
			"permissions": stringSet(e.Contribution.Permissions),
			"tags":        stringSet(e.Contribution.Tags),
		}),
	}
	return action, resource
}

func stringSet(in []string) types.Set {
	values := make([]types.Value, len(in))
	for i, s := range in {
		values[i] = types.String(s)
	}
	return types.NewSet(values...)
}

// judge evaluates one request. Any evaluation error is a denial. If several permits apply, one
// without @consent removes the need for consent; otherwise the channel operator takes
// precedence over device, and device over client.
func (r *rules) judge(s *subject) Verdict {
	ok, diag := cedar.Authorize(r.set, s, types.Request{
		Principal: s.principal.UID, Action: s.action.UID, Resource: s.resource.UID,
	})
	v := Verdict{}
	for _, reason := range diag.Reasons {
		v.Policies = append(v.Policies, string(reason.PolicyID))
	}
	slices.Sort(v.Policies)
	if len(diag.Errors) > 0 {
		v.Policies = nil
		for _, e := range diag.Errors {
			v.Policies = append(v.Policies, string(e.PolicyID))
		}
		v.Fault = diag.Errors[0].Message
		return v
	}
	if !ok {
		return v
	}
	v.Permitted = true
	for _, reason := range diag.Reasons {
		channel, needs := r.consent[reason.PolicyID]
		switch {
		case !needs:
			v.Consent = ""
			return v
		case v.Consent == "" || channel == ChannelOperator || (channel == ChannelDevice && v.Consent == ChannelClient):
			v.Consent = channel
		}
	}
	return v
}
