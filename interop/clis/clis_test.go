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

// program is what the tests know of a program. Where a reason is given, the program
// cannot do the thing.
type program struct {
	name, binary, base, model, provider string
	files                               map[string]string // of its user, left as they are
	noPrompt, noAsking, noResume        string
	noHooks, noStructured, noLoading    string
	noUsage                             string                           // in a terminal
	checksPaths                         bool                             // before it asks its hooks
	failed                              map[scriptedmodel.Failure]string // how a failure is shown
	yes, no                             string                           // labels of a question
	questions, forms, plans             map[string]bool                  // the modes in which the program offers the tool
	three                               string                           // the third label of a dialog about a command
	bigOver                             map[string]string                // modes in which 5 MB of output end the turn, and what is shown
	presets                             bool                             // the presets are tried
	slow                                bool                             // its sessions are tried one after the other
}

func programs() []program {
	return []program{
		{
			name: "claude", binary: "claude", presets: true, yes: "Yes", no: "No",
			questions: map[string]bool{"structured": true, "pty": true}, forms: map[string]bool{"structured": true},
			plans: map[string]bool{"structured": true, "pty": true},
			files: map[string]string{
				".claude.json":          `{"hasCompletedOnboarding":true,"mine":[1, 2]}`,
				".claude/settings.json": "{\n \"theme\": \"light\", \"hooks\": {\"Stop\": [{\"hooks\": [{\"type\": \"command\", \"command\": \"true\"}]}]}\n}\n",
				".claude/CLAUDE.md":     "Be kind.\n",
			},
			failed: map[scriptedmodel.Failure]string{scriptedmodel.Auth: "auth", scriptedmodel.Billing: "billing"},
		},
		{
			name: "codex", binary: "codex", presets: true, base: "/v1", model: "gpt-5.5", yes: "Yes, proceed", no: "No", three: "No, and tell Codex",
			questions: map[string]bool{"structured": true}, forms: map[string]bool{"structured": true},
			files:  map[string]string{".codex/config.toml": "model = \"mine\"\n", ".codex/AGENTS.md": "Be kind.\n", ".codex/auth.json": "{}\n"},
			failed: map[scriptedmodel.Failure]string{scriptedmodel.Auth: "auth", scriptedmodel.Billing: "billing"},
		},
		{
			name: "gemini", binary: "gemini", bigOver: map[string]string{"structured": "the program ended the turn: max_tokens"}, checksPaths: true, presets: true, slow: true, model: "gemini-2.5-pro", yes: "Allow once", no: "No",
			noLoading: "Gemini CLI 0.61.0 does not find a conversation again that it had over ACP",
			files:     map[string]string{".gemini/GEMINI.md": "Be kind.\n", ".gemini/trustedFolders.json": "{\"/somewhere\": \"TRUST_FOLDER\"}\n"},
			failed:    map[scriptedmodel.Failure]string{scriptedmodel.Auth: "auth", scriptedmodel.Billing: "billing"},
		},
		{
			name: "qwen", binary: "qwen", base: "/v1", model: "scripted", yes: "Yes, allow once", no: "No",
			files:  map[string]string{".qwen/QWEN.md": "Be kind.\n", ".qwen/settings.json": "{\n  \"security\": {\n    \"folderTrust\": {\n      \"enabled\": true\n    }\n  },\n  \"$version\": 4\n}\n"},
			failed: map[scriptedmodel.Failure]string{scriptedmodel.Auth: "auth"},
		},
		{
			name: "opencode", binary: "opencode", base: "/v1", model: "scripted",
			presets: true, slow: true, questions: map[string]bool{"structured": true}, forms: map[string]bool{"structured": true},
			noPrompt: "opencode run does one task and ends", noAsking: "opencode run refuses what it would have to ask about",
			noResume: "opencode run does not tell the name of its conversation",
			noUsage:  "opencode run does not report it, and its records are a database",
			failed:   map[scriptedmodel.Failure]string{scriptedmodel.Auth: "auth"},
			files:    map[string]string{".config/opencode/opencode.json": "{\n  \"$schema\": \"https://opencode.ai/config.json\",\n  \"theme\": \"system\"\n}\n"},
		},
		{
			name: "pi", binary: "pi", model: "claude-sonnet-4-5", provider: "anthropic", noAsking: "Pi never asks",
			noStructured: "Pi has no protocol of its own here",
			noHooks:      "Pi has no hooks: only the list of its tools holds it back",
			files:        map[string]string{".pi/agent/AGENTS.md": "Be kind.\n"},
			failed:       map[scriptedmodel.Failure]string{scriptedmodel.Auth: "auth", scriptedmodel.Billing: "billing"},
		},
	}
}

// The plays. Their names are in the tasks.
const (
	playWrite   = "PLAY-WRITE"
	playAgain   = "PLAY-AGAIN"
	playSlow    = "PLAY-SLOW"
	playOutside = "PLAY-OUTSIDE"
	playAsk     = "PLAY-ASK"
	playAskMore = "PLAY-MORE-ASK"
	playDenied  = "PLAY-DENIED"
	playResume  = "PLAY-RESUME"
	playAuth    = "PLAY-AUTH"
	playBilling = "PLAY-BILLING"

	playTold     = "PLAY-TOLD"
	playRefused  = "PLAY-REFUSED"
	playElse     = "PLAY-ELSEWHERE"
	playBackWith = "PLAY-BACK"
)

const decision = "DECISION: the greeting is in hello.txt because the task asked for a file."

// TestPrograms starts each installed coding CLI as a task agent.
func TestPrograms(t *testing.T) {
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
			r.fake, err = scriptedmodel.Start(r.plays())
			ok(t, err)
			t.Cleanup(r.fake.Close)
			t.Run("it works, is interrupted and goes on", r.works)
			t.Run("its first turn is interrupted", r.firstInterrupted)
			t.Run("it asks", r.asks)
			if os.Getenv("TASK_AGENTS_SHORT") == "" {
				t.Run("it may only read", r.reads)
				t.Run("it works without a terminal", r.structured)
				for kind, play := range map[scriptedmodel.Failure]string{scriptedmodel.Auth: playAuth, scriptedmodel.Billing: playBilling} {
					for _, mode := range []string{"structured", "pty"} {
						t.Run("the provider fails: "+string(kind)+", "+mode, func(t *testing.T) { r.fails(t, mode, kind, play) })
					}
				}
			}
			r.userFiles(t)
		})
	}
}

// run is a program under test.
type run struct {
	program
	*plane
	fake *scriptedmodel.Model
	dir  string // where it works
}

func (r *run) plays() scriptedmodel.Script {
	at := func(dir, name string) *scriptedmodel.File {
		return &scriptedmodel.File{Path: filepath.Join(r.home, "workspaces", dir, name), Text: "hello"}
	}
	return scriptedmodel.Script{
		playWrite:   {{Write: at("work", "hello.txt")}, {Say: "The file is there.\n\n" + decision}},
		playAgain:   {{Say: "Again."}},
		playSlow:    {{Slow: time.Minute, Say: "At last."}},
		playOutside: {{Write: at("other", "outside.txt")}, {Say: "So be it."}},
		playAsk:     {{Write: at("asked", "asked.txt"), Leave: true}, {Say: "Thank you."}},
		playAskMore: {{Write: at("asked", "refused.txt"), Leave: true}, {Say: "A pity."}},
		playDenied:  {{Write: at("read", "denied.txt")}, {Say: "So be it."}},
		playResume:  {{Say: "I remember."}},
		playAuth:    {{Fail: scriptedmodel.Auth}},

		playTold:     {{Write: at("told", "told.txt"), Leave: true}, {Say: "The file is there.\n\n" + decision}},
		playRefused:  {{Write: at("told", "refused.txt"), Leave: true}, {Say: "A pity."}},
		playElse:     {{Write: at("elsewhere", "outside.txt"), Leave: true}, {Say: "So be it."}},
		playBackWith: {{Say: "I remember."}},
		playBilling:  {{Fail: scriptedmodel.Billing}},
	}
}

func (r *run) spawn(t *testing.T, preset, dir, task, resume string) session {
	t.Helper()
	return r.spawnIn(t, "pty", preset, dir, task, resume)
}

func (r *run) spawnIn(t *testing.T, mode, preset, dir, task, resume string) session {
	t.Helper()
	status, answer := r.request(t, "POST", "/api/coding-agents/spawn", map[string]any{
		"agentType": r.name, "workdir": dir, "task": task, "approvalPreset": preset, "resumeToken": resume, "mode": mode,
		"model": r.model, "provider": r.provider, "baseUrl": r.fake.URL() + r.base,
		"metadata": map[string]any{"keepAliveAfterComplete": true, "threadId": "one"},
		// There is nothing beyond this machine.
		"customCredentials": map[string]string{
			"HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9",
			"NO_PROXY": "127.0.0.1,localhost", "CLAUDE_CODE_MAX_RETRIES": "1",
		},
	})
	var made struct{ Session session }
	if err := json.Unmarshal([]byte(answer), &made); err != nil || status != http.StatusCreated {
		t.Fatalf("%d %s; want no error, status = http.StatusCreated", status, answer)
	}
	return made.Session
}

// completed waits for the end of the n-th turn.
func (r *run) completed(t *testing.T, id string, n int) session {
	t.Helper()
	return r.until(t, id, "the turn is done", func(s session) bool {
		if s.Status == "error" || strings.HasPrefix(s.Phase, "failed:") {
			t.Fatalf("it failed: %+v\n%s\nwant s.Status other than \"error\", s.Phase not beginning with \"failed:\"",
				s, r.picture(t, id))
		}
		return s.CompletedTurns >= n && s.Status != "busy"
	})
}

func (r *run) works(t *testing.T) {
	began := time.Now()
	r.request(t, "GET", "/api/coding-agents/preflight", nil) // the first asks every program
	t.Logf("FIGURES %s: what is installed is known after %s", r.name, time.Since(began).Round(time.Millisecond))
	began = time.Now()
	s := r.spawn(t, "autonomous", r.dir, "Write a greeting. "+playWrite, "")
	r.until(t, s.ID, "it prints something", func(session) bool {
		_, answer := r.request(t, "GET", "/api/coding-agents/"+s.ID+"/buffered-output", nil)
		return !strings.Contains(answer, `"output":""`)
	})
	first := time.Since(began)
	s = r.completed(t, s.ID, 1)
	done := time.Now()
	asked := r.fake.Asked(playWrite)
	if len(asked) != 2 {
		t.Fatalf("the model was asked %d times; want len(asked) = 2", len(asked))
	}
	t.Logf("FIGURES %s: first output after %s, the task at the model after %s, its end seen %s after the model's last word",
		r.name, first.Round(time.Millisecond), asked[0].At.Sub(began).Round(time.Millisecond), done.Sub(asked[1].At).Round(time.Millisecond))
	if data, err := os.ReadFile(filepath.Join(r.dir, "hello.txt")); err != nil || string(data) != "hello" {
		t.Errorf(`the file: %q %v; want no error, string(data) = "hello"`, data, err)
	}
	// Decisions are read from the turn's text after its end was seen.
	s = r.until(t, s.ID, "its decision is noted", func(s session) bool { return len(s.Decisions) > 0 })
	if len(s.Decisions) != 1 || !strings.HasPrefix(s.Decisions[0], "the greeting is in hello.txt") {
		t.Errorf(`decisions: %q; want len(s.Decisions) = 1, s.Decisions[0] beginning with "the greeting is in hello.txt"`, s.Decisions)
	}
	if r.noUsage == "" { // the model reports at least one token each way for each of its two answers
		r.until(t, s.ID, "its usage is known", func(s session) bool { return s.Usage.InputTokens >= 2 && s.Usage.OutputTokens >= 2 })
	}
	if s.CompletedTurns != 1 {
		t.Errorf("%d turns were completed; want s.CompletedTurns = 1", s.CompletedTurns)
	}
	holds(t, r.dir, "hello.txt")
	if r.noPrompt == "" {
		t.Run("a message of two lines", func(t *testing.T) { r.message(t, s.ID) })
		t.Run("an interrupted turn", func(t *testing.T) { r.interrupted(t, s.ID) })
		t.Run("a file outside", func(t *testing.T) { r.outside(t, s.ID) })
		r.stop(t, s.ID)
	} else {
		t.Log("no further messages: " + r.noPrompt)
		r.gone(t, s.ID)
	}
	holds(t, r.dir, "hello.txt")
	t.Run("it is resumed", func(t *testing.T) { r.resumed(t, r.shown(t, s.ID).ResumeToken) })
}

func (r *run) message(t *testing.T, id string) {
	before, began := r.shown(t, id).CompletedTurns, time.Now()
	if answer := r.post(t, id, "send", map[string]any{"input": "first line\nsecond line " + playAgain}); !strings.Contains(answer,
		`"delivered"`) {
		t.Errorf("r.post = %q, want it to contain \"\\\"delivered\\\"\"", answer)
	}
	delivered := time.Since(began)
	r.completed(t, id, before+1)
	asked := r.fake.Asked(playAgain)
	if len(asked) > 0 {
		t.Logf("FIGURES %s: a message at the model after %s, its delivery known after %s", r.name,
			asked[0].At.Sub(began).Round(time.Millisecond), delivered.Round(time.Millisecond))
	}
	if len(asked) != 1 || !strings.Contains(asked[0].Text, "first line\nsecond line "+playAgain) {
		t.Errorf(`the model was told: %+v; want len(asked) = 1, asked[0].Text with "first line\nsecond line " + playAgain`, asked)
	}
}

func (r *run) interrupted(t *testing.T, id string) {
	before := r.shown(t, id).CompletedTurns
	r.post(t, id, "send", map[string]any{"input": playSlow})
	r.until(t, id, "the model is asked", func(s session) bool { return s.Status == "busy" && len(r.fake.Asked(playSlow)) > 0 })
	r.post(t, id, "send", map[string]any{"keys": []string{"escape"}})
	began := time.Now()
	s := r.until(t, id, "it stops", func(s session) bool { return s.Status == "ready" })
	t.Logf("FIGURES %s: ready %s after Escape, phase %q", r.name, time.Since(began).Round(time.Millisecond), s.Phase)
	if s.CompletedTurns != before {
		t.Errorf("the turn that was interrupted counts as done: %+v\n%s\nwant s.CompletedTurns = %v", s, r.picture(t, id), before)
	}
}

func (r *run) outside(t *testing.T, id string) {
	if r.noHooks != "" {
		t.Skip(r.noHooks)
	}
	other := filepath.Join(r.home, "workspaces", "other")
	ok(t, os.MkdirAll(other, 0o700))
	before := r.shown(t, id).CompletedTurns
	r.post(t, id, "send", map[string]any{"input": playOutside})
	r.completed(t, id, before+1)
	holds(t, other)
	if r.checksPaths {
		return
	}
	if _, answer := r.request(t, "GET", "/api/v1/audit?event=agent_permission", nil); !strings.Contains(answer, `"verdict":"deny"`) {
		t.Errorf(`no hook has refused it: %s; want answer with "\"verdict\":\"deny\""`, answer)
	}
}

func (r *run) resumed(t *testing.T, token string) {
	if r.noResume != "" {
		t.Skip(r.noResume)
	}
	if token == "" {
		t.Fatalf(`it has no token to be resumed by; got token = %q; want token other than ""`, token)
	}
	s := r.spawn(t, "autonomous", r.dir, "Do you remember? "+playResume, token)
	r.completed(t, s.ID, 1)
	asked := r.fake.Asked(playResume)
	if len(asked) != 1 || !strings.Contains(asked[0].Text, "Write a greeting. "+playWrite) || !strings.Contains(asked[0].Text, decision) {
		t.Errorf("the model received %+v, want one request with the conversation so far\nthe session: %+v\n%s", asked, s, r.picture(t, s.ID))
	}
	r.stop(t, s.ID)
}

// firstInterrupted: a text that is sent after the first turn was interrupted is not joined with the
// task, which Claude Code restores in its input box.
func (r *run) firstInterrupted(t *testing.T) {
	if r.noPrompt != "" {
		t.Skip(r.noPrompt)
	}
	dir := r.workspace(t, "first")
	s := r.spawn(t, "autonomous", dir, "Take your time. "+playSlow, "")
	r.until(t, s.ID, "the model is asked", func(s session) bool { return s.Status == "busy" && len(r.fake.Asked(playSlow)) > 0 })
	r.post(t, s.ID, "send", map[string]any{"keys": []string{"escape"}})
	r.until(t, s.ID, "it stops", func(s session) bool { return s.Status == "ready" })
	before := len(r.fake.Asked(playAgain))
	r.post(t, s.ID, "send", map[string]any{"input": "Now this. " + playAgain})
	r.completed(t, s.ID, 1)
	asked := r.fake.Asked(playAgain)
	if len(asked) != before+1 || strings.Contains(asked[len(asked)-1].Last, playSlow) {
		t.Errorf("the model received %+v, want the text alone", asked[before:])
	}
	r.stop(t, s.ID)
}

// asks: what the preset asks about blocks it, and is answered by a choice.
func (r *run) asks(t *testing.T) {
	if r.noAsking != "" {
		t.Skip(r.noAsking)
	}
	dir := r.workspace(t, "asked")
	s := r.spawn(t, "standard", dir, "Ask me. "+playAsk, "")
	// A hook may tell of the dialog before it is on the screen.
	blocked := func(s session) bool {
		return s.Status == "blocked" && s.Blocker.Type == "permission" && len(s.Blocker.Options) > 0
	}
	began := time.Now()
	s = r.until(t, s.ID, "it asks", blocked)
	t.Logf("FIGURES %s: blocked %s after the start: %+v", r.name, time.Since(began).Round(time.Millisecond), *s.Blocker)
	holds(t, dir)
	r.post(t, s.ID, "choose", map[string]any{"label": r.yes})
	r.completed(t, s.ID, 1)
	holds(t, dir, "asked.txt")
	r.post(t, s.ID, "send", map[string]any{"input": playAskMore})
	r.until(t, s.ID, "it asks again", blocked)
	r.post(t, s.ID, "choose", map[string]any{"label": r.no})
	r.until(t, s.ID, "it goes on or waits", func(s session) bool { return s.Status == "ready" })
	holds(t, dir, "asked.txt")
	r.stop(t, s.ID)
}

// reads: what the preset blocks is not done.
func (r *run) reads(t *testing.T) {
	dir := r.workspace(t, "read")
	s := r.spawn(t, "readonly", dir, "Write all the same. "+playDenied, "")
	r.completed(t, s.ID, 1)
	holds(t, dir)
	r.stop(t, s.ID)
}

func (r *run) fails(t *testing.T, mode string, kind scriptedmodel.Failure, play string) {
	want := r.failed[kind]
	if want == "" || mode == "structured" && r.noStructured != "" {
		t.Skip("how " + r.name + " shows this failure is not known yet, or it has no protocol")
	}
	dir := r.workspace(t, "fails-"+string(kind)+"-"+mode)
	s := r.spawnIn(t, mode, "autonomous", dir, "Fail. "+play, "")
	s = r.until(t, s.ID, "it fails", func(s session) bool { return strings.HasPrefix(s.Phase, "failed:") || s.CompletedTurns > 0 })
	if s.Phase != "failed:"+want || s.CompletedTurns > 0 {
		t.Errorf("it is %+v\n%s\nwant s.Phase = \"failed:\" + want, s.CompletedTurns at most 0", s, r.picture(t, s.ID))
	}
	r.stop(t, s.ID)
}

// userFiles: the user's own are what they were. Claude Code itself writes to its
// .claude.json; of that, what the user has in it is left, and nothing of ours.
func (r *run) userFiles(t *testing.T) {
	for name, want := range r.files {
		data, err := os.ReadFile(filepath.Join(r.user, name))
		ok(t, err)
		if name != ".claude.json" {
			if string(data) != want {
				t.Errorf("%s is\n%s\nwant string(data) = %v", name, data, want)
			}
			continue
		}
		var doc struct {
			Mine      []int
			Responses json.RawMessage `json:"customApiKeyResponses"`
			Projects  map[string]struct {
				Trusted bool `json:"hasTrustDialogAccepted"`
			}
		}
		ok(t, json.Unmarshal(data, &doc))
		if len(doc.Mine) != 2 || strings.Contains(string(doc.Responses), "nobody") {
			t.Errorf("%s is\n%s\nwant len(doc.Mine) = 2, string(doc.Responses) without \"nobody\"", name, data)
		}
		for dir, p := range doc.Projects {
			if p.Trusted {
				t.Errorf("%s is still trusted; want p.Trusted = false", dir)
			}
		}
	}
}
