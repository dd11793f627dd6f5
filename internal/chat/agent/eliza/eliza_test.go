package eliza_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/chat/agent/eliza"
	"github.com/junctor-run/junctor/protocol/router"
)

func set(t *testing.T, manifests ...string) *eliza.Set {
	t.Helper()
	all := make(map[string]router.Module)
	for i, m := range manifests {
		parsed, err := router.ParseModule(json.RawMessage(m))
		if err != nil {
			t.Fatalf("manifest %d: got %v, want no error", i, err)
		}
		all["remote."+parsed.ID] = parsed
	}
	return eliza.NewSet(all)
}

func names[T fmt.Stringer](list []T) (out []string) {
	for _, one := range list {
		out = append(out, one.String())
	}
	return out
}

func TestItemsAreInTheOrderOfElizaOS(t *testing.T) {
	s := set(t,
		`{"id":"b","name":"b","contexts":["x"],"providers":[{"name":"B"},{"name":"A"}],"responseHandlerFieldEvaluators":[
			{"name":"last","description":"d","schema":{}},{"name":"replyText","description":"reserved","schema":{}},
			{"name":"first","description":"d","priority":5,"schema":{}}]}`,
		`{"id":"a","name":"a","priority":50,"contexts":["y","x"],"providers":[{"name":"C"}],"responseHandlerFieldEvaluators":[
			{"name":"middle","description":"d","schema":{}},{"name":"first","description":"again","priority":6,"schema":{}}]}`,
	)
	if got, want := names(s.Fields), []string{"b/first", "a/middle", "b/last"}; !slices.Equal(got, want) {
		t.Errorf("fields: got %v, want %v: the first of a name, a lower priority first, 100 by default", got, want)
	}
	if got, want := names(s.Providers), []string{"b/A", "b/B", "a/C"}; !slices.Equal(got, want) {
		t.Errorf("providers: got %v, want %v by name", got, want)
	}
	if got, want := s.Contexts, []string{"x", "y"}; !slices.Equal(got, want) {
		t.Errorf("contexts: got %v, want %v", got, want)
	}
}

func TestSelectLeavesOutWhatIsNotNamed(t *testing.T) {
	s := set(t, `{"id":"m","name":"m","providers":[{"name":"OPEN"},{"name":"LIVE","dynamic":true},{"name":"DIARY","private":true}]}`,
		`{"id":"g","name":"g","contexts":["garden"],"providers":[{"name":"SOIL"}]}`)
	for _, c := range []struct {
		message         string
		contexts, named []string
		want            []string
	}{
		{"hello", nil, nil, []string{"OPEN"}},
		{"is live on?", nil, nil, []string{"LIVE", "OPEN"}},
		{"alive and delivered", nil, nil, []string{"OPEN"}},
		{"in the Garden", nil, nil, []string{"OPEN", "SOIL"}},
		{"hello", []string{"garden"}, []string{"DIARY"}, []string{"DIARY", "OPEN", "SOIL"}},
	} {
		var got []string
		for _, p := range eliza.Select(s.Providers, c.message, c.contexts, c.named) {
			got = append(got, p.Name)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("Select(%q, %v, %v) = %v, want %v", c.message, c.contexts, c.named, got, c.want)
		}
	}
}

// The schema is the same bytes in every turn, whichever fields run.
func TestTheSchemaIsStable(t *testing.T) {
	s := set(t, `{"id":"m","name":"m","responseHandlerFieldEvaluators":[{"name":"mood","description":"The mood.","schema":{"type":"string"}}]}`)
	on, err := eliza.Instructions(s.Fields, map[string]bool{"mood": true}, s.Contexts)
	if err != nil {
		t.Fatalf("instructions: got %v, want no error", err)
	}
	off, err := eliza.Instructions(s.Fields, nil, s.Contexts)
	if err != nil {
		t.Fatalf("instructions: got %v, want no error", err)
	}
	schema, err := eliza.Schema(s.Fields)
	if err != nil {
		t.Fatalf("schema: got %v, want no error", err)
	}
	var doc struct {
		Required             []string       `json:"required"`
		AdditionalProperties bool           `json:"additionalProperties"`
		Properties           map[string]any `json:"properties"`
	}
	if err := jsonx.Unmarshal(schema, &doc); err != nil || len(doc.Required) != 6 || len(doc.Properties) != 6 ||
		!slices.Contains(doc.Required, "mood") {
		t.Errorf("schema: got %s and %v, want the five fields of every turn and mood, all required", schema, err)
	}
	for _, text := range []string{on, off} {
		if !strings.Contains(text, string(schema)) {
			t.Errorf("instructions: got %s, want the schema's bytes", text)
		}
	}
	if !strings.Contains(on, "### mood\nThe mood.") || !strings.Contains(off, "### mood\nN/A this turn; emit empty value.") {
		t.Errorf("instructions: got %s and %s, want the section of the field as it runs", on, off)
	}
}

func TestPlansOfFirstAnswers(t *testing.T) {
	s := set(t, `{"id":"m","name":"m","contexts":["x"],"responseHandlerFieldEvaluators":[{"name":"n","description":"d","schema":{"type":["null","integer"]}}]}`)
	for answer, c := range map[string]struct {
		route eliza.Route
		ok    bool
	}{
		`{"replyText":"Hi","requiresTool":false}`:                             {eliza.RouteReply, true},
		"Sure:\n```json\n{\"replyText\":\"Hi\"}\n```":                         {eliza.RouteReply, true},
		`{"replyText":"Hi","requiresTool":true}`:                              {eliza.RouteTools, true},
		`{"replyText":"","requiresTool":false}`:                               {eliza.RouteTools, true},
		`{"replyText":"Hi","shouldRespond":"IGNORE"}`:                         {eliza.RouteReply, true},
		`{"replyText":"Hi","shouldRespond":"STOP"}`:                           {eliza.RouteReply, true},
		`{"replyText":7,"shouldRespond":["IGNORE"],"contexts":"x","mood":{}}`: {eliza.RouteTools, true},
		`no JSON`:    {eliza.RouteTools, false},
		`{"a":`:      {eliza.RouteTools, false},
		`[1,2]`:      {eliza.RouteTools, false},
		`} before {`: {eliza.RouteTools, false},
	} {
		p, ok := eliza.NewPlan(answer, s.Fields, s.Contexts)
		if got := p.Route(); got != c.route || ok != c.ok {
			t.Errorf("the plan of %s: got %s, %v, want %s, %v", answer, got, ok, c.route, c.ok)
		}
		if ok && string(p.Values["n"]) != "0" {
			t.Errorf("a field that the answer lacks: got %s, want the empty value of its type", p.Values["n"])
		}
	}
}

// Patches narrow and hint. They never begin a turn that is ignored, and name only contexts that exist.
func TestPatchesNeverWiden(t *testing.T) {
	by := eliza.Item{Module: "m", Name: "h"}
	p := eliza.Plan{Decision: eliza.Ignore}
	p.Apply(by, json.RawMessage(`{"processMessage":"RESPOND"}`), nil)
	if p.Route() != eliza.RouteNone || len(p.Trace) != 1 {
		t.Errorf("an ignored turn after RESPOND: got %s with %v, want it ignored, and a line about it", p.Route(), p.Trace)
	}
	p = eliza.Plan{Decision: eliza.Respond, Reply: "mine"}
	p.Apply(by, json.RawMessage(`{"addContexts":["x","other"],"addCandidateActions":["A","a","B"],"requiresTool":true,"debug":["one\ntwo"]}`), []string{"x"})
	if !slices.Equal(p.Contexts, []string{"x"}) || !slices.Equal(p.Candidates, []string{"A", "B"}) || p.Route() != eliza.RouteTools || p.Foreign {
		t.Errorf("the plan: got %+v, want context x, candidates A and B, with tools", p)
	}
	p.Apply(by, json.RawMessage(`{"simple":true,"reply":"theirs"}`), nil)
	if p.Route() != eliza.RouteReply || p.Reply != "theirs" || !p.Foreign {
		t.Errorf("the plan: got %+v, want the foreign reply", p)
	}
	before := p.Reply
	p.Apply(by, json.RawMessage(`{"reply":7}`), nil)
	p.Apply(by, json.RawMessage(`{"addContexts":`+strings.Repeat("[", 5000)), nil)
	if p.Reply != before {
		t.Errorf("after malformed patches: got %q, want %q", p.Reply, before)
	}
	for range 1000 {
		p.Apply(by, json.RawMessage(`{"debug":["`+strings.Repeat("x", 5000)+`"],"addContextSlices":["`+fmt.Sprint(len(p.Trace))+`"]}`), nil)
	}
	if len(p.Trace) > 64 || len(p.Slices) > 32 || len(strings.Join(p.Trace, "")) > 64*400 {
		t.Errorf("after 1,000 patches: got %d lines and %d slices, want both bounded", len(p.Trace), len(p.Slices))
	}
	p.Apply(by, json.RawMessage(`{"processMessage":"STOP"}`), nil)
	if p.Route() != eliza.RouteNone {
		t.Errorf("after STOP: got %s, want no reply", p.Route())
	}
}

func TestEffectsOfFields(t *testing.T) {
	s := set(t, `{"id":"m","name":"m","responseHandlerFieldEvaluators":[{"name":"mood","description":"d","schema":{"type":"string"}}]}`)
	effect := func(doc string) eliza.Plan {
		p, _ := eliza.NewPlan(`{"replyText":"Hi"}`, s.Fields, nil)
		var e eliza.Effect
		if err := jsonx.Unmarshal([]byte(doc), &e); err != nil {
			t.Fatalf("effect: got %v, want no error", err)
		}
		p.ApplyEffect(s.Fields[0], e, s.Fields, nil)
		return p
	}
	if p := effect(`{"patch":{"mood":"calm","requiresTool":true}}`); string(p.Values["mood"]) != `"calm"` || p.Route() != eliza.RouteTools {
		t.Errorf("a patch: got %+v, want the field's value and tools", p)
	}
	for doc, want := range map[string]eliza.Route{
		`{"preempt":{"mode":"ignore","reason":"r"}}`:                                     eliza.RouteNone,
		`{"preempt":{"mode":"ack-and-stop","reason":"r"}}`:                               eliza.RouteReply,
		`{"patch":{"replyText":""},"preempt":{"mode":"ack-and-stop","reason":"r"}}`:      eliza.RouteNone,
		`{"patch":{"requiresTool":true},"preempt":{"mode":"direct-reply","reason":"r"}}`: eliza.RouteReply,
		`{"patch":{"shouldRespond":"IGNORE"}}`:                                           eliza.RouteNone,
		`{"preempt":{"mode":"become-admin","reason":"r"}}`:                               eliza.RouteReply,
	} {
		if p := effect(doc); p.Route() != want {
			t.Errorf("%s: got %s, want %s", doc, p.Route(), want)
		}
	}
}

func TestEvaluatorsShareOneAnswer(t *testing.T) {
	s := set(t, `{"id":"a","name":"a","evaluators":[{"name":"facts","description":"d","prompt":"List facts.","schema":{"type":"array"}}]}`,
		`{"id":"b","name":"b","evaluators":[{"name":"facts","description":"d","prompt":"Again.","schema":{}},{"name":"mood","description":"d","prompt":"Mood.","schema":{}}]}`)
	var sections []eliza.Section
	for _, e := range s.Evaluators {
		sections = append(sections, eliza.Section{Evaluator: e, Prepared: json.RawMessage(`{"p":1}`)})
	}
	prompt := eliza.Merge(sections)
	for _, want := range []string{"### a/facts\nList facts.\nSchema: {\"type\":\"array\"}", "### b/facts", "### mood\nMood.", `Prepared: {"p":1}`} {
		if !strings.Contains(prompt, want) {
			t.Errorf("the prompt: got %s, want %q in it", prompt, want)
		}
	}
	got := eliza.Split(sections, "Here: {\"a/facts\":[1],\"mood\":\"calm\",\"other\":2}")
	if string(got[0]) != "[1]" || got[1] != nil || string(got[2]) != `"calm"` {
		t.Errorf("Split: got %s, want [1], nothing and calm", got)
	}
	if got := eliza.Split(sections, "I will not."); got[0] != nil || got[2] != nil {
		t.Errorf("Split of a text: got %s, want nothing", got)
	}
}
