package clis

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/platform/scriptedmodel"
	"github.com/junctor-run/junctor/internal/testkit/built"
)

// The plays about decisions of a user.
const (
	playOneQuestion = "PLAY-ONE-QUESTION"
	playForm        = "PLAY-FORM"
	playPlan        = "PLAY-PLAN"
	playThree       = "PLAY-THREE"
)

// TestQuestionsReachTheUser starts the real programs, whose model asks the user or presents a
// plan, with the preset that asks about nothing: the user is asked nevertheless.
func TestQuestionsReachTheUser(t *testing.T) {
	bin, _ := commands(t)
	binary := built.Junctor(t)
	for _, c := range programs() {
		t.Run(c.name, func(t *testing.T) {
			if _, err := os.Stat(filepath.Join(bin, c.binary)); err != nil {
				t.Skipf("%s is not installed; run: make test-agents", c.name)
			}
			r := &run{program: c, plane: newPlane(t, binary, c.files)}
			r.dir = r.workspace(t, "work")
			var err error
			r.fake, err = scriptedmodel.Start(decisionPlays(c.name, filepath.Join(r.home, "workspaces")))
			ok(t, err)
			t.Cleanup(r.fake.Close)
			for _, mode := range []string{"structured", "pty"} {
				t.Run(mode, func(t *testing.T) {
					if c.questions[mode] {
						t.Run("one question", func(t *testing.T) { r.oneQuestion(t, mode) })
					}
					if c.forms[mode] {
						t.Run("a form", func(t *testing.T) { r.form(t, mode) })
					}
					if c.plans[mode] {
						t.Run("a plan", func(t *testing.T) { r.plan(t, mode) })
					}
				})
			}
			if c.three != "" {
				t.Run("3 is the third option on the screen", r.third)
			}
		})
	}
}

func decisionPlays(name, workspaces string) scriptedmodel.Script {
	options := []any{
		map[string]any{"label": "Apples", "description": "They are red."},
		map[string]any{"label": "Pears", "description": "They are green."},
	}
	question := map[string]any{"question": "Which fruit?", "header": "Fruit", "options": options, "multiSelect": false, "id": "fruit"}
	more := map[string]any{
		"question": "Which colours?", "header": "Colours", "multiSelect": true, "id": "colours",
		"options": []any{
			map[string]any{"label": "Red", "description": "As blood."},
			map[string]any{"label": "Blue", "description": "As the sky."},
			map[string]any{"label": "Grey", "description": "As stone."},
		},
	}
	if name == "gemini" || name == "qwen" {
		question["type"], more["type"], more["multiSelect"] = "choice", "choice", true
	}
	names := []string{"AskUserQuestion", "request_user_input", "ask_user", "ask_user_question", "question"}
	call := func(list ...any) *scriptedmodel.Call {
		return &scriptedmodel.Call{Names: names, Args: map[string]any{"questions": list}}
	}
	return scriptedmodel.Script{
		playOneQuestion: {{Call: call(question)}, {Say: "I see."}},
		playForm:        {{Call: call(question, more)}, {Say: "I see."}},
		playPlan: {
			{Call: &scriptedmodel.Call{Names: []string{"EnterPlanMode", "Read"}, Args: map[string]any{}}},
			{Call: &scriptedmodel.Call{Names: []string{"ExitPlanMode", "exit_plan_mode"}, Args: map[string]any{"plan": "1. Paint the house blue."}}},
			{Write: &scriptedmodel.File{Path: filepath.Join(workspaces, "plan", "painted.txt"), Text: "blue"}},
			{Say: "It is painted."},
		},
		playThree: {{Run: "touch " + filepath.Join(workspaces, "three", "one.txt"), Leave: true}, {Say: "So be it."}},
	}
}

// asked waits for a decision that the user has to make.
func (r *run) asked(t *testing.T, id, kind string) session {
	t.Helper()
	return r.until(t, id, "it asks: "+kind, func(s session) bool {
		if s.Status == "error" || strings.HasPrefix(s.Phase, "failed:") || s.CompletedTurns > 0 {
			t.Fatalf("no %s reached the user: %+v\n%s\nwant s.Status other than \"error\", s.Phase not beginning with \"failed:\", "+
				"s.CompletedTurns at most 0", kind, s, r.picture(t, id))
		}
		return s.Status == "blocked" && s.Blocker.Type == kind && (len(s.Blocker.Options) > 0 || len(s.Blocker.Questions) > 0)
	})
}

// received returns the text of the request that the model received after the answer.
func (r *run) received(t *testing.T, play string, step int) string {
	t.Helper()
	asked := r.fake.Asked(play)
	if len(asked) <= step {
		t.Fatalf("the model was asked %d times, want more than %d", len(asked), step)
	}
	return asked[len(asked)-1].Text
}

type approval struct {
	ID, Kind, State, Session string
	Shown                    struct {
		Choices []struct{ Label string }
	}
}

// approval returns an approval when it has a state.
func (r *run) approval(t *testing.T, id, state string) (a approval) {
	t.Helper()
	var last string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		status, body := r.request(t, "GET", "/api/v1/approvals/"+id, nil)
		last = body
		var out struct{ Approval approval }
		if status == http.StatusOK && json.Unmarshal([]byte(body), &out) == nil && out.Approval.State == state {
			return out.Approval
		}
	}
	t.Fatalf("the approval %s is %s, want it %s", id, last, state)
	return a
}

// approve answers a question as an approval.
func (r *run) approve(t *testing.T, id string, body map[string]any) {
	t.Helper()
	r.approval(t, id, "pending")
	if status, answer := r.request(t, "POST", "/api/v1/approvals/"+id, body); status != http.StatusOK {
		t.Errorf("the answer to the approval %s: %d %s, want 200", id, status, answer)
	}
	r.approval(t, id, "approved")
}

func (r *run) oneQuestion(t *testing.T, mode string) {
	s := r.spawnIn(t, mode, "autonomous", r.dir, "Ask me. "+playOneQuestion, "")
	s = r.asked(t, s.ID, "question")
	if s.Blocker.ID == "" || !strings.Contains(s.Blocker.Prompt, "Which fruit?") {
		t.Errorf("blocker = %+v, want an id and the prompt Which fruit?", s.Blocker)
	}
	if a := r.approval(t, s.Blocker.ID, "pending"); a.Kind != "question" || a.Session != s.ID || len(a.Shown.Choices) < 2 {
		t.Errorf("approval = %+v, want the question of session %s with its choices", a, s.ID)
	}
	r.post(t, s.ID, "answer", map[string]any{"blocker": s.Blocker.ID, "answer": "2"})
	r.approval(t, s.Blocker.ID, "approved")
	r.completed(t, s.ID, 1)
	if got := r.received(t, playOneQuestion, 1); !strings.Contains(got, "Pears") {
		t.Errorf("the model received %q, want the answer Pears", got[max(0, len(got)-600):])
	}
	status, answer := r.request(t, "POST", "/api/coding-agents/"+s.ID+"/answer", map[string]any{"blocker": s.Blocker.ID, "answer": "1"})
	if status != http.StatusConflict {
		t.Errorf("a second answer: %d %s, want 409", status, answer)
	}
	r.stop(t, s.ID)
}

func (r *run) form(t *testing.T, mode string) {
	s := r.spawnIn(t, mode, "autonomous", r.dir, "Ask me. "+playForm, "")
	s = r.asked(t, s.ID, "question")
	if len(s.Blocker.Questions) != 2 {
		t.Fatalf("blocker = %+v, want two questions", s.Blocker)
	}
	answers := map[string]any{s.Blocker.Questions[0].ID: []string{"quinces"}, s.Blocker.Questions[1].ID: []string{"1", "Grey"}}
	if !s.Blocker.Questions[1].Multiple {
		answers[s.Blocker.Questions[1].ID] = []string{"Grey"}
	}
	r.approve(t, s.Blocker.ID, map[string]any{"answers": answers})
	r.completed(t, s.ID, 1)
	got := r.received(t, playForm, 1)
	for _, want := range []string{"quinces", "Grey"} {
		if !strings.Contains(got, want) {
			t.Errorf("the model received %q, want the answer %s", got[max(0, len(got)-600):], want)
		}
	}
	r.stop(t, s.ID)
}

func (r *run) plan(t *testing.T, mode string) {
	dir := filepath.Join(r.home, "workspaces", "plan")
	ok(t, os.RemoveAll(dir))
	ok(t, os.Mkdir(dir, 0o700))
	s := r.spawnIn(t, mode, "autonomous", dir, "Make a plan. "+playPlan, "")
	s = r.asked(t, s.ID, "plan")
	if data, _ := json.Marshal(s.Blocker); !strings.Contains(string(data), "Paint the house blue") {
		t.Errorf("blocker = %s, want the plan in it", data)
	}
	holds(t, dir)
	r.approve(t, s.Blocker.ID, map[string]any{"answer": "yes"})
	r.completed(t, s.ID, 1)
	holds(t, dir, "painted.txt")
	r.stop(t, s.ID)
}

// third answers a dialog of three options with "3", which is its refusal, by the verb that
// agents and chats use.
func (r *run) third(t *testing.T) {
	dir := r.workspace(t, "three")
	s := r.spawn(t, "standard", dir, "Ask me. "+playThree, "")
	s = r.until(t, s.ID, "it asks", func(s session) bool {
		return s.Status == "blocked" && s.Blocker.Type == "permission" && len(s.Blocker.Options) > 0
	})
	if n := len(s.Blocker.Options); n != 3 || !strings.HasPrefix(s.Blocker.Options[2], r.three) {
		t.Errorf("options = %q, want three, the third %s", s.Blocker.Options, r.three)
	}
	status, answer := r.request(t, "POST", "/api/v1/invocations", map[string]any{
		"target": "SEND_TO_AGENT", "input": map[string]any{"sessionId": s.ID, "input": "3"},
	})
	if status != http.StatusOK || !strings.Contains(answer, r.three) {
		t.Errorf("the answer 3: %d %s, want %s chosen", status, answer, r.three)
	}
	r.until(t, s.ID, "it goes on or waits", func(s session) bool { return s.Status == "ready" })
	holds(t, dir)
	r.stop(t, s.ID)
}

// TestADeniedTaskAsksNothing refuses what the agent of a task asks for, with "no": the agent goes on
// without it and the task ends.
func TestADeniedTaskAsksNothing(t *testing.T) {
	commands(t)
	binary := built.Junctor(t)
	for _, c := range programs() {
		if c.name != "claude" && c.name != "codex" {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			top := folder(t)
			dir := filepath.Join(top, "three")
			ok(t, os.Mkdir(dir, 0o700))
			fake, err := scriptedmodel.Start(decisionPlays(c.name, top))
			ok(t, err)
			t.Cleanup(fake.Close)
			r := &run{program: c, plane: newPlane(t, binary, c.files, "ANTHROPIC_BASE_URL="+fake.URL(),
				"OPENAI_BASE_URL="+fake.URL()+"/v1", "PARALLAX_CODEX_MODEL_POWERFUL=gpt-5.5",
				"CODING_AGENT_ALLOWED_WORKDIRS="+top), fake: fake}
			status, answer := r.request(t, "POST", "/api/coding-agents/coordinator/threads", map[string]any{
				"task": "Ask me. " + playThree, "agentType": c.name, "approvalPreset": "standard", "workdir": dir,
				"agents": []any{map[string]any{"task": "Ask me. " + playThree, "agentType": c.name}},
			})
			var made created
			if err := json.Unmarshal([]byte(answer), &made); err != nil || status != http.StatusCreated || len(made.Agents) != 1 {
				t.Fatalf("%d %s; want no error, status = http.StatusCreated, len(made.Agents) = 1", status, answer)
			}
			r.ends(t, made, "input_required")
			_, answer = r.request(t, "GET", "/api/v1/tasks/"+made.Task, nil)
			if !strings.Contains(answer, "one.txt") || !strings.Contains(answer, "Deny") {
				t.Errorf(`the question is %s, want the command with one.txt and the option Deny`, answer)
			}
			status, answer = r.request(t, "POST", "/api/v1/tasks/"+made.Task+"/answer",
				map[string]any{"answer": map[string]any{"action": "accept", "content": map[string]any{"text": "no"}}})
			if status != http.StatusOK {
				t.Fatalf("%d %s; want status = http.StatusOK", status, answer)
			}
			r.ends(t, made, "completed")
			holds(t, dir)
		})
	}
}

// TestCommandsCannotAnswerForTheUser runs a command in OpenCode, whose server would answer questions to
// anyone with its password: commands do not inherit it.
func TestCommandsCannotAnswerForTheUser(t *testing.T) {
	bin, _ := commands(t)
	if _, err := os.Stat(filepath.Join(bin, "opencode")); err != nil || os.Getenv("TASK_AGENTS_SHORT") != "" {
		t.Skip("opencode is not installed, or the short form; run: make test-agents")
	}
	for _, c := range programs() {
		if c.name != "opencode" {
			continue
		}
		r := &run{program: c, plane: newPlane(t, built.Junctor(t), c.files)}
		dir := r.workspace(t, "work")
		var err error
		r.fake, err = scriptedmodel.Start(scriptedmodel.Script{
			"PLAY-PASSWORD": {{Run: `echo "[$OPENCODE_SERVER_PASSWORD$npm_config_fetch_retries] $PARALLAX_SESSION_ID" > ` + filepath.Join(dir, "env.txt")}, {Say: "Done."}},
		})
		ok(t, err)
		t.Cleanup(r.fake.Close)
		s := r.spawnIn(t, "structured", "autonomous", dir, "Run. PLAY-PASSWORD", "")
		r.completed(t, s.ID, 1)
		data, err := os.ReadFile(filepath.Join(dir, "env.txt"))
		if got, want := string(data), "[] "+s.ID+"\n"; err != nil || got != want {
			t.Errorf("a command found %q, %v, want %q", got, err, want)
		}
		r.stop(t, s.ID)
	}
}
