package policy_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/policy"
)

// TestARuleAboutWhatNoRequestHasIsRefused: a forbid that is misspelt would protect nothing,
// and a condition that cannot be evaluated denies everything.
func TestARuleAboutWhatNoRequestHasIsRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`forbid (principal in Role::"agnt", action, resource);`:                                                                                      "no request has the role agnt; there are admin, operator, agent, node, task",
		`forbid (principal, action, resource) when { principal in Role::"x" };`:                                                                      "no request has the role x;",
		`forbid (principal in User::"a", action, resource);`:                                                                                         "no request has the type User; there are Principal, Role,",
		`forbid (principal is Agent, action, resource);`:                                                                                             "no request has the type Agent;",
		`forbid (principal, action in [Action::"read", Act::"b"], resource);`:                                                                        "no request has the type Act;",
		`permit (principal, action, resource) when { principal.rol == "admin" };`:                                                                    "no request has the attribute principal.rol; there are role, labels",
		`permit (principal, action, resource) unless { resource has tag };`:                                                                          "no request has the attribute resource.tag;",
		`permit (principal, action, resource) when { resource["Effect"] == "read" };`:                                                                "no request has the attribute resource.Effect;",
		`permit (principal, action, resource) when { context.ip == "::1" };`:                                                                         "no request has the attribute context.ip; there are none",
		`permit (principal, action, resource) when { resource.tags.contains("secret") };`:                                                            "",
		`permit (principal is Principal in Role::"task", action in Action::"read", resource is Capability in Module::"m") when { {"a": 1}.a == 1 };`: "",
		"permit (principal, action, resource)":                                                                                                       "line 1, column 37: the file ends where ; belongs",
		"permit (principal, action, resource) when { ":                                                                                               "the file ends in the middle of a rule",
	} {
		err := policy.Check([]policy.Document{{Name: "a.cedar", Text: []byte(text)}})
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case want != "" && (capability.CodeOf(err) != capability.CodeInvalidInput || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "a.cedar")):
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestNamesThatNobodyHas: they may be misspelt, or of a provider that is away.
func TestNamesThatNobodyHas(t *testing.T) {
	t.Parallel()
	p := open(t, `@id("a") forbid (principal, action in [Action::"fs.writeTxt", Action::"fs.writeText", Action::"write"], resource in Module::"mcp.away");`)
	want := []policy.Name{{Rule: "a", Type: "Action", ID: "fs.writeTxt", Near: []string{"fs.writeText"}}, {Rule: "a", Type: "Module", ID: "mcp.away", Near: []string{}}}
	c, err := catalog.New(catalog.Settings{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, p.Unknown(c.Snapshot())); d != "" {
		t.Errorf("p.Unknown(c.Snapshot()) differs from want (-want +got):\n%s", d)
	}
}

func TestUnknownNameOfServerThatIsAway(t *testing.T) {
	t.Parallel()
	p := open(t, `@id("a") forbid (principal, action in [Action::"ext.mcp.gone.x", Action::"fs.writeTxt"], resource);
@id("b") forbid (principal, action, resource in Server::"gone");
@id("c") forbid (principal, action, resource == Tool::"gone/x");`)
	c, err := catalog.New(catalog.Settings{}, 0)
	if err != nil {
		t.Fatalf("making a catalog: %v", err)
	}
	got := make(map[string]bool)
	for _, n := range p.Unknown(c.Snapshot()) {
		got[n.ID] = n.Away
	}
	want := map[string]bool{"ext.mcp.gone.x": true, "fs.writeTxt": false, "gone": true, "gone/x": true}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("which unknown names are of a server that is away (-want +got):\n%s", d)
	}
}
