package policy_test

import (
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/testkit/catalogtest"
)

// annsNode is a node that is ann's, with a function that reads and one that writes.
func annsNode(t *testing.T) (read, write *catalog.Entry) {
	t.Helper()
	c := catalogtest.New(t)
	m := capability.Module{Extension: "node.a", ID: "node.a", Origin: "node", Users: []string{"ann"}}
	for name, effect := range map[string]capability.Effect{"look": capability.EffectRead, "set": capability.EffectWrite} {
		m.Contributions = append(m.Contributions, capability.Contribution{
			ID: name, Kind: "capability.agent-tool", Action: capability.Action("fn." + name), Effect: effect,
			Member: capability.Member{Module: "node.a", Kind: "function", Name: name},
		})
	}
	if _, _, err := c.Replace(capability.Batch{Source: "node/a", Modules: []capability.Module{m}}); err != nil {
		t.Fatal(err)
	}
	for e := range c.Snapshot().Entries() {
		if e.Effect == capability.EffectRead {
			read = e
		} else {
			write = e
		}
	}
	return read, write
}

func TestANodeOfAUserIsThatUsers(t *testing.T) {
	t.Parallel()
	read, write := annsNode(t)
	bob := capability.Principal{ID: "agent:bob", Role: capability.RoleAgent}
	for name, tt := range map[string]struct {
		who         capability.Principal
		grant       policy.Grant
		look, write bool
		knows       bool
	}{
		"by name": {who: capability.Principal{ID: "agent:ann", Role: capability.RoleAgent}, look: true, write: true, knows: true},
		"by label": {
			who:  capability.Principal{ID: "agent:x", Role: capability.RoleAgent, Labels: []string{"user:ann"}},
			look: true, write: true, knows: true,
		},
		"another label": {who: capability.Principal{
			ID: "agent:x", Role: capability.RoleAgent,
			Labels: []string{"team:ann", "user:anna"},
		}},
		"operator":             {who: who(capability.RoleOperator), look: true, write: true, knows: true},
		"stranger":             {who: bob},
		"grant for the module": {who: bob, grant: policy.Grant{Principal: "agent:bob", Module: "node.a"}, look: true, write: true, knows: true},
		"grant for one function": {
			who: bob, grant: policy.Grant{Principal: "agent:bob", Module: "node.a", Action: "fn.set"}, write: true,
			knows: true,
		},
		"grant for everything": {who: bob, grant: policy.Grant{Principal: "agent:bob"}},
		"grant of another":     {who: bob, grant: policy.Grant{Principal: "agent:eve", Module: "node.a"}},
		"grant for a session":  {who: bob, grant: policy.Grant{Principal: "agent:bob", Module: "node.a", Scope: "session", ScopeID: "s"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := open(t)
			if tt.grant.Principal != "" {
				if _, err := r.CreateGrant(t.Context(), who(capability.RoleAdmin), tt.grant); err != nil {
					t.Fatal(err)
				}
			}
			if got := r.Authorize(tt.who, read).Permitted; got != tt.look {
				t.Errorf("the read: %v; want got = %v", got, tt.look)
			}
			if got := r.Authorize(tt.who, write).Permitted; got != tt.write {
				t.Errorf("the write: %v; want got = %v", got, tt.write)
			}
			if got := r.Serves(tt.who, []string{"ann"}, "node.a"); got != tt.knows {
				t.Errorf("knows of it: %v; want got = %v", got, tt.knows)
			}
		})
	}
}

// TestAskedAbout finds what one call was asked about, and nothing of other calls.
func TestAskedAbout(t *testing.T) {
	t.Parallel()
	_, e := annsNode(t)
	r := open(t)
	ann := capability.Principal{ID: "agent:ann", Role: capability.RoleAgent}
	asked := policy.Asked{Principal: ann, Entry: e, InputDigest: "d", Channel: policy.ChannelOperator}
	_, err := r.Consent(t.Context(), asked)
	if capability.CodeOf(err) != capability.CodeApprovalRequired {
		t.Fatalf("%v; want capability.CodeOf(err) = capability.CodeApprovalRequired", err)
	}
	about := func(who capability.Principal, digest string) int {
		t.Helper()
		ids, err := r.AskedAbout(t.Context(), who, digest)
		if err != nil {
			t.Fatal(err)
		}
		return len(ids)
	}
	approval, _ := capability.AsError(err).Details["approval"].(string)
	if about(ann, "d") != 1 || about(ann, "e") != 0 || about(capability.Principal{ID: "agent:bob", Role: capability.RoleAgent}, "d") != 0 {
		t.Error(`an open question; want about(ann, "d") = 1, about(ann, "e") = 0, about(capability.Principal{ID: "agent:bob", ` +
			`Role: capability.RoleAgent}, "d") = 0`)
	}
	if _, _, err := r.Decide(t.Context(), who(capability.RoleOperator), approval, policy.DecideOnce); err != nil {
		t.Fatal(err)
	}
	if about(ann, "d") != 1 {
		t.Error(`a yes; want about(ann, "d") = 1`)
	}
	if _, err := r.Consent(t.Context(), asked); err != nil || about(ann, "d") != 0 {
		t.Errorf(`a yes that was used %v; want no error, about(ann, "d") = 0`, err)
	}
}
