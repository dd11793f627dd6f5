package verbs

// This file decides for which users an agent may use task agents. The rights of the program
// were checked before by its token. The role of the user comes from the program and cannot be
// verified, so it can only reduce rights.

import (
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// Role is the role of a user for an agent. Each role includes the rights of the lower ones.
type Role string

// The roles, from the lowest.
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

// ParseRole parses a role, ignoring case.
func ParseRole(text string) (Role, bool) {
	r := Role(strings.ToUpper(strings.TrimSpace(text)))
	return r, r.rank() > 0
}

// Ability is a kind of use of task agents.
type Ability string

// The abilities.
const (
	Create   Ability = "create"   // start tasks, agents, workspaces
	Interact Ability = "interact" // use what exists already
)

// need holds the role that each ability requires.
type need struct{ create, interact Role }

// Policy holds the roles that are required on each connector. The zero Policy is the default:
// all users may do everything, but on discord only administrators.
type Policy struct {
	general    need
	connectors map[string]need
	fault      error
}

func initial() Policy {
	return Policy{general: need{Guest, Guest}, connectors: map[string]need{"discord": {Admin, Admin}}}
}

// Parse parses TASK_AGENT_ROLE_POLICY, a role or {"default": …, "connectors": {name: …}}, and
// TASK_AGENT_CONNECTOR_ROLE_POLICY, {name: …}. Each … is a role for both abilities, or
// {"create": role, "interact": role}, in which a missing ability keeps its role. Either text
// may be "". The second wins over the first, and both win over the default.
//
// If a text is malformed, the policy denies everything to all users, with the cause in its
// error.
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

// broken returns a policy that denies everything because the variable name is malformed.
func broken(name string, err error) Policy {
	return Policy{fault: capability.Errorf(capability.CodeDenied, "tasks", "%s cannot be read (%.200v), so task agents are refused", name,
		err).
		With("forbidden", "write a role (GUEST, USER, ADMIN, OWNER) or {\"default\": …, \"connectors\": {…}}")}
}

// add sets the required roles of connectors. Missing abilities keep those of the connector or
// of the default.
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

// read sets n from a role, or from an object with a role for each ability. Empty JSON changes
// nothing.
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

// Person is the user for whom a program calls.
type Person struct {
	By capability.Principal
	// Role is the role that the agent reports for the user, and Connector the channel on
	// which the user writes. Either may be "".
	Role, Connector string
}

// Check returns nil if a person has an ability, otherwise denied, reason forbidden. An agent
// that names neither role nor connector acts for itself and passes. A user on a connector
// without a role is a guest, unless the program belongs to an administrator or operator. A
// reported role never exceeds that of the program's principal.
func (p Policy) Check(who Person, a Ability) error {
	role, human := Owner, who.By.Role == capability.RoleAdmin
	if who.By.Role == capability.RoleOperator {
		role, human = Admin, true
	}
	switch {
	case who.Role != "":
		claimed, ok := ParseRole(who.Role)
		if !ok {
			return capability.Errorf(capability.CodeDenied, "tasks", "the user's role %.40q is unknown", who.Role).With("forbidden",
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
