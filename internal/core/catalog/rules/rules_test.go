package rules_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog/rules"
)

func slack() *capability.Context {
	return &capability.Context{
		Workspace: "w1", Agent: "main", Session: "s1", Route: &capability.Route{Kind: "slack", Account: "work", Conversation: "C1"},
	}
}

func send() rules.Facts {
	return rules.Facts{
		Action: "message.send", Provider: "messaging:slack:work", Extension: "slack", Effect: "external",
		Tags: []string{"chat", "beta"},
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	rule := func(layer, effect string, match ...string) rules.Rule {
		r := rules.Rule{Effect: effect, Match: match}
		r.Layer, r.Workspace = layer, ""
		name, value, _ := strings.Cut(layer, "=")
		switch r.Layer = name; name {
		case "workspace":
			r.Workspace = value
		case "agent":
			r.Agent, r.Workspace, _ = strings.Cut(value, "@")
		case "account":
			r.Account = value
		case "session":
			r.Session = value
		}
		return r
	}
	for _, tt := range []struct {
		name    string
		rules   []rules.Rule
		static  rules.Verdict
		dynamic rules.Verdict
	}{
		{"no rules", nil, rules.Verdict{}, rules.Verdict{}},
		{
			"a deny",
			[]rules.Rule{rule("", "deny", "message.*")},
			rules.Verdict{Denied: true, Rule: "r1", Matched: []string{"r1"}},
			rules.Verdict{},
		},
		{"a deny of something else", []rules.Rule{rule("global", "deny", "memory.*")}, rules.Verdict{}, rules.Verdict{}},
		{"the first deny is named, all that match are listed", []rules.Rule{
			rule("global", "deny", "x.*"), rule("global", "deny", "message.*"),
			rule("global", "deny", "*"),
		}, rules.Verdict{Denied: true, Rule: "r2", Matched: []string{"r2", "r3"}}, rules.Verdict{}},
		{
			"a deny beats an allow",
			[]rules.Rule{rule("global", "allow", "message.send"), rule("agent=main", "deny", "message.send")},
			rules.Verdict{Denied: true, Rule: "r2", Matched: []string{"r1", "r2"}},
			rules.Verdict{},
		},
		{
			"an allow-list admits what it names",
			[]rules.Rule{rule("global", "allow", "memory.*", "message.*")},
			rules.Verdict{Matched: []string{"r1"}},
			rules.Verdict{},
		},
		{
			"an allow-list denies what it does not name",
			[]rules.Rule{rule("global", "allow", "memory.*")},
			rules.Verdict{Denied: true, Rule: "r1"},
			rules.Verdict{},
		},
		{
			"two allow-lists of one layer are one",
			[]rules.Rule{rule("global", "allow", "memory.*"), rule("global", "allow", "message.*")},
			rules.Verdict{Matched: []string{"r2"}},
			rules.Verdict{},
		},
		{
			"a lower layer cannot widen",
			[]rules.Rule{rule("global", "allow", "memory.*"), rule("agent=main", "allow", "*")},
			rules.Verdict{Denied: true, Rule: "r1", Matched: []string{"r2"}},
			rules.Verdict{},
		},
		{
			"a lower layer narrows",
			[]rules.Rule{rule("global", "allow", "*"), rule("workspace=w1", "allow", "memory.*")},
			rules.Verdict{Denied: true, Rule: "r2", Matched: []string{"r1"}},
			rules.Verdict{},
		},
		{
			"an approval hides nothing",
			[]rules.Rule{rule("global", "approve", "effect:external")},
			rules.Verdict{Approval: true, Matched: []string{"r1"}},
			rules.Verdict{},
		},
		{"an approval is not an allow-list", []rules.Rule{rule("global", "approve", "memory.*")}, rules.Verdict{}, rules.Verdict{}},
		{"another workspace", []rules.Rule{rule("workspace=w2", "deny", "*")}, rules.Verdict{}, rules.Verdict{}},
		{"another agent", []rules.Rule{rule("agent=other", "deny", "*")}, rules.Verdict{}, rules.Verdict{}},
		{
			"the agent in its workspace",
			[]rules.Rule{rule("agent=main@w1", "deny", "*")},
			rules.Verdict{Denied: true, Rule: "r1", Matched: []string{"r1"}},
			rules.Verdict{},
		},
		{"the agent in another workspace", []rules.Rule{rule("agent=main@w2", "deny", "*")}, rules.Verdict{}, rules.Verdict{}},
		{
			"an account by its name",
			[]rules.Rule{rule("account=work", "deny", "*")},
			rules.Verdict{},
			rules.Verdict{Denied: true, Rule: "r1", Matched: []string{"r1"}},
		},
		{
			"an account with its kind",
			[]rules.Rule{rule("account=slack:work", "deny", "*")},
			rules.Verdict{},
			rules.Verdict{Denied: true, Rule: "r1", Matched: []string{"r1"}},
		},
		{"an account of another kind", []rules.Rule{rule("account=discord:work", "deny", "*")}, rules.Verdict{}, rules.Verdict{}},
		{"the session", []rules.Rule{rule("session=s1", "allow", "memory.*")}, rules.Verdict{}, rules.Verdict{Denied: true, Rule: "r1"}},
		{"another session", []rules.Rule{rule("session=s2", "deny", "*")}, rules.Verdict{}, rules.Verdict{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			set, err := rules.Compile(tt.rules)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.static, set.Bind(slack(), rules.Static).Judge(send())); d != "" {
				t.Errorf(`static %v; want d = ""`, d)
			}
			if d := cmp.Diff(tt.dynamic, set.Bind(slack(), rules.Dynamic).Judge(send())); d != "" {
				t.Errorf(`dynamic %v; want d = ""`, d)
			}
		})
	}
}

func TestPatterns(t *testing.T) {
	t.Parallel()
	tool := rules.Facts{Action: "ext.mcp.github.create_branch", Provider: "ext:mcp.github:default", Extension: "mcp.github", Effect: "write"}
	for pattern, want := range map[string][2]bool{
		"message.*": {true, false}, "message.send": {true, false}, "message": {false, false}, "*": {true, true},
		"ext.mcp.github.create_branch": {false, true},
		"provider:messaging:slack:*":   {true, false}, "provider:messaging:*:home": {false, false}, "ext:mcp.*": {false, true},
		"ext:slack": {true, false},
		"tag:beta":  {true, false}, "tag:b?ta": {true, false}, "tag:b?a": {false, false}, "effect:external": {true, false},
		"effect:write":    {false, true},
		"group:messaging": {true, false}, "group:extensions": {false, true}, "group:fs": {false, false}, "profile:messaging": {true, false},
		"profile:minimal": {false, false}, "profile:coding": {false, false}, "profile:full": {true, true}, " message.send ": {true, false},
	} {
		set, err := rules.Compile([]rules.Rule{{Effect: "allow", Match: []string{pattern}}})
		if err != nil {
			t.Fatal(err)
		}
		p := set.Patterns()[0]
		if got := [2]bool{p.Matches(send()), p.Matches(tool)}; got != want || p.Text != pattern || !p.Allow {
			t.Errorf("%s matches %v; want got = %v, p.Text = %v, p.Allow = true", pattern, got, want, pattern)
		}
	}
	for group, actions := range map[string]string{
		"group:runtime": "pty.command.run exec.run", "group:git": "git.diff", "group:memory": "memory.get",
		"group:task-agent": "task-agent.list workspace.provision",
		"group:device":     "device.status.get", "group:web": "web.fetch browser.run",
		"profile:coding":    "fs.list pty.command.run git.diff memory.get task-agent.list analyze.response session.status catalog.search",
		"profile:minimal":   "session.status catalog.describe",
		"profile:messaging": "message.send conversation.leave directory.list session.status",
	} {
		set, err := rules.Compile([]rules.Rule{{Effect: "deny", Match: []string{group}}})
		if err != nil {
			t.Fatal(err)
		}
		for _, action := range strings.Fields(actions) {
			if !set.Bind(&capability.Context{}, rules.Static).Judge(rules.Facts{Action: action}).Denied {
				t.Errorf("%s lacks %s; want set.Bind(&capability.Context{}, rules.Static).Judge(rules.Facts{Action: action}).Denied = true",
					group, action)
			}
		}
	}
}

func TestGlob(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		pattern, s string
		want       bool
	}{
		{"", "", true},
		{"", "a", false},
		{"*", "", true},
		{"a*", "abc", true},
		{"*c", "abc", true},
		{"a*c", "abcbc", true},
		{"a*b*c", "axxbxxc", true},
		{"a*b*c", "axxcxxb", false},
		{"?", "", false},
		{"a?c", "abc", true},
		{"a?c", "ac", false},
		{"abc", "abcd", false},
		{"bcd", "abcd", false},
		{"**", "x", true},
		{"*?", "x", true},
		{"a.*", "ab", false},
	} {
		if got := rules.Glob(tt.pattern, tt.s); got != tt.want {
			t.Errorf("%q on %q: %v; want got = %v", tt.pattern, tt.s, got, tt.want)
		}
	}
	if rules.Glob(strings.Repeat("*a", 128)+"b", strings.Repeat("a", 4096)) { // in no time
		t.Error("matched")
	}
}

func TestRulesThatAreNone(t *testing.T) {
	t.Parallel()
	long := make([]string, 257)
	for i := range long {
		long[i] = "x"
	}
	for name, list := range map[string][]rules.Rule{
		"layer": {{Layer: "planet", Effect: "deny", Match: []string{"*"}}}, "value": {{Layer: "agent", Effect: "deny", Match: []string{"*"}}},
		"effect": {{Effect: "maybe", Match: []string{"*"}}}, "no match": {{Effect: "deny"}}, "too many": {{Effect: "deny", Match: long}},
		"blank": {{Effect: "deny", Match: []string{" "}}}, "prefix": {{Effect: "deny", Match: []string{"kind:x"}}},
		"group":   {{Effect: "deny", Match: []string{"group:none"}}},
		"profile": {{Effect: "deny", Match: []string{"profile:none"}}}, "many": make([]rules.Rule, 1025),
	} {
		if _, err := rules.Compile(list); capability.CodeOf(err) != capability.CodeInvalidInput ||
			capability.AsError(err).Reason != "invalid_rule" {
			t.Errorf(`%s: %v; want capability.CodeOf(err) = capability.CodeInvalidInput, capability.AsError(err).Reason = "invalid_rule"`,
				name, err)
		}
	}
}

func TestHides(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		rule rules.Rule
		want []string
	}{
		{rules.Rule{Effect: "deny", Match: []string{"message.*", "fs.list"}}, []string{"message.*", "fs.list"}},
		{rules.Rule{Effect: "approve", Match: []string{"message.*"}}, nil},
		{rules.Rule{Effect: "allow", Match: []string{"message.*"}}, []string{"*"}},
		{rules.Rule{Effect: "deny", Match: []string{"tag:x"}}, []string{"*"}},
	} {
		tt.rule.Layer, tt.rule.Session = "session", "s1"
		set, err := rules.Compile([]rules.Rule{tt.rule})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(tt.want, set.Bind(slack(), rules.Dynamic).Hides()); d != "" {
			t.Errorf(`%+v: %s; want d = ""`, tt.rule, d)
		}
	}
}
