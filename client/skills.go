package client

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/protocol/cmp/payload"
)

// Profile holds the user on whose behalf skills are called, and the user's languages.
type Profile struct {
	User      string
	Language  string   // preferred; "" is en-us
	Fallbacks []string // in order
}

// Skills is the set of skills that one user has on the calling side. It resolves an alias
// of a skill to a function and a device. The server stores none of it. It is safe for
// concurrent use.
type Skills struct {
	client  *Client
	profile Profile

	mu   sync.Mutex
	have map[string]*payload.Payload
}

// NewSkills returns an empty set for a user.
func NewSkills(c *Client, p Profile) *Skills {
	p.Language = cmp.Or(p.Language, "en-us")
	return &Skills{client: c, profile: p, have: make(map[string]*payload.Payload)}
}

// Install adds a skill's payload and returns its name. Errors: conflict if a skill of that
// name exists and replace is false; those of payload.Decode.
func (s *Skills) Install(raw json.RawMessage, replace bool) (name string, err error) {
	p, err := payload.Decode(raw, maxSkill)
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.have[p.SkillName] != nil && !replace {
		return "", capability.Errorf(capability.CodeConflict, "skills.install", "the skill %s is installed already", p.SkillName)
	}
	s.have[p.SkillName] = p
	return p.SkillName, nil
}

// Uninstall removes a skill and reports whether it was installed.
func (s *Skills) Uninstall(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, was := s.have[name]
	delete(s.have, name)
	return was
}

// List returns the names, sorted.
func (s *Skills) List() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := make([]string, 0, len(s.have))
	for name := range s.have {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// RunOptions select the language and the device. With the zero value, the profile and the
// skill decide.
type RunOptions struct {
	Language string // replaces the profile's languages
	Node     string // the id of the device
	User     string // selects this user's least loaded device
	CallOptions
}

// Run calls the function that an alias of a skill names. Errors: not_found if there is no
// such skill or alias; invalid_input, naming both lists, if the skill offers none of the
// requested languages; those of the call.
func (s *Skills) Run(ctx context.Context, skill, alias string, arguments any, o RunOptions) (json.RawMessage, error) {
	s.mu.Lock()
	p := s.have[skill]
	s.mu.Unlock()
	if p == nil {
		return nil, capability.Errorf(capability.CodeNotFound, "skills.run", "the skill %s is not installed", skill)
	}
	c, ok := p.Capability(alias)
	if !ok {
		return nil, capability.Errorf(capability.CodeNotFound, "skills.run", "the skill %s has no %s", skill, alias)
	}
	if wanted := s.languages(o); !matchesLanguage(c.Languages, wanted) {
		return nil, capability.Errorf(capability.CodeInvalidInput, "skills.run", "%s is offered in %s, and %s is asked for", alias,
			strings.Join(c.Languages, ", "), strings.Join(wanted, ", "))
	}
	return s.run(ctx, &c, arguments, o)
}

// RunAny calls the alias of the first skill, sorted by name, that has it in a requested
// language.
func (s *Skills) RunAny(ctx context.Context, alias string, arguments any, o RunOptions) (json.RawMessage, error) {
	for _, name := range s.List() {
		s.mu.Lock()
		p := s.have[name]
		s.mu.Unlock()
		if p == nil {
			continue
		}
		if c, ok := p.Capability(alias); ok && matchesLanguage(c.Languages, s.languages(o)) {
			return s.run(ctx, &c, arguments, o)
		}
	}
	return nil, capability.Errorf(capability.CodeNotFound, "skills.run", "no installed skill has %s in %s", alias,
		strings.Join(s.languages(o), ", "))
}

// RunRef calls "skill/alias", or "skill.alias" if a skill of that name is installed, or
// else, as [Skills.RunAny], the alias ref.
func (s *Skills) RunRef(ctx context.Context, ref string, arguments any, o RunOptions) (json.RawMessage, error) {
	if skill, alias, ok := strings.Cut(ref, "/"); ok {
		return s.Run(ctx, skill, alias, arguments, o)
	}
	if skill, alias, ok := strings.Cut(ref, "."); ok && slices.Contains(s.List(), skill) {
		return s.Run(ctx, skill, alias, arguments, o)
	}
	return s.RunAny(ctx, ref, arguments, o)
}

// run calls one capability. The device is o.Node, else o.User's least loaded one, else the
// one that the skill names, else chosen by the skill's load balancing.
func (s *Skills) run(ctx context.Context, c *payload.Capability, arguments any, o RunOptions) (json.RawMessage, error) {
	call := o.CallOptions
	switch {
	case o.Node != "":
		call.Node = o.Node
	case o.User != "":
		n, err := s.client.NodeOf(ctx, o.User, c.FunctionName)
		if err != nil {
			return nil, err
		}
		call.Node = n.ID
	case call.Node == "" && c.NodeID != nil:
		call.Node = *c.NodeID
	}
	if call.Node == "" && call.Balancing == nil && len(c.LoadBalancing) > 0 && string(c.LoadBalancing) != "false" {
		call.Balancing = c.LoadBalancing
	}
	result, _, err := s.client.Call(ctx, c.FunctionName, arguments, call)
	return result, err
}

// languages returns the requested languages in order of preference, normalised: only
// o.Language if it is set, otherwise the profile's language and its fallbacks.
func (s *Skills) languages(o RunOptions) []string {
	if o.Language != "" {
		return []string{normal(o.Language)}
	}
	out := []string{normal(s.profile.Language)}
	for _, l := range s.profile.Fallbacks {
		out = append(out, normal(l))
	}
	return out
}

func normal(language string) string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimSpace(language), "_", "-"))
}

// matchesLanguage reports whether a wanted language is offered, exactly or by its part before the
// first hyphen. A skill that declares no languages offers all.
func matchesLanguage(offered, wanted []string) bool {
	if len(offered) == 0 {
		return true
	}
	for _, w := range wanted {
		base, _, _ := strings.Cut(w, "-")
		for _, o := range offered {
			if main, _, _ := strings.Cut(o, "-"); o == w || main == base {
				return true
			}
		}
	}
	return false
}
