package verbs_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/actions"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/core/catalog/search"
	"github.com/junctor-run/junctor/internal/taskagents/verbs"
	"github.com/junctor-run/junctor/internal/testkit/catalogtest"
)

// published is what the functions are in a catalog.
func published(t *testing.T, functions []verbs.Function) capability.Batch {
	t.Helper()
	m := capability.Module{Extension: "core", ID: "core", Name: "core", Label: "core", Origin: "core"}
	for _, f := range functions {
		f.Member = capability.Member{Module: "core", Kind: "function", Name: f.ID}
		if f.Availability.State == "" {
			f.Availability.State = capability.StateReady
		}
		m.Contributions = append(m.Contributions, f.Contribution)
	}
	return capability.Batch{Source: "core", Modules: []capability.Module{m}}
}

func TestTheVerbsAreFoundByWhatPeopleCallThem(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := catalogtest.New(t)
	if _, _, err := c.Replace(published(t, verbs.Functions(r.service))); err != nil {
		t.Fatal(err)
	}
	if rejected := c.Snapshot().Rejected(); len(rejected) != 0 {
		t.Fatalf("len(rejected) = %v, want 0; rejected = %v", len(rejected), rejected)
	}
	agent, err := compile.New(c).Compile(&capability.Context{}), error(nil)
	if err != nil || agent.Len() != 11 {
		t.Fatalf("%d actions, %v; want no error, agent.Len() = 11", agent.Len(), err)
	}
	index := new(search.Index)
	for _, row := range verbs.Table() {
		registered, ok := actions.Lookup(row.Action)
		if !ok || registered.Effect != row.Effect || !slices.Contains(registered.Aliases, string(row.Name)) {
			t.Errorf("%s: %+v; want ok = true, registered.Effect = %v, registered.Aliases with %v",
				row.Action, registered, row.Effect, string(row.Name))
		}
		for _, name := range append([]string{string(row.Name)}, row.Aliases...) {
			if hits := index.Search(agent, name, 3, compile.Spelling{}, nil); len(hits) == 0 ||
				!slices.ContainsFunc(hits, func(h search.Hit) bool { return h.Action.Canonical == row.Action }) {
				t.Errorf("%s does not find %s", name, row.Action)
			}
		}
	}
	for query, want := range map[string]capability.Action{
		"delegate coding": "task-agent.task.create", "open a pull request": "workspace.finalize", "clone repository": "workspace.provision",
		"what was done yesterday history": "task-agent.task.history",
	} {
		if hits := index.Search(agent, query, 1, compile.Spelling{}, nil); len(hits) == 0 || hits[0].Action.Canonical != want {
			t.Errorf("%q finds %v; want len(hits) other than 0, hits[0].Action.Canonical = %v", query, hits, want)
		}
	}
}

// Every parameter that a verb reads is in its schema, so that strict callers can give it.
func TestSchemasAreTheVerbsOwn(t *testing.T) {
	t.Parallel()
	want := map[verbs.Name]string{
		verbs.CreateTask:  "acceptanceCriteria agentType agents approvalPreset baseBranch label maxRetries memoryContent metadata onVerificationFail repo reuseRepo task validator workdir",
		verbs.SpawnAgent:  "agentType approvalPreset keepAliveAfterComplete label memoryContent task workdir",
		verbs.SendToAgent: "input keys label sessionId task",
		verbs.ListAgents:  "", verbs.StopAgent: "all sessionId",
		verbs.TaskControl: "agentType instruction note operation search sessionId threadId",
		verbs.TaskHistory: "includeArchived limit metric search sessionId statuses threadId window", verbs.TaskShare: "search sessionId threadId",
		verbs.ProvisionWorkspace: "baseBranch branchName label parentWorkspaceId repo useWorktree",
		verbs.FinalizeWorkspace:  "baseBranch commitMessage draft prBody prTitle skipPR workspaceId",
		verbs.ManageIssues:       "body issueNumber labels limit operation repo state title",
	}
	for _, row := range verbs.Table() {
		registered, _ := actions.Lookup(row.Action)
		var schema struct {
			Properties map[string]json.RawMessage `json:"properties"`
			Additional *bool                      `json:"additionalProperties"`
		}
		if err := json.Unmarshal(registered.InputSchema, &schema); err != nil || schema.Additional == nil || *schema.Additional {
			t.Errorf("%s: %v", row.Action, err)
		}
		var names []string
		for name := range schema.Properties {
			names = append(names, name)
		}
		slices.Sort(names)
		if got := strings.Join(names, " "); got != want[row.Name] {
			t.Errorf("%s: %s; want got = want[row.Name]", row.Name, got)
		}
	}
}

func TestSchemasTakeEveryFormOfAParameter(t *testing.T) {
	t.Parallel()
	for action, inputs := range map[capability.Action]map[string]bool{
		"task-agent.task.create": {
			`{"task":"x"}`: true, `{"agents":"a | b"}`: true, `{"agents":["a",{"task":"b","agentType":"codex","label":"l","dependsOn":[0]}]}`: true,
			`{"task":""}`: false, `{"agents":[{"label":"l"}]}`: false, `{"agents":7}`: false, `{"task":"x","prompt":"y"}`: false,
			`{"validator":{"service":"s"}}`: false, `{"maxRetries":-1}`: false,
		},
		"task-agent.send":         {`{"keys":"enter"}`: true, `{"keys":["down","enter"]}`: true, `{"keys":7}`: false},
		"task-agent.task.control": {`{"operation":"pause","search":"x"}`: true, `{"operation":"explode"}`: false},
		"task-agent.task.history": {`{"statuses":"done","window":"today"}`: true, `{"window":"tomorrow"}`: false, `{"limit":0}`: false},
		"workspace.issues.manage": {`{"labels":["a"],"state":"all"}`: true, `{"issueNumber":0}`: false},
	} {
		registered, _ := actions.Lookup(action)
		schema, err := catalog.CompileSchema(registered.InputSchema)
		if err != nil {
			t.Fatalf("err = %v, want nil; action = %q", err, action)
		}
		for input, want := range inputs {
			if err := schema.Check([]byte(input)); (err == nil) != want {
				t.Errorf("%s %s: %v; want (err == nil) = %v", action, input, err, want)
			}
		}
	}
}

func TestACallOfTheCatalog(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, f := range verbs.Functions(r.service) {
		if f.Action != "task-agent.task.create" {
			continue
		}
		out, err := f.Do(t.Context(), capability.Call{
			Principal: agent, Session: "s", Context: &capability.Context{},
			Input: json.RawMessage(`{"task":"fix it"}`),
		})
		if err != nil || !strings.HasPrefix(string(out), `{"success":true,"text":"","data":{"threadId":"`) ||
			!strings.HasSuffix(string(out), `"task":"tsk_1"}`) {
			t.Errorf("%s %v; want no error, string(out) beginning with "+
				`"{\"success\":true,\"text\":\"\",\"data\":{\"threadId\":\"", string(out) ending with "\"task\":\"tsk_1\"}"`, out, err)
		}
		// A failure is the call's, and has the verb's own code and data beside.
		_, err = f.Do(t.Context(), capability.Call{
			Principal: agent, Context: &capability.Context{},
			Input: json.RawMessage(`{"task":"x","reuseRepo":true}`),
		})
		if e := capability.AsError(err); e.Code != capability.CodeInvalidInput || e.Reason != "missing_repo" ||
			e.Details["error"] != verbs.MissingRepo {
			t.Errorf(`%#v; want e.Code = capability.CodeInvalidInput, e.Reason = "missing_repo", e.Details["error"] = verbs.MissingRepo`,
				err)
		}
	}
	none := verbs.Functions(nil)
	if len(none) != 11 {
		t.Errorf("%d; want len(none) = 11", len(none))
	}
	for _, f := range none {
		if f.Availability.Eligible() || f.Availability.Reason != verbs.Unavailable {
			t.Errorf("%s: %+v; want not f.Availability.Eligible(), f.Availability.Reason = verbs.Unavailable", f.ID, f.Availability)
		}
		if _, err := f.Do(t.Context(), capability.Call{}); capability.CodeOf(err) != capability.CodeUnavailable {
			t.Errorf("%s: %v; want capability.CodeOf(err) = capability.CodeUnavailable", f.ID, err)
		}
	}
}

func TestWhatACallTellsOfItsUser(t *testing.T) {
	t.Parallel()
	meta := `{"user_role":"USER","userId":"u","room_id":"r","worldId":"w","connector":"slack","time_zone":"Asia/Tokyo","message":"do it","messages":["a",7,"b"],"progressToken":1}`
	got := verbs.Told(capability.Call{Principal: agent, Session: "s", Meta: json.RawMessage(meta), Context: &capability.Context{}})
	if got.UserRole != "USER" || got.UserID != "u" || got.RoomID != "r" || got.WorldID != "w" || got.Connector != "slack" ||
		got.Zone.String() != "Asia/Tokyo" || got.Message != "do it" || !slices.Equal(got.Recent, []string{"a", "b"}) || got.Session != "s" {
		t.Errorf("%+v", got)
	}
	// The channel that we know ourselves is not the agent's to say; an unknown role stays unknown.
	got = verbs.Told(capability.Call{
		Meta:    json.RawMessage(`{"connector":"slack","user_role":7,"time_zone":"../../etc/passwd"}`),
		Context: &capability.Context{Route: &capability.Route{Kind: "discord", Conversation: "c"}},
	})
	if got.Connector != "discord" || got.RoomID != "c" || got.UserRole == "" || got.Zone != nil {
		t.Errorf(`%+v; want got.Connector = "discord", got.RoomID = "c", got.UserRole other than "", got.Zone = nil`, got)
	}
	if got = verbs.Told(capability.Call{
		Meta:    json.RawMessage(`[`),
		Context: &capability.Context{Adapter: &capability.Adapter{Kind: "telegram"}},
	}); got.Connector != "telegram" {
		t.Errorf(`%+v; want got.Connector = "telegram"`, got)
	}
}

func FuzzTold(f *testing.F) {
	f.Add([]byte(`{"user_role":"USER","messages":["a"],"time_zone":"UTC"}`))
	f.Fuzz(func(t *testing.T, meta []byte) {
		got := verbs.Told(capability.Call{Meta: meta, Context: &capability.Context{}})
		if len(got.Recent) > verbs.MaxRecent || len(got.Message) > verbs.MaxMessage || len([]rune(got.UserRole)) > 128 {
			t.Errorf("%+v; want len(got.Recent) at most verbs.MaxRecent, len(got.Message) at most verbs.MaxMessage, "+
				"len([]rune(got.UserRole)) at most 128", got)
		}
	})
}

// A conversation that is not continued is forgotten for others.
func TestConversationsAreBounded(t *testing.T) {
	t.Parallel()
	var talks verbs.Talks
	of := func(i int) verbs.Call { return verbs.Call{By: agent, Session: strings.Repeat("x", i)} }
	talks.Remember(of(1), func(t *verbs.Talk) { t.Repo = "first" })
	for i := range 1000 {
		if i == 500 {
			talks.Remember(of(1), func(t *verbs.Talk) { t.ThreadID = "used" })
		}
		talks.Remember(of(i+2), func(t *verbs.Talk) { t.Repo = "r" })
	}
	if got := talks.Last(of(1)); got.Repo != "first" || got.ThreadID != "used" {
		t.Errorf(`%+v; want got.Repo = "first", got.ThreadID = "used"`, got)
	}
	if got := talks.Last(of(2)); got != (verbs.Talk{}) {
		t.Errorf("%+v; want got = (verbs.Talk{})", got)
	}
	if got := talks.Last(verbs.Call{By: capability.Principal{ID: "agent:b"}, Session: "x"}); got != (verbs.Talk{}) {
		t.Errorf("another principal's conversation; got got = %v; want got = (verbs.Talk{})", got)
	}
	talks.Remember(verbs.Call{By: agent}, func(t *verbs.Talk) { t.Repo = "r" })
	if got := talks.Last(verbs.Call{By: agent}); got != (verbs.Talk{}) {
		t.Errorf("a call without a conversation leaves something; got got = %v; want got = (verbs.Talk{})", got)
	}
}
