package verbs_test

import (
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/verbs"
)

func who(role capability.Role, user, connector string) verbs.Person {
	return verbs.Person{By: capability.Principal{ID: string(role) + ":x", Role: role}, Role: user, Connector: connector}
}

func TestWhoMayDoWhat(t *testing.T) {
	t.Parallel()
	agent, admin, operator := capability.RoleAgent, capability.RoleAdmin, capability.RoleOperator
	for name, c := range map[string]struct {
		policy, connectors string
		who                verbs.Person
		create, interact   bool
	}{
		"the default lets everybody":            {"", "", who(agent, "GUEST", ""), true, true},
		"the agent itself passes":               {"OWNER", "", who(agent, "", ""), true, true},
		"discord is for administrators":         {"", "", who(agent, "USER", "discord"), false, false},
		"whatever the case":                     {"", "", who(agent, "admin", "Discord"), true, true},
		"nothing known on a connector is guest": {"", "", who(agent, "", "discord"), false, false},
		"a plain role means both":               {"USER", "", who(agent, "GUEST", ""), false, false},
		"a plain role as JSON":                  {`"USER"`, "", who(agent, "USER", ""), true, true},
		"abilities apart":                       {`{"default":{"create":"ADMIN","interact":"USER"}}`, "", who(agent, "USER", ""), false, true},
		"one ability leaves the other":          {`{"default":{"create":"ADMIN"}}`, "", who(agent, "GUEST", ""), false, true},
		"connectors of the policy": {
			`{"default":"GUEST","connectors":{"telegram":"OWNER"}}`, "", who(agent, "ADMIN", "telegram"),
			false, false,
		},
		"the default of others": {
			`{"default":"GUEST","connectors":{"telegram":"OWNER"}}`, "", who(agent, "GUEST", "slack"),
			true, true,
		},
		"connectors alone go before": {
			`{"connectors":{"telegram":"OWNER"}}`, `{"telegram":{"interact":"USER"}}`,
			who(agent, "USER", "telegram"), false, true,
		},
		"an administrator's token is the owner":  {"OWNER", "", who(admin, "", ""), true, true},
		"but narrows like others":                {"OWNER", "", who(admin, "USER", ""), false, false},
		"an operator's is an administrator":      {"OWNER", "", who(operator, "", ""), false, false},
		"who cannot become more":                 {"OWNER", "", who(operator, "OWNER", ""), false, false},
		"an unknown role is refused":             {"", "", who(agent, "KING", ""), false, false},
		"what is not JSON denies":                {"{", "", who(agent, "OWNER", ""), false, false},
		"what is not JSON denies the owner":      {"{", "", who(admin, "", ""), false, false},
		"an unknown role in it denies":           {`{"default":"KING"}`, "", who(agent, "OWNER", ""), false, false},
		"an unknown member of it denies":         {`{"defaults":"GUEST"}`, "", who(agent, "OWNER", ""), false, false},
		"an unreadable connector denies all":     {"", `{"telegram":7}`, who(agent, "OWNER", "slack"), false, false},
		"which does not hold the agent itself":   {"{", "", who(agent, "", ""), true, true},
		"an unknown ability in it denies":        {`{"default":{"delete":"GUEST"}}`, "", who(agent, "OWNER", ""), false, false},
		"a name twice in other letters is as is": {"", `{"Discord":"GUEST"}`, who(agent, "GUEST", "discord"), true, true},
	} {
		p := verbs.Parse(c.policy, c.connectors)
		for ability, want := range map[verbs.Ability]bool{verbs.Create: c.create, verbs.Interact: c.interact} {
			err := p.Check(c.who, ability)
			if (err == nil) != want {
				t.Errorf("%s: %s: %v; want (err == nil) = %v", name, ability, err, want)
			}
			if err != nil && (capability.CodeOf(err) != capability.CodeDenied || capability.AsError(err).Reason != "forbidden") {
				t.Errorf("%s: %#v", name, err)
			}
		}
	}
	if err := (verbs.Policy{}).Check(who(agent, "USER", "discord"), verbs.Create); err == nil {
		t.Error("the zero policy is not the default; want an error")
	}
}

// A role that is claimed never gives what the same caller would not have as OWNER, and a
// higher one never less than a lower one.
func FuzzPolicy(f *testing.F) {
	f.Add("USER", `{"discord":"GUEST"}`, "discord")
	f.Add(`{"default":{"create":"ADMIN"}}`, "", "")
	f.Fuzz(func(t *testing.T, policy, connectors, connector string) {
		p := verbs.Parse(policy, connectors)
		for _, a := range []verbs.Ability{verbs.Create, verbs.Interact} {
			may := false
			for _, role := range []string{"GUEST", "USER", "ADMIN", "OWNER"} {
				now := p.Check(who(capability.RoleAgent, role, connector), a) == nil
				if may && !now {
					t.Errorf("%s may not what a lesser one may: %s; want not (may && !now)", role, strings.ToValidUTF8(policy, "?"))
				}
				may = now
			}
		}
	})
}
