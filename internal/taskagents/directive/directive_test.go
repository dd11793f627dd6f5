package directive_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/directive"
)

func texts(list []directive.Decision) (out []string) {
	for _, d := range list {
		out = append(out, d.Text)
	}
	return out
}

func TestDecisions(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		body    string
		columns int
		ours    string
		want    []string
	}{
		"a line of its own": {"I looked.\nDECISION: use SQLite.\nDone.", 0, "", []string{"use SQLite. Done."}},
		"behind a glyph": {
			"● DECISION: a\n\n• DECISION: b\n\n✦ DECISION: c\n\n⏺ DECISION: d\n\n* DECISION: e", 0, "",
			[]string{"a", "b", "c", "d", "e"},
		},
		"one glyph only":          {"● ● DECISION: a", 0, "", nil},
		"blanks":                  {"  DECISION \t:\t a   b \t c ", 0, "", []string{"a b c"}},
		"another case":            {"Decision: a\ndecision: b\nMY DECISION: c\nDECISIONS: d", 0, "", nil},
		"nothing decided":         {"DECISION:\nDECISION:   \n\n", 0, "", nil},
		"wrapped Markdown":        {"DECISION: one\ntwo\n  three\n\nfour", 0, "", []string{"one two three"}},
		"until another directive": {"DECISION: one\nDECISION: two\nUSE_SKILL x\n", 0, "", []string{"one", "two"}},
		"until a list": {
			"DECISION: one\n- item\nDECISION: two\n1. item\nDECISION: three\n2) item", 0, "",
			[]string{"one", "two", "three"},
		},
		"until a fence":              {"DECISION: one\n```\ncode\n```", 0, "", []string{"one"}},
		"until a quote":              {"DECISION: one\n> two", 0, "", []string{"one"}},
		"in a fence":                 {"```\nDECISION: no\n```\nDECISION: yes", 0, "", []string{"yes"}},
		"in a longer fence":          {"````md\n```\nDECISION: no\n```\nDECISION: no\n````\nDECISION: yes", 0, "", []string{"yes"}},
		"in a fence of another kind": {"~~~\n```\nDECISION: no\n~~~\nDECISION: yes", 0, "", []string{"yes"}},
		"in a fence that never ends": {"```go\nDECISION: no\n", 0, "", nil},
		"quoted":                     {"> DECISION: no\n  > DECISION: no", 0, "", nil},
		"in the middle of a line":    {"I print DECISION: no", 0, "", nil},
		"an echo of the task": {
			"DECISION: the greeting is hello\nDECISION: mine", 0,
			"Create it. Print DECISION:  the greeting\n is hello, and more",
			[]string{"mine"},
		},
		"an example of the memory": {
			"    DECISION: what you decided, and why", 0, "lines:\n\n    DECISION: what you decided, and why\n\nmore",
			nil,
		},
		"the same twice":   {"DECISION: a b\n\nDECISION: a   b", 0, "", []string{"a b"}},
		"a screen's lines": {"● DECISION: short\n  Next sentence.", 80, "", []string{"short"}},
		"a screen's wrapped line": {
			"● DECISION: wrote hello.txt because the\n  task asked for it.\n  Done: created it.", 44, "",
			[]string{"wrote hello.txt because the task asked for it."},
		},
		"a screen, not indented": {
			"● DECISION: wrote hello.txt because the\ntask asked for it.", 44, "",
			[]string{"wrote hello.txt because the"},
		},
		"a screen with wide letters": {
			"● DECISION: 漢字漢字漢字漢字漢字漢字\n  漢字漢字", 44, "",
			[]string{"漢字漢字漢字漢字漢字漢字 漢字漢字"},
		},
		"control characters": {"DECISION: a\x1b[31mb\x00c\xff", 0, "", []string{"a [31mb c\uFFFD"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var l directive.Ledger
			got := l.Take(directive.Text{Body: tt.body, Columns: tt.columns}, tt.ours)
			if diff := cmp.Diff(tt.want, texts(got)); diff != "" {
				t.Errorf("diff (-want +got):\n%s", diff)
			}
			for _, d := range got {
				if d.Screen != (tt.columns > 0) {
					t.Errorf("%+v; want d.Screen = (tt.columns > 0)", d)
				}
			}
		})
	}
}

func TestDecisionsAreBounded(t *testing.T) {
	t.Parallel()
	var l directive.Ledger
	long := strings.Repeat("é ", 3000)
	got := l.Take(directive.Text{Body: "DECISION: " + long})
	if len(got) != 1 || utf8.RuneCountInString(got[0].Text) != directive.MaxStored-1 ||
		utf8.RuneCountInString(got[0].Shared) != directive.MaxShared-1 {
		t.Errorf("%d, %d and %d characters; want len(got) = 1, utf8.RuneCountInString(got[0].Text) = directive.MaxStored - 1, "+
			"utf8.RuneCountInString(got[0].Shared) = directive.MaxShared - 1", len(got), utf8.RuneCountInString(got[0].Text),
			utf8.RuneCountInString(got[0].Shared))
	}
	var many strings.Builder
	for i := range 30 {
		fmt.Fprintf(&many, "DECISION: number %d\n", i)
	}
	if got = l.Take(directive.Text{Body: many.String()}); len(got) != directive.MaxTurn || got[19].Text != "number 19" {
		t.Errorf(`%q; want len(got) = directive.MaxTurn, got[19].Text = "number 19"`, texts(got))
	}
	// The next turn shows the same screen: what is known is not told again.
	if got = l.Take(directive.Text{Body: many.String(), Columns: 80}); len(got) != 10 || got[0].Text != "number 20" {
		t.Errorf(`%q; want len(got) = 10, got[0].Text = "number 20"`, texts(got))
	}
}

func TestPostedDecisions(t *testing.T) {
	t.Parallel()
	var l directive.Ledger
	l.Take(directive.Text{Body: "DECISION: known"})
	if _, ok := l.Post(" known\n"); ok {
		t.Error("told twice")
	}
	if _, ok := l.Post(" \n"); ok {
		t.Error("nothing was decided")
	}
	for i := range directive.MaxPosted + 1 {
		d, ok := l.Post(fmt.Sprintf("number\n%d", i))
		if ok != (i < directive.MaxPosted) || ok && d.Text != fmt.Sprintf("number %d", i) {
			t.Fatalf(`%d: %+v %v; want ok = (i < directive.MaxPosted), not (ok && d.Text != fmt.Sprintf("number %%d", i))`, i, d, ok)
		}
	}
}

func TestGivingUp(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"cannot continue, because X": true, "Cannot continue": true, "blocked because of it": true, "Unable to log in": true,
		"I cannot continue": false, "blocked": false, "continue": false,
	} {
		var l directive.Ledger
		if got := l.Take(directive.Text{Body: "DECISION: " + text}); len(got) != 1 || got[0].CannotContinue != want {
			t.Errorf("%s: %+v; want len(got) = 1, got[0].CannotContinue = %v", text, got, want)
		}
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	const why = "The model gave no reason."
	for name, tt := range map[string]struct {
		text string
		want directive.Answer // without an action: none
	}{
		"alone": {
			`{"action":"complete","reasoning":"tests  pass"}`,
			directive.Answer{Action: "complete", Reasoning: "tests pass"},
		},
		"in prose with braces": {
			"Use {braces} or {\"x\": 1} and:\n```json\n{\"action\": \"respond\", \"response\": \"say {hi}\"}\n```\nfine }",
			directive.Answer{Action: "respond", Response: "say {hi}", Reasoning: why},
		},
		"the last of two": {
			`{"action":"ignore"} no: {"action":"escalate","keyDecision":" a  b "}`,
			directive.Answer{Action: "escalate", Reasoning: why, KeyDecision: "a b"},
		},
		"the outer of two":        {`{"action":"complete","more":{"action":"ignore"}}`, directive.Answer{Action: "complete", Reasoning: why}},
		"the last valid":          {`{"action":"ignore"} {"action":"dance"}`, directive.Answer{Action: "ignore", Reasoning: why}},
		"inside something broken": {`{"a": nonsense {"action":"ignore"} }`, directive.Answer{Action: "ignore", Reasoning: why}},
		"behind an open brace":    {`{"unbalanced: {"action":"ignore"}`, directive.Answer{Action: "ignore", Reasoning: why}},
		"keys": {
			`{"action":"respond","useKeys":true,"keys":["down","enter"]}`,
			directive.Answer{Action: "respond", UseKeys: true, Keys: []string{"down", "enter"}, Reasoning: why},
		},
		"no response": {`{"action":"respond","response":" "}`, directive.Answer{}},
		"no keys":     {`{"action":"respond","useKeys":true,"response":"x"}`, directive.Answer{}},
		"too many keys": {
			`{"action":"respond","useKeys":true,"keys":["a"` + strings.Repeat(`,"a"`, directive.MaxKeys) + `]}`,
			directive.Answer{},
		},
		"wrong types":           {`{"action":"respond","response":5}`, directive.Answer{}},
		"twice the same member": {`{"action":"ignore","action":"complete"}`, directive.Answer{}},
		"none":                  {"I would respond with yes.", directive.Answer{}},
		"empty":                 {"", directive.Answer{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ok := directive.ReadAnswer(tt.text)
			if diff := cmp.Diff(tt.want, got); diff != "" || ok != (tt.want.Action != "") {
				t.Errorf("%v\n%s\nwant diff = \"\", ok = (tt.want.Action != \"\")", ok, diff)
			}
		})
	}
	long, _ := directive.ReadAnswer(`{"action":"ignore","keyDecision":"` + strings.Repeat("k", 500) + `"}`)
	if len(long.KeyDecision) != directive.MaxShared {
		t.Errorf("%d characters; want len(long.KeyDecision) = directive.MaxShared", len(long.KeyDecision))
	}
}

func TestSkills(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		body    string
		columns int
		want    directive.SkillCall
	}{
		"alone":            {"USE_SKILL web-search", 0, directive.SkillCall{Slug: "web-search"}},
		"with an object":   {"text\n● USE_SKILL a1 {\"q\": [1]}\nUSE_SKILL b", 0, directive.SkillCall{Slug: "a1", Input: []byte(`{"q": [1]}`)}},
		"with an array":    {"USE_SKILL a [1]", 0, directive.SkillCall{Slug: "a", Input: []byte(`[1]`)}},
		"with words":       {"USE_SKILL a  find   it", 0, directive.SkillCall{Slug: "a", Words: "find it"}},
		"with broken JSON": {`USE_SKILL a {"q":`, 0, directive.SkillCall{Slug: "a", Words: `{"q":`}},
		"with a scalar":    {`USE_SKILL a "q"`, 0, directive.SkillCall{Slug: "a", Words: `"q"`}},
		"next line":        {"USE_SKILL a\nmore", 0, directive.SkillCall{Slug: "a"}},
		"wrapped": {
			"USE_SKILL a {\"question\":\n  \"everything\"}", 30,
			directive.SkillCall{Slug: "a", Input: []byte(`{"question": "everything"}`)},
		},
		"in a fence":      {"```\nUSE_SKILL a\n```", 0, directive.SkillCall{}},
		"no slug":         {"USE_SKILL Web_Search\nUSE_SKILL -a\nUSE_SKILL a--b\nUSE_SKILL\nUSE_SKILLS a", 0, directive.SkillCall{}},
		"too long a slug": {"USE_SKILL " + strings.Repeat("a", 65), 0, directive.SkillCall{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ok := directive.ReadSkill(directive.Text{Body: tt.body, Columns: tt.columns})
			if diff := cmp.Diff(tt.want, got); diff != "" || ok != (tt.want.Slug != "") {
				t.Errorf("%v\n%s\nwant diff = \"\", ok = (tt.want.Slug != \"\")", ok, diff)
			}
		})
	}
	if got := directive.SkillResult("a", false, "broken\n"); got != "[skill a: error]\nbroken\n[end of skill a]" {
		t.Errorf(`%q; want got = "[skill a: error]\nbroken\n[end of skill a]"`, got)
	}
	if got := directive.SkillResult("a", true, strings.Repeat("é",
		2000)); utf8.RuneCountInString(got) != directive.MaxSkillResult+len("[skill a: ok]\n\n[end of skill a]") ||
		!strings.Contains(got, "…") {
		t.Errorf(`%d characters; want utf8.RuneCountInString(got) = directive.MaxSkillResult + len("[skill a: ok]\n\n[end of `+
			`skill a]"), got with "…"`, utf8.RuneCountInString(got))
	}
}

func TestProofs(t *testing.T) {
	t.Parallel()
	const rest = `"files":["a.ts"],"tests":{"passed":3,"failed":0},"lint":"ok","typecheck":"ok"`
	app := directive.Proof{Kind: "app", Name: "x", Files: []string{"a.ts"}, Passed: 3}
	for name, tt := range map[string]struct {
		body string
		want directive.Proof
		err  bool
	}{
		"an app": {`APP_CREATE_DONE {"appName":"x",` + rest + `}`, app, false},
		"a plugin": {
			`PLUGIN_CREATE_DONE {"pluginName":"x",` + rest + `}`,
			directive.Proof{Kind: "plugin", Name: "x", Files: []string{"a.ts"}, Passed: 3},
			false,
		},
		"more than it needs": {
			`APP_CREATE_DONE {"appName":"x",` + rest + `,"url":"u"}`,
			directive.Proof{Kind: "app", Name: "x", Files: []string{"a.ts"}, Passed: 3, Extra: map[string]jsonRaw{"url": jsonRaw(`"u"`)}},
			false,
		},
		"the first that counts": {"APP_CREATE_DONE {}\nAPP_CREATE_DONE {\"appName\":\"x\"," + rest + "}\nAPP_CREATE_DONE {\"appName\":\"y\"," +
			rest + "}", app, false},
		"in a fence":          {"```\nAPP_CREATE_DONE {\"appName\":\"x\"," + rest + "}\n```", directive.Proof{}, false},
		"the other's name":    {`APP_CREATE_DONE {"appName":"x","pluginName":"x",` + rest + `}`, directive.Proof{}, true},
		"no name":             {`APP_CREATE_DONE {"appName":" ",` + rest + `}`, directive.Proof{}, true},
		"of old: name":        {`APP_CREATE_DONE {"appName":"x","name":"x",` + rest + `}`, directive.Proof{}, true},
		"of old: testsPassed": {`APP_CREATE_DONE {"appName":"x","testsPassed":3,` + rest + `}`, directive.Proof{}, true},
		"of old: lintClean":   {`APP_CREATE_DONE {"appName":"x","lintClean":true,` + rest + `}`, directive.Proof{}, true},
		"a test that failed": {
			`APP_CREATE_DONE {"appName":"x","files":[],"tests":{"passed":3,"failed":1},"lint":"ok","typecheck":"ok"}`,
			directive.Proof{},
			true,
		},
		"a half test": {
			`APP_CREATE_DONE {"appName":"x","files":[],"tests":{"passed":1.5,"failed":0},"lint":"ok","typecheck":"ok"}`,
			directive.Proof{},
			true,
		},
		"tests without a number": {
			`APP_CREATE_DONE {"appName":"x","files":[],"tests":{"passed":1},"lint":"ok","typecheck":"ok"}`,
			directive.Proof{},
			true,
		},
		"lint": {
			`APP_CREATE_DONE {"appName":"x","files":[],"tests":{"passed":1,"failed":0},"lint":"warnings","typecheck":"ok"}`,
			directive.Proof{},
			true,
		},
		"files of another kind": {
			`APP_CREATE_DONE {"appName":"x","files":[1],"tests":{"passed":1,"failed":0},"lint":"ok","typecheck":"ok"}`,
			directive.Proof{},
			true,
		},
		"no files": {
			`APP_CREATE_DONE {"appName":"x","files":null,"tests":{"passed":1,"failed":0},"lint":"ok","typecheck":"ok"}`,
			directive.Proof{},
			true,
		},
		"no JSON": {`APP_CREATE_DONE yes`, directive.Proof{}, true},
		"nothing": {`APP_CREATE_DONE`, directive.Proof{}, true},
		"null":    {`APP_CREATE_DONE null`, directive.Proof{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ok, err := directive.ReadProof(directive.Text{Body: tt.body})
			if diff := cmp.Diff(tt.want, got); diff != "" || ok != (tt.want.Kind != "") || (err != nil) != tt.err {
				t.Errorf("%v %v\n%s\nwant diff = \"\", ok = (tt.want.Kind != \"\"), (err != nil) = %v", ok, err, diff, tt.err)
			}
			if tt.err && capability.AsError(err).Reason != "proof_invalid" {
				t.Errorf(`%v; want not (tt.err && capability.AsError(err).Reason != "proof_invalid")`, err)
			}
		})
	}
}
