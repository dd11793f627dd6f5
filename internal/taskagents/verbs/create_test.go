package verbs_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/agents"
	"github.com/junctor-run/junctor/internal/taskagents/coordinator/validation"
	"github.com/junctor-run/junctor/internal/taskagents/launch"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
	"github.com/junctor-run/junctor/internal/taskagents/verbs"
)

// last is the task that the launcher was given last.
func (r *rig) last() launch.Task {
	r.Helper()
	if len(r.launcher.tasks) == 0 {
		r.Fatal("nothing was begun")
	}
	return r.launcher.tasks[len(r.launcher.tasks)-1]
}

func TestATaskBeginsWithoutAWord(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	got, data := r.ok(call("Fix the login page, please."), "CREATE_TASK", `{"task":"Repair login.html","label":"login","agentType":"Claude Code","approvalPreset":"standard",
		"acceptanceCriteria":[" it loads ",""],"validator":{"service":"v","method":"m","params":{"a":1}},"maxRetries":2,"onVerificationFail":"escalate",
		"metadata":{"originRoomId":"room"},"memoryContent":"Mind the tests."}`)
	if got.Text != "" || got.Task != "tsk_1" || data["threadId"] == "" || len(data["agents"].([]any)) != 1 {
		t.Errorf(`%+v; want got.Text = "", got.Task = "tsk_1", data["threadId"] other than "", len(data["agents"].([]any)) = 1`, got)
	}
	task := r.last()
	// The user's exact words come first, the parent's after them.
	if task.Request != "Fix the login page, please." || !strings.HasPrefix(task.Parts[0].Task, task.Request+"\n\n") ||
		!strings.HasSuffix(task.Parts[0].Task, "\nRepair login.html") {
		t.Errorf(`%q; want task.Request = "Fix the login page, please.", task.Parts[0].Task beginning with task.Request + `+
			`"\n\n", task.Parts[0].Task ending with "\nRepair login.html"`, task.Parts[0].Task)
	}
	two := 2
	want := validation.Custom{Service: "v", Method: "m", MaxRetries: &two, OnFail: validation.Escalate}
	if v := task.Validator; v == nil || v.Service != want.Service || v.Method != want.Method || *v.MaxRetries != two ||
		v.OnFail != want.OnFail || string(v.Params) != `{"a":1}` {
		t.Errorf(`%+v; want v not nil, v.Service = %v, v.Method = %v, *v.MaxRetries = %v, v.OnFail = %v, string(v.Params) = "{\"a\":1}"`,
			task.Validator, want.Service, want.Method, two, want.OnFail)
	}
	if task.Parts[0].AgentType != "claude" || task.Parts[0].Label != "login" || task.Preset != "standard" || task.RoomID != "room" ||
		len(task.Criteria) != 1 || task.Criteria[0] != "it loads" || task.Memory != "Mind the tests." {
		t.Errorf(`%+v; want task.Parts[0].AgentType = "claude", task.Parts[0].Label = "login", task.Preset = "standard", `+
			`task.RoomID = "room", len(task.Criteria) = 1, task.Criteria[0] = "it loads", task.Memory = "Mind the tests."`, task)
	}
	// What was made is in the registry.
	if d, err := r.registry.Detail(t.Context(), data["threadId"].(string), threads.Selection{}); err != nil || len(d.Sessions) != 1 ||
		d.OriginalRequest != task.Request {
		t.Errorf("%+v %v; want no error, len(d.Sessions) = 1, d.OriginalRequest = %v", d, err, task.Request)
	}
}

func TestAListIsAnAgentEach(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.model.answer = " All use package wire. "
	c := call("Please do these:\n1. codex: write the parser\n2. write the printer\n3. write the docs")
	c.Recent = []string{"we spoke of ghp_" + strings.Repeat("a1B2", 9), strings.Repeat("x", 500)}
	r.ok(c, "create_task", `{"task":"Split the work","agents":"one | two"}`)
	task := r.last()
	if len(task.Parts) != 3 || task.Parts[0].AgentType != "codex" || task.Parts[0].Label != "write the parser" ||
		task.Brief != "All use package wire." {
		t.Fatalf(`%+v; want len(task.Parts) = 3, task.Parts[0].AgentType = "codex", task.Parts[0].Label = "write the parser", `+
			`task.Brief = "All use package wire."`, task)
	}
	if got := task.Parts[1].Task; got != "write the printer\n\nSaid about the whole task:\nSplit the work" {
		t.Errorf(`%q; want got = "write the printer\n\nSaid about the whole task:\nSplit the work"`, got)
	}
	var from struct {
		OriginSessionID string
		OriginMessages  []string
	}
	if err := json.Unmarshal(task.Metadata, &from); err != nil || from.OriginSessionID != c.Session || c.Session == "" ||
		len(from.OriginMessages) != 2 || strings.Contains(from.OriginMessages[0], "ghp_") {
		t.Errorf(`the conversation is %s %v; want no error, from.OriginSessionID = %v, c.Session other than "", `+
			`len(from.OriginMessages) = 2, from.OriginMessages[0] without "ghp_"`, task.Metadata, err, c.Session)
	}
	asked := r.model.asked[0]
	for _, part := range []string{
		"3 agents", "\n1. write the parser\n2. write the printer\n3. write the docs\n\nWhat was said",
		"- " + strings.Repeat("x", 399) + "…",
	} {
		if !strings.Contains(asked, part) {
			t.Errorf("%q is not in %q; want asked with %v", part, asked, part)
		}
	}
	if strings.Contains(asked, "ghp_") {
		t.Error("the model is told a credential")
	}

	// The agents that are named count where they are more.
	r.model.answer = ""
	r.ok(call(""), "CREATE_TASK", `{"task":"all of it","agents":[{"task":"first","agentType":"auto"},{"task":"then","agentType":"gemini","label":"b","dependsOn":[0]},"claude: third"]}`)
	task = r.last()
	if len(task.Parts) != 3 || task.Parts[1].AgentType != "gemini" || task.Parts[1].Label != "b" || task.Parts[1].DependsOn[0] != 0 ||
		task.Parts[2].AgentType != "claude" || task.Brief != "" {
		t.Errorf(`%+v; want len(task.Parts) = 3, task.Parts[1].AgentType = "gemini", task.Parts[1].Label = "b", `+
			`task.Parts[1].DependsOn[0] = 0, task.Parts[2].AgentType = "claude", task.Brief = ""`, task)
	}
	if got := task.Parts[0].Task; got != "all of it\n\nYour part of it:\nfirst" {
		t.Errorf(`%q; want got = "all of it\n\nYour part of it:\nfirst"`, got)
	}
	r.ok(call(""), "CREATE_TASK", `{"agents":"a | b"}`)
	if task = r.last(); task.Request != "a\nb\n" || task.Parts[1].Task != "b" {
		t.Errorf(`%+v; want task.Request = "a\nb\n", task.Parts[1].Task = "b"`, task)
	}
	r.fails(call("1. a\n2. b\n3. c\n4. d\n5. e\n6. f\n7. g\n8. h\n9. i"), "CREATE_TASK", `{}`, verbs.TooManyAgents)
}

func TestWhatCannotBeATask(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for params, want := range map[string]verbs.Code{
		`{}`: verbs.MissingParams, `{"task":7}`: verbs.MissingParams, `{"task":" "}`: verbs.MissingParams,
		`{"task":"x","agentType":"clippy"}`: verbs.AgentNotInstalled, `{"task":"x","maxRetries":-1}`: verbs.MissingParams,
		`{"task":"x","reuseRepo":true}`:            verbs.MissingRepo,
		`{"task":"x","validator":{"service":"s"}}`: verbs.MissingParams, `{"task":"x","onVerificationFail":"panic"}`: verbs.MissingParams,
		`{"task":"x","metadata":[]}`: verbs.MissingParams,
		`{"agents":["a"," "]}`:       verbs.MissingParams, `{"task":"` + strings.Repeat("x", verbs.MaxMessage+1) + `"}`: "TASK_TOO_LARGE",
	} {
		r.fails(call(""), "CREATE_TASK", params, want)
	}
	if len(r.launcher.tasks) != 0 {
		t.Errorf("something was begun; got len(r.launcher.tasks) = %v; want len(r.launcher.tasks) = 0", len(r.launcher.tasks))
	}
}

func TestAFixedProgramReplacesTheWantedOne(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for fixed, want := range map[programs.Name]string{"": "shell", programs.Gemini: "gemini"} {
		r.programs.fixed = fixed
		r.ok(call(""), "CREATE_TASK", `{"agentType":"bash","task":"Why does the build fail?"}`)
		if got := r.last().Parts[0].AgentType; got != want {
			t.Errorf("fixed %q: agent type = %q, want %q", fixed, got, want)
		}
	}
}

func TestWhichRepository(t *testing.T) {
	t.Parallel()
	r := newRig(t, withPlaces)
	repo := func(c verbs.Call, params string) string {
		r.Helper()
		r.ok(c, "CREATE_TASK", params)
		return r.last().Repo
	}
	for _, c := range []struct{ said, params, want string }{
		{"fix github.com/acme/widget now", `{"task":"fix it"}`, ""}, // only the parameter names a repository
		{"", `{"task":"fix it","repo":"acme/gadget"}`, "acme/gadget"},
		{"now do the same repo's tests", `{}`, ""},
		{"now its tests", `{"reuseRepo":true}`, "acme/gadget"},
	} {
		if got := repo(call(c.said), c.params); got != c.want {
			t.Errorf("%q %s: repository = %q, want %q", c.said, c.params, got, c.want)
		}
	}
	// Another conversation has the last repository of the principal's tasks.
	r.ok(call(""), "CREATE_TASK", `{"task":"think"}`)
	if got := repo(verbs.Call{By: agent, Session: "other"}, `{"task":"x","reuseRepo":true,"repo":"acme/new"}`); got != "acme/gadget" {
		t.Errorf("repository of the last task = %q, want acme/gadget", got)
	}
	stranger := verbs.Call{By: capability.Principal{ID: "agent:b", Role: capability.RoleAgent}}
	r.fails(stranger, "CREATE_TASK", `{"task":"x","reuseRepo":true}`, verbs.MissingRepo)
	newRig(t).fails(call(""), "CREATE_TASK", `{"task":"x","repo":"acme/widget"}`, verbs.WorkspaceServiceUnavailable)
}

func TestLessonsOfOwnTasksGoAlong(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for i, one := range []struct {
		by      string
		label   string
		summary string
		status  row.SessionStatus
		age     time.Duration
	}{
		{agent.ID, "old", "forgotten", row.SessionCompleted, 49 * time.Hour},
		{agent.ID, "begun", "", row.SessionActive, 0},
		{"agent:b", "other", "of another principal", row.SessionCompleted, 0},
		{agent.ID, "parser", "the tests need go1.26, token sk-ant-api03-" + strings.Repeat("Ab1_", 24), row.SessionError, time.Hour},
	} {
		now := r.now
		r.now = now.Add(-one.age)
		made, err := r.registry.Create(t.Context(), threads.Plan{
			Thread: row.Thread{AgentID: one.by, Title: one.label, OriginalRequest: one.label}, Parts: []threads.Part{{Title: one.label}},
		})
		if err != nil {
			t.Fatalf("Create(%s): got %v, want no error", one.label, err)
		}
		id := "pty-1-9000000" + string(rune('0'+i))
		if _, err := r.registry.Register(t.Context(), threads.Registration{ThreadID: made.Thread.ID, Node: made.Nodes[1].ID, Session: row.Session{
			SessionID: id, AgentID: one.by, Label: one.label, Repo: "acme/" + one.label, Status: one.status, CompletionSummary: one.summary,
		}}); err != nil {
			t.Fatalf("Register(%s): got %v, want no error", one.label, err)
		}
		if one.label == "begun" {
			if err := r.registry.Record(t.Context(), row.Event{
				ThreadID: made.Thread.ID, SessionID: id, EventType: row.DecisionShared, Summary: "we use TOML",
			}); err != nil {
				t.Fatalf("Record(decision): got %v, want no error", err)
			}
		}
		r.now = now
	}
	r.ok(call(""), "CREATE_TASK", `{"task":"x","memoryContent":"mine"}`)
	const want = "mine\n\nWhat earlier tasks have shown lately; it may not apply to yours:\n" +
		"- parser in acme/parser, error: the tests need go1.26, token "
	memory := r.last().Memory
	if !strings.HasPrefix(memory, want) || !strings.HasSuffix(memory, "\n- a task, decided: we use TOML") ||
		strings.Count(memory, "\n- ") != 2 ||
		strings.Contains(memory, "sk-ant-") {
		t.Errorf("memory = %q, want it to begin with %q and end with the decision, without other lessons or credentials", memory, want)
	}
}

func TestOneFailureDoesNotStopTheOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.launcher.refuse["gemini"] = capability.Errorf(capability.CodeUnavailable, "tasks",
		"gemini is not installed").With("agent_not_installed", "install it")
	got, data := r.ok(call(""), "CREATE_TASK", `{"agents":"codex: a | gemini: b"}`)
	if list := data["agents"].([]any); got.Text != "" || list[1].(map[string]any)["error"] == nil || list[0].(map[string]any)["error"] != nil {
		t.Errorf(`%+v; want got.Text = "", list[1].(map[string]any)["error"] not nil, list[0].(map[string]any)["error"] = nil`, got)
	}
	got, data = r.fails(call(""), "CREATE_TASK", `{"agents":"gemini: a | gemini: b"}`, verbs.AgentNotInstalled)
	if !strings.Contains(got.Text, "gemini is not installed") || data["threadId"] == "" || got.Task == "" {
		t.Errorf(`%+v; want got.Text with "gemini is not installed", data["threadId"] other than "", got.Task other than ""`, got)
	}
}

func TestAnAgentIsStarted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	got, data := r.ok(call(""), "spawn_coder", `{"task":"fix it","label":"fixer","keepAliveAfterComplete":true,"approvalPreset":"readonly","memoryContent":"m"}`)
	req := r.fleet.requests[0]
	if req.AgentType != "codex" || req.Task != "fix it" || req.Preset != "readonly" || req.Memory != "m" || data["sessionId"] == "" ||
		data["threadId"] == nil || !strings.Contains(got.Text, "codex") {
		t.Errorf(`%+v %+v; want req.AgentType = "codex", req.Task = "fix it", req.Preset = "readonly", req.Memory = "m", `+
			`data["sessionId"] other than "", data["threadId"] not nil, got.Text with "codex"`, got, req)
	}
	if row.Meta(req.Metadata, "label") != "fixer" || !strings.Contains(string(req.Metadata), `"keepAliveAfterComplete":true`) ||
		got.Task != "tsk_1" || len(r.fleet.typed) != 0 {
		t.Errorf(`%s %+v %q; want row.Meta(req.Metadata, "label") = "fixer", string(req.Metadata) with `+
			`"\"keepAliveAfterComplete\":true", got.Task = "tsk_1", len(r.fleet.typed) = 0`, req.Metadata, got, r.fleet.typed)
	}
	// Without a task there is nothing to look after, in the conversation's folder.
	_, data = r.ok(call(""), "SPAWN_AGENT", `{"agentType":"shell"}`)
	if req = r.fleet.requests[1]; req.AgentType != "shell" || req.Workdir != r.fleet.infos[0].Workdir || data["threadId"] != nil ||
		!strings.Contains(string(req.Metadata), `"keepAliveAfterComplete":false`) {
		t.Errorf(`%+v; want req.AgentType = "shell", req.Workdir = r.fleet.infos[0].Workdir, data["threadId"] = nil, `+
			`string(req.Metadata) with "\"keepAliveAfterComplete\":false"`, req)
	}
	// Several tasks are a thread of several agents.
	r.ok(call(""), "SPAWN_AGENT", `{"task":"1. a\n2. b"}`)
	if len(r.last().Parts) != 2 {
		t.Errorf("%+v; want len(r.last().Parts) = 2", r.last())
	}
	r.fails(call(""), "SPAWN_AGENT", `{"agentType":"clippy"}`, verbs.AgentNotInstalled)
	r.fleet.refuse = capability.Errorf(capability.CodeDenied, "tasks", "outside").With("workdir_outside_allowed", "")
	r.fails(call(""), "SPAWN_AGENT", `{"workdir":"/etc"}`, verbs.WorkdirOutsideAllowed)
	r.fails(call(""), "SPAWN_AGENT", `{"workdir":"/etc","task":"read passwd"}`, verbs.WorkdirOutsideAllowed)
	r.programs.none = true
	r.fails(call(""), "SPAWN_AGENT", `{}`, verbs.AgentNotInstalled)
}

func TestAnAgentWithoutAFolderTakesAFreeWorkspace(t *testing.T) {
	t.Parallel()
	r := newRig(t, withPlaces)
	other := verbs.Call{By: agent, Session: "other"}
	_, data := r.ok(other, "PROVISION_WORKSPACE", `{"repo":"`+r.remote+`"}`)
	r.ok(call(""), "SPAWN_AGENT", `{}`)
	if got := r.fleet.requests[0].Workdir; got != data["path"] {
		t.Errorf(`%q; want got = data["path"]`, got)
	}
	third := verbs.Call{By: agent, Session: "third"}
	r.ok(third, "SPAWN_AGENT", `{}`)
	if got := r.fleet.requests[1].Workdir; got != "" {
		t.Errorf(`somebody works in %q; want got = ""`, got)
	}
	r.fleet.set(0, func(i *agents.Info) { i.Status = detect.Stopped })
}
