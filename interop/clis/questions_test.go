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

// approved begins what OpenCode receives when its plan is approved.
const approved = "The user has approved the plan"

// The plays about decisions of a user.
const (
	playOneQuestion = "PLAY-ONE-QUESTION"
	playForm        = "PLAY-FORM"
	playPlan        = "PLAY-PLAN"
	playPlanTwice   = "PLAY-PLAN-TWICE"
	playGreen       = "PLAY-GREEN"
	playThree       = "PLAY-THREE"
)

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
	present := func(plan string) scriptedmodel.Step {
		return scriptedmodel.Step{Call: &scriptedmodel.Call{Names: []string{"ExitPlanMode", "exit_plan_mode"}, Args: map[string]any{"plan": plan}}}
	}
	enter := scriptedmodel.Step{Call: &scriptedmodel.Call{Names: []string{"EnterPlanMode", "Read"}, Args: map[string]any{}}}
	painted := scriptedmodel.Step{Write: &scriptedmodel.File{Path: filepath.Join(workspaces, "plan", "painted.txt"), Text: "green"}}
	said := scriptedmodel.Step{Say: "It is painted."}
	twice := []scriptedmodel.Step{enter, present("1. Paint the house blue."), present("1. Paint the house green."), painted, said}
	if name == "opencode" { // its answer is the plan
		twice = []scriptedmodel.Step{{Say: "1. Paint the house blue."}}
	}
	return scriptedmodel.Script{
		playOneQuestion: {{Call: call(question)}, {Say: "I see."}},
		playForm:        {{Call: call(question, more)}, {Say: "I see."}},
		playPlan:        {enter, present("1. Paint the house green."), painted, said},
		playPlanTwice:   twice,
		playGreen:       {{Say: "1. Paint the house green."}},
		approved:        {painted, said},
		playThree:       {{Run: "touch " + filepath.Join(workspaces, "three", "one.txt"), Leave: true}, {Say: "So be it."}},
	}
}

// asked waits for a decision that the user has to make.
func (c *conversation) asked(t *testing.T, kind string) session {
	t.Helper()
	return c.until(t, c.id, "it asks: "+kind, func(s session) bool {
		if s.Status == "error" || s.Status == "ready" && s.CompletedTurns > c.turns && len(c.fake.Asked(c.play)) > c.requests {
			t.Fatalf("no %s reached the user: %+v\n%s\nwant one", kind, s, c.picture(t, c.id))
		}
		// A hook may report a dialog before it is on the screen.
		return s.Status == "blocked" && s.Blocker.Type == kind && (len(s.Blocker.Options) > 0 || len(s.Blocker.Questions) > 0)
	})
}

// answers checks that the model has received the answers of the user.
func (c *conversation) answers(t *testing.T, play string, want ...string) {
	t.Helper()
	asked := c.received(t, play, 2)
	for _, w := range want {
		if got := asked[1].Text; !strings.Contains(got, w) {
			t.Errorf("the model received %q, want the answer %s", got[max(0, len(got)-600):], w)
		}
	}
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

// approve answers a question as an approval, which has a state then.
func (r *run) approve(t *testing.T, id string, body map[string]any, state string) {
	t.Helper()
	r.approval(t, id, "pending")
	if status, answer := r.request(t, "POST", "/api/v1/approvals/"+id, body); status != http.StatusOK {
		t.Errorf("the answer to the approval %s: %d %s, want 200", id, status, answer)
	}
	r.approval(t, id, state)
}

func (c *conversation) question(t *testing.T) {
	c.send(t, "Ask me. "+playOneQuestion)
	s := c.asked(t, "question")
	if s.Blocker.ID == "" || !strings.Contains(s.Blocker.Prompt, "Which fruit?") {
		t.Errorf("blocker = %+v, want an id and the prompt Which fruit?", s.Blocker)
	}
	if a := c.approval(t, s.Blocker.ID, "pending"); a.Kind != "question" || a.Session != s.ID || len(a.Shown.Choices) < 2 {
		t.Errorf("approval = %+v, want the question of session %s with its choices", a, s.ID)
	}
	c.post(t, s.ID, "answer", map[string]any{"blocker": s.Blocker.ID, "answer": "2"})
	c.approval(t, s.Blocker.ID, "approved")
	c.done(t)
	c.answers(t, playOneQuestion, "Pears")
	status, answer := c.request(t, "POST", "/api/coding-agents/"+s.ID+"/answer", map[string]any{"blocker": s.Blocker.ID, "answer": "1"})
	if status != http.StatusConflict {
		t.Errorf("a second answer: %d %s, want 409", status, answer)
	}
}

func (c *conversation) form(t *testing.T) {
	c.send(t, "Ask me. "+playForm)
	s := c.asked(t, "question")
	if len(s.Blocker.Questions) != 2 {
		t.Fatalf("blocker = %+v, want two questions", s.Blocker)
	}
	values := map[string]any{s.Blocker.Questions[0].ID: []string{"quinces"}, s.Blocker.Questions[1].ID: []string{"1", "Grey"}}
	if !s.Blocker.Questions[1].Multiple {
		values[s.Blocker.Questions[1].ID] = []string{"Grey"}
	}
	c.approve(t, s.Blocker.ID, map[string]any{"answers": values}, "approved")
	c.done(t)
	c.answers(t, playForm, "quinces", "Grey")
}

// plan: an answer in words, where the program takes one, goes on planning. Nothing is done before the plan is approved.
func (c *conversation) plan(t *testing.T) {
	var kept []string
	if c.name == "opencode" {
		kept = []string{"opencode.json"}
		ok(t, os.WriteFile(filepath.Join(c.dir, kept[0]), []byte(`{"default_agent":"plan"}`), 0o600))
	}
	if c.mode == "pty" {
		c.send(t, "Make a plan. "+playPlan)
	} else {
		c.send(t, "Make a plan. "+playPlanTwice)
		s := c.plans(t, "Paint the house blue", kept)
		c.approve(t, s.Blocker.ID, map[string]any{"text": "Paint it green. " + playGreen}, "denied")
	}
	s := c.plans(t, "Paint the house green", kept)
	c.approve(t, s.Blocker.ID, map[string]any{"answer": "yes"}, "approved")
	if s = c.done(t); s.CompletedTurns != 1 {
		t.Errorf("the session has %d completed turns, want 1", s.CompletedTurns)
	}
	holds(t, c.dir, append(kept, "painted.txt")...)
}

// plans waits for a plan, before which nothing is done.
func (c *conversation) plans(t *testing.T, want string, kept []string) session {
	t.Helper()
	s := c.until(t, c.id, "it presents a plan", func(s session) bool {
		return s.CompletedTurns > 0 || s.Status == "error" || s.Status == "blocked" && strings.Contains(s.Blocker.String(), want)
	})
	if s.Status != "blocked" || s.Blocker.Type != "plan" {
		t.Fatalf("the session is %+v with blocker %s, want a plan\n%s", s, s.Blocker, c.picture(t, c.id))
	}
	holds(t, c.dir, kept...)
	return s
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
