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

// Rule is one rule as written in a policy file.
type Rule struct {
	ID     string `json:"id"`
	File   string `json:"file"`
	Line   int    `json:"line"`
	Effect string `json:"effect"` // permit or forbid
	// Approval is the person who may lift a forbid or must confirm a permit; "" if none.
	Approval Channel `json:"approval,omitempty"`
	Text     string  `json:"text"`
}

// rules is a parsed policy set.
type rules struct {
	// set has all rules except asking; asking has the forbids with @approval, as permits, so
	// that those that match can be listed.
	set, asking *cedar.PolicySet
	consent     map[cedar.PolicyID]Channel
	waives      map[cedar.PolicyID]bool // permits that lift the approval of destructive tools
	tool        map[cedar.PolicyID]bool // rules that name one tool in their head
	names       []Name                  // of the catalog, as mentioned by the rules
	list        []Rule                  // in the order of the files
}

// Check returns an error that names the file if the documents cannot be used as rules.
func Check(docs []Document) error {
	_, err := parseRules(docs)
	return err
}

// parseRules parses every document, or fails naming the file, because an unreadable policy
// must never look like an empty one.
func parseRules(docs []Document) (*rules, error) {
	r := &rules{
		set: cedar.NewPolicySet(), asking: cedar.NewPolicySet(),
		consent: make(map[cedar.PolicyID]Channel), waives: make(map[cedar.PolicyID]bool), tool: make(map[cedar.PolicyID]bool),
	}
	for _, d := range docs {
		list, err := cedar.NewPolicyListFromBytes(d.Name, d.Text)
		if err != nil {
			return nil, capability.Errorf(capability.CodeInvalidInput, "policy", "the policy %s cannot be read: %s", d.Name, place(err)).With("",
				"correct the file in the policy folder of the home, or remove it")
		}
		for i, p := range list {
			if err := r.add(d, i, p); err != nil {
				return nil, capability.Errorf(capability.CodeInvalidInput, "policy", "%s: %w", d.Name, err).
					With("", "correct the file in the policy folder of the home, or remove it")
			}
			r.list[len(r.list)-1].Text = ruleText(d.Text[p.Position().Offset:])
		}
	}
	return r, nil
}

// add adds one rule of a document and appends its row to list, without the text.
func (r *rules) add(d Document, index int, p *cedar.Policy) error {
	id := cedar.PolicyID(fmt.Sprintf("%s#%d", strings.TrimSuffix(d.Name, ".cedar"), index))
	notes := p.Annotations()
	if name, ok := notes["id"]; ok {
		id = cedar.PolicyID(name)
	}
	channel, err := approvalOf(notes)
	if err != nil {
		return fmt.Errorf("policy %s: %w", id, err)
	}
	_, approval := notes["approval"]
	if channel != "" && p.Effect() == cedar.Forbid && !approval {
		return fmt.Errorf("policy %s: @consent belongs on a permit", id)
	}
	s, err := vocabularyOf(string(id), p)
	if err == nil && s.fault != "" {
		err = errors.New(s.fault)
	}
	if err != nil {
		return fmt.Errorf("the rule %s at line %d cannot work: %w", id, p.Position().Line, err)
	}
	r.names = append(r.names, s.names...)
	row := Rule{ID: string(id), File: d.Name, Line: p.Position().Line, Effect: "permit", Approval: channel}
	set := r.set
	if p.Effect() == cedar.Forbid {
		row.Effect = "forbid"
		if channel != "" {
			set = r.asking
		}
	}
	if set.Get(id) != nil || r.asking.Get(id) != nil || r.set.Get(id) != nil {
		return fmt.Errorf("the policy id %s is used twice", id)
	}
	set.Add(id, s.policy)
	if channel != "" {
		r.consent[id] = channel
	}
	r.waives[id] = row.Effect == "permit" && channel == "" && (s.tool || notes["destructive"] == "allowed")
	r.tool[id] = s.tool
	r.list = append(r.list, row)
	return nil
}

// approvalOf returns the channel of @approval, or of its older name @consent.
func approvalOf(notes map[types.AnnotationKey]types.String) (Channel, error) {
	for _, name := range []types.AnnotationKey{"approval", "consent"} {
		c, ok := notes[name]
		if !ok {
			continue
		}
		switch Channel(c) {
		case ChannelClient, ChannelOperator, ChannelDevice:
			return Channel(c), nil
		}
		return "", fmt.Errorf(`@%s(%q) must be "client", "operator" or "device"`, name, string(c))
	}
	return "", nil
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
	parents := []types.EntityUID{
		types.NewEntityUID("Module", types.String(e.Module.Extension)),
		types.NewEntityUID("Provider", types.String(e.Key())),
	}
	if server := ServerOf(e); server != "" {
		parents = append(parents, types.NewEntityUID("Server", types.String(server)))
		if tool := ToolOf(e); tool != "" {
			parents = append(parents, types.NewEntityUID("Tool", types.String(tool)))
		}
	}
	resource = types.Entity{
		UID:     types.NewEntityUID("Capability", types.String(e.ID)),
		Parents: types.NewEntityUIDSet(parents...),
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

// judge evaluates one request. An evaluation error is a denial. A plain permit overrides a
// permit with @approval, a forbid overrides both, and a forbid with @approval turns the result
// into a question, unless a plain permit names the tool and the forbid does not. The
// operator's approval overrides that of the device, which overrides that of the client.
func (r *rules) judge(s *subject) Verdict {
	request := types.Request{Principal: s.principal.UID, Action: s.action.UID, Resource: s.resource.UID}
	ok, diag := cedar.Authorize(r.set, s, request)
	v := verdictOf(diag)
	if v.Fault != "" || !ok {
		return v
	}
	v.Permitted = true
	plain, allowed := false, false // allowed: by a plain permit that names the tool
	for _, reason := range diag.Reasons {
		channel, needs := r.consent[reason.PolicyID]
		plain = plain || !needs
		allowed = allowed || !needs && r.tool[reason.PolicyID]
		v.Waives = v.Waives || r.waives[reason.PolicyID]
		v.Consent = stricter(v.Consent, channel)
	}
	if plain {
		v.Consent = ""
	}
	_, diag = cedar.Authorize(r.asking, s, request)
	asking := verdictOf(diag)
	if asking.Fault != "" {
		return asking
	}
	var asks Channel
	for _, reason := range diag.Reasons {
		if !allowed || r.tool[reason.PolicyID] { // a rule about one tool overrides one about many
			asks = stricter(asks, r.consent[reason.PolicyID])
		}
	}
	if asks != "" {
		v.Policies, v.Waives, v.Consent = asking.Policies, false, stricter(v.Consent, asks) // the rules that ask have decided
	}
	return v
}

// verdictOf returns a denial with the ids of the rules that matched, or of those that failed.
func verdictOf(diag types.Diagnostic) Verdict {
	var v Verdict
	if len(diag.Errors) > 0 {
		for _, e := range diag.Errors {
			v.Policies = append(v.Policies, string(e.PolicyID))
		}
		v.Fault = diag.Errors[0].Message
		return v
	}
	for _, reason := range diag.Reasons {
		v.Policies = append(v.Policies, string(reason.PolicyID))
	}
	slices.Sort(v.Policies)
	return v
}

// stricter returns the channel whose approval counts for more.
func stricter(a, b Channel) Channel {
	order := []Channel{"", ChannelClient, ChannelDevice, ChannelOperator}
	if slices.Index(order, b) > slices.Index(order, a) {
		return b
	}
	return a
}
