package verbs_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/taskagents/agents"
	"github.com/junctor-run/junctor/internal/taskagents/launch"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
	"github.com/junctor-run/junctor/internal/taskagents/verbs"
)

// done ends a session of the fleet and the registry.
func (r *rig) done(at int, summary string) {
	r.Helper()
	r.fleet.set(at, func(i *agents.Info) { i.Status = detect.Stopped })
	if _, err := r.registry.UpdateSession(r.Context(), r.fleet.infos[at].ID, func(s *row.Session) {
		s.Status, s.CompletionSummary = row.SessionCompleted, summary
	}); err != nil {
		r.Fatal(err)
	}
}

func TestControlOfATask(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.fails(call(""), "TASK_CONTROL", `{"operation":"pause"}`, verbs.ThreadNotFound)
	_, data := r.ok(call(""), "CREATE_TASK", `{"task":"write the parser"}`)
	thread, session := data["threadId"].(string), r.fleet.infos[0].ID
	other := verbs.Call{By: agent, Session: "other"}
	for _, c := range []struct {
		call         verbs.Call
		name, params string
		want         launch.Control
	}{
		{call(""), "TASK_CONTROL", `{"operation":"Pause"}`, launch.Control{Operation: launch.Pause}},
		{call(""), "control_task", `{"action":"archive"}`, launch.Control{Operation: launch.Archive}},
		{
			call(""), "RESUME_TASK", `{"note":"stop it later","agentType":"openai"}`,
			launch.Control{Operation: launch.Resume, Note: "stop it later", AgentType: "codex"},
		},
		{other, "STOP_TASK", `{"search":"PARSER","note":"cancel it"}`, launch.Control{Operation: launch.Stop, Note: "cancel it"}},
		{other, "PAUSE_TASK", `{"sessionId":"` + session + `"}`, launch.Control{Operation: launch.Pause}},
		{
			other, "TASK_CONTROL", `{"threadId":"` + thread + `","operation":"continue","instruction":"add tests"}`,
			launch.Control{Operation: launch.Continue, Instruction: "add tests"},
		},
	} {
		r.ok(c.call, c.name, c.params)
		c.want.ThreadID = thread
		if got := r.launcher.asked[len(r.launcher.asked)-1]; got != c.want {
			t.Errorf("%s %s: %+v; want got = %v", c.name, c.params, got, c.want)
		}
	}
	n := len(r.launcher.asked)
	r.fails(call(""), "TASK_CONTROL", `{"operation":"explode"}`, verbs.InvalidOperation)
	r.fails(call(""), "TASK_CONTROL", `{"operation":"explode","note":"pause"}`, verbs.InvalidOperation)
	r.fails(call("please stop"), "TASK_CONTROL", `{"note":"stop"}`, verbs.InvalidOperation)
	r.fails(call(""), "PAUSE_TASK", `{"search":"compiler"}`, verbs.ThreadNotFound)
	r.fails(call(""), "PAUSE_TASK", `{"sessionId":"pty-1-00000099"}`, verbs.ThreadNotFound)
	r.fails(call(""), "RESUME_TASK", `{"agentType":"clippy"}`, verbs.AgentNotInstalled)
	if len(r.launcher.asked) != n {
		t.Errorf("%+v; want len(r.launcher.asked) = %v", r.launcher.asked[n:], n)
	}
}

func TestWhatWasDone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	zone := time.FixedZone("", 13*3600) // where it is the 23rd already
	today := r.now
	for i, task := range []struct {
		task string
		back time.Duration
		done bool
	}{{"write the parser", 20 * 24 * time.Hour, true}, {"write the printer", 26 * time.Hour, true}, {"write the docs", 0, false}} {
		r.now = today.Add(-task.back)
		r.ok(call(""), "CREATE_TASK", `{"task":"`+task.task+`"}`)
		if task.done {
			r.done(i, "it is there")
		}
	}
	r.now = today
	count := func(c verbs.Call, params string) float64 {
		r.Helper()
		_, data := r.ok(c, "COUNT_TASKS", params)
		return data["count"].(float64)
	}
	there := call("")
	there.Zone = zone
	for params, want := range map[string]float64{
		`{}`: 3, `{"window":"active"}`: 1, `{"window":"today"}`: 1, `{"window":"yesterday"}`: 1, `{"window":"last_7_days"}`: 2,
		`{"window":"last_30_days"}`: 3,
		`{"statuses":["done"]}`:     2, `{"statuses":"done, active"}`: 3, `{"search":"printer"}`: 1, `{"window":"active","statuses":["DONE"]}`: 2,
	} {
		if got := count(call(""), params); got != want {
			t.Errorf("%s: %v; want got = %v", params, got, want)
		}
	}
	// Noon of the 22nd is an hour past midnight of the 23rd there; 26 hours before was the 21st.
	if got := [2]float64{count(there, `{"window":"today"}`), count(there, `{"window":"yesterday"}`)}; got != [2]float64{1, 0} {
		t.Errorf("%v; want got = [2]float64{1, 0}", got)
	}
	if got, data := r.ok(call(""), "TASK_HISTORY", `{"metric":"count","window":"yesterday"}`); data["metric"] != "count" ||
		got.Text != "1 task of yesterday." {
		t.Errorf(`%+v; want data["metric"] = "count", got.Text = "1 task of yesterday."`, got)
	}
	got, data := r.ok(call(""), "SHOW_TASKS", `{"limit":2}`)
	list := data["threads"].([]any)
	if len(list) != 2 || list[0].(map[string]any)["title"] != "write the docs" ||
		!strings.HasPrefix(got.Text, "2 tasks.\n- write the docs: active") {
		t.Errorf(`%+v; want len(list) = 2, list[0].(map[string]any)["title"] = "write the docs", got.Text beginning with "2 `+
			`tasks.\n- write the docs: active"`, got)
	}
	if _, err := r.registry.UpdateSession(t.Context(), r.fleet.infos[0].ID, func(s *row.Session) {
		s.Metadata, s.OriginalTask = row.WithMeta(s.Metadata, row.ResumeToken, "resume-me"), strings.Repeat("long ", 1_000)
	}); err != nil {
		t.Fatal(err)
	}
	got, data = r.ok(call(""), "TASK_HISTORY", `{"metric":"detail","search":"parser"}`)
	if text := fmt.Sprint(data); strings.Contains(text, "resume-me") || len(text) > 6_000 {
		t.Errorf(`%d: %s; want text without "resume-me", len(text) at most 6_000`, len(text), text)
	}
	detail := data["threads"].([]any)[0].(map[string]any)
	if len(detail["sessions"].([]any)) != 1 || len(detail["nodes"].([]any)) != 2 || !strings.Contains(got.Text, "it is there") {
		t.Errorf(`%+v; want len(detail["sessions"].([]any)) = 1, len(detail["nodes"].([]any)) = 2, got.Text with "it is there"`, got)
	}
	if _, data = r.ok(call(""), "TASK_HISTORY", `{"threadId":"`+detail["threadId"].(string)+`"}`); data["metric"] != "detail" {
		t.Errorf(`%v; want data["metric"] = "detail"`, data)
	}
	if got, _ = r.ok(call(""), "TASK_HISTORY", `{"metric":"detail","search":"compiler"}`); got.Text != "0 tasks." {
		t.Errorf(`%+v; want got.Text = "0 tasks."`, got)
	}
	for params, want := range map[string]verbs.Code{
		`{"metric":"sum"}`: verbs.MissingParams, `{"window":"tomorrow"}`: verbs.MissingParams, `{"statuses":["better"]}`: verbs.MissingParams,
		`{"threadId":"nope"}`: verbs.ThreadNotFound,
	} {
		r.fails(call(""), "TASK_HISTORY", params, want)
	}
}

func TestWhatCanBeShown(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.fails(call(""), "TASK_SHARE", `{}`, verbs.ThreadNotFound)
	folder := r.dir + "/site"
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	_, data := r.ok(call(""), "CREATE_TASK", `{"task":"write a page","workdir":"`+folder+`"}`)
	r.done(0, "See http://127.0.0.1:4000/index.html and file:///etc/passwd")
	other := verbs.Call{By: agent, Session: "other"}
	for _, c := range []verbs.Call{call(""), other} {
		got, shared := r.ok(c, "CAN_I_SEE_IT", `{}`)
		if shared["threadId"] != data["threadId"] || !strings.Contains(got.Text, "http://127.0.0.1:4000/index.html") ||
			!strings.Contains(got.Text, folder) || strings.Contains(got.Text, "passwd") {
			t.Errorf(`%+v; want shared["threadId"] = data["threadId"], got.Text with "http://127.0.0.1:4000/index.html", `+
				`got.Text with %v, got.Text without "passwd"`, got, folder)
		}
	}
	// What was found is recorded, once.
	if _, detail := r.ok(call(""), "TASK_HISTORY", `{"threadId":"`+data["threadId"].(string)+
		`"}`); len(detail["threads"].([]any)[0].(map[string]any)["artifacts"].([]any)) != 2 {
		t.Errorf(`%v; want len(detail["threads"].([]any)[0].(map[string]any)["artifacts"].([]any)) = 2`, detail)
	}
	r.ok(other, "CREATE_TASK", `{"task":"think","workdir":"/nowhere"}`)
	_, shared := r.fails(other, "TASK_SHARE", `{"search":"think"}`, verbs.NoShareTarget)
	if len(shared["targets"].([]any)) != 0 {
		t.Errorf(`%v; want len(shared["targets"].([]any)) = 0`, shared)
	}
}
