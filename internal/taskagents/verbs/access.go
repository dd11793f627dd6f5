package verbs

// This file states which people an agent may use task agents for. What a program may do is
// its token's, and was judged before; here it is about the person whom the program speaks
// for, and whom only it knows. So a role that is claimed for a person can take rights
// away and never give one.

import (
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// Role is what a person is to an agent. Each has the rights of those before it.
type Role string

// The roles, the least first.
const (
	Guest Role = "GUEST"
	User  Role = "USER"
	Admin Role = "ADMIN"
	Owner Role = "OWNER"
)

func (r Role) rank() int {
	switch r {
	case Guest:
		return 1
	case User:
		return 2
	case Admin:
		return 3
	case Owner:
		return 4
	}
	return 0
}

// ParseRole reads a role, in any case of its letters.
func ParseRole(text string) (Role, bool) {
	r := Role(strings.ToUpper(strings.TrimSpace(text)))
	return r, r.rank() > 0
}

// Ability is what is done with task agents.
type Ability string

// The abilities.
const (
	Create   Ability = "create"   // begin work: tasks, agents, workspaces
	Interact Ability = "interact" // everything with what is there
)

// need is the role that each ability wants.
type need struct{ create, interact Role }

// Policy is who may do what, over which connector. The zero Policy is the default:
// everybody everything, but on discord only administrators.
type Policy struct {
	general    need
	connectors map[string]need
	fault      error
}

func initial() Policy {
	return Policy{general: need{Guest, Guest}, connectors: map[string]need{"discord": {Admin, Admin}}}
}

// Parse reads TASK_AGENT_ROLE_POLICY, a role or {"default": …, "connectors": {name: …}}, and
// TASK_AGENT_CONNECTOR_ROLE_POLICY, {name: …}; each … is a role, which means both abilities,
// or {"create": role, "interact": role}, in which an ability that is left out needs what it
// did before. Either may be "". The second goes before the first, both go before
// the default.
//
// What cannot be read is in the policy too: it lets no person do anything, and states why.
func Parse(policy, connectors string) Policy {
	p := initial()
	if strings.TrimSpace(policy) != "" {
		var doc struct {
			Default    jsonx.Raw            `json:"default"`
			Connectors map[string]jsonx.Raw `json:"connectors"`
		}
		text := []byte(policy)
		if role, ok := ParseRole(strings.Trim(policy, "\" \t\r\n")); ok {
			p.general = need{role, role}
		} else if err := jsonx.UnmarshalStrict(text, &doc); err != nil {
			return broken("TASK_AGENT_ROLE_POLICY", err)
		}
		if err := p.general.read(doc.Default); err != nil {
			return broken("TASK_AGENT_ROLE_POLICY", err)
		}
		if err := p.add(doc.Connectors); err != nil {
			return broken("TASK_AGENT_ROLE_POLICY", err)
		}
	}
	if strings.TrimSpace(connectors) != "" {
		var doc map[string]jsonx.Raw
		err := jsonx.UnmarshalStrict([]byte(connectors), &doc)
		if err == nil {
			err = p.add(doc)
		}
		if err != nil {
			return broken("TASK_AGENT_CONNECTOR_ROLE_POLICY", err)
		}
	}
	return p
}

func broken(name string, err error) Policy {
	return Policy{fault: capability.Errorf(capability.CodeDenied, "tasks", "%s cannot be read (%.200v), so nobody may use task agents", name,
		err).
		With("forbidden", "write a role (GUEST, USER, ADMIN, OWNER) or {\"default\": …, \"connectors\": {…}}")}
}

func (p *Policy) add(list map[string]jsonx.Raw) error {
	for name, raw := range list {
		name = strings.ToLower(strings.TrimSpace(name))
		n, ok := p.connectors[name]
		if !ok {
			n = p.general
		}
		if err := n.read(raw); err != nil {
			return err
		}
		p.connectors[name] = n
	}
	return nil
}

// read takes a role, or one for each ability; nothing changes nothing.
func (n *need) read(raw jsonx.Raw) error {
	if len(raw) == 0 {
		return nil
	}
	if text, ok := jsonx.Text(raw); ok {
		role, err := known(text)
		*n = need{role, role}
		return err
	}
	var both struct {
		Create   *string `json:"create"`
		Interact *string `json:"interact"`
	}
	if err := jsonx.UnmarshalStrict(raw, &both); err != nil {
		return err
	}
	for _, set := range []struct {
		text *string
		role *Role
	}{{both.Create, &n.create}, {both.Interact, &n.interact}} {
		if set.text == nil {
			continue
		}
		role, err := known(*set.text)
		if err != nil {
			return err
		}
		*set.role = role
	}
	return nil
}

func known(text string) (Role, error) {
	r, ok := ParseRole(text)
	if !ok {
		return r, capability.Errorf(capability.CodeInvalidInput, "tasks", "%.40q is not a role", text)
	}
	return r, nil
}

// Person is whom a call is made for.
type Person struct {
	By capability.Principal
	// Role is what the agent reports that the person is, "" where it says nothing; Connector is
	// where the person writes, "" for nowhere.
	Role, Connector string
}

// Check reports whether a person may do something: nil, or denied, reason forbidden. An
// agent that names no person and no connector acts for itself, and passes. A person who
// came over a connector and of whom nothing is said is a guest, except to an
// administrator's or operator's own program.
func (p Policy) Check(who Person, a Ability) error {
	role, human := Owner, who.By.Role == capability.RoleAdmin
	if who.By.Role == capability.RoleOperator {
		role, human = Admin, true
	}
	switch {
	case who.Role != "":
		claimed, ok := ParseRole(who.Role)
		if !ok {
			return capability.Errorf(capability.CodeDenied, "tasks", "the user's role %.40q is none", who.Role).With("forbidden",
				"the roles are GUEST, USER, ADMIN and OWNER")
		}
		if claimed.rank() < role.rank() {
			role = claimed
		}
	case !human && who.Connector == "":
		return nil
	case !human:
		role = Guest
	}
	if p.fault != nil {
		return p.fault
	}
	if p.connectors == nil {
		p = initial()
	}
	n, ok := p.connectors[strings.ToLower(strings.TrimSpace(who.Connector))]
	if !ok {
		n = p.general
	}
	wanted := n.interact
	if a == Create {
		wanted = n.create
	}
	if role.rank() < wanted.rank() {
		return capability.Errorf(capability.CodeDenied, "tasks", "this needs the role %s, and the user is %s", wanted, role).With("forbidden",
			"an administrator of the agent may do it")
	}
	return nil
}
