package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/testkit/fakecli"
)

// scriptedMain is Claude Code with an agent that does what the lines of its task say:
//
//	write NAME TEXT    a file, where the hooks allow it
//	git ARGUMENTS      in its folder
//	decide TEXT        a decision for the others
//	tell TEXT          a decision, as `junctor child decision` does
//	say TEXT           a line of its answer
//	variable NAME      a file with the value of that variable
//	linger             the turn does not end
//	dies               the program ends
func scriptedMain(args []string) error {
	if done, err := claudeFacts(args); done {
		return err
	}
	settings, task, conversation, err := claudeStart(args)
	if err != nil {
		return err
	}
	hook := hooksOf(settings, conversation)
	fakecli.Run(context.Background(), os.Stdin, os.Stdout, func(ctx context.Context, s *fakecli.Screen) {
		for text, ok := task, true; ok; text, ok = s.Prompt(ctx) {
			if text == "" {
				continue
			}
			if task != "" {
				s.Say("❯ " + strings.Split(text, "\n")[0])
				task = ""
			}
			hook("UserPromptSubmit", map[string]any{"prompt": text})
			s.Work(ctx, 50*time.Millisecond)
			answer := []string{"I have done it."}
			for line := range strings.Lines(text) {
				verb, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
				switch verb {
				case "write":
					name, content, _ := strings.Cut(rest, " ")
					tool := map[string]any{"tool_name": "Write", "tool_input": map[string]any{"file_path": name, "content": content}}
					if reply := hook("PreToolUse", tool); !strings.Contains(reply, "deny") {
						_ = os.WriteFile(name, []byte(content+"\n"), 0o600)
					}
				case "git":
					cmd := exec.CommandContext(ctx, "git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com"},
						strings.Fields(rest)...)...)
					if out, err := cmd.CombinedOutput(); err != nil {
						answer = append(answer, fmt.Sprintf("git: %v: %s", err, out))
					}
				case "decide":
					answer = append(answer, "", "DECISION: "+rest, "")
				case "tell":
					hook("decision", map[string]any{"data": map[string]string{"text": rest}})
				case "say":
					answer = append(answer, rest)
				case "variable":
					_ = os.WriteFile(rest, []byte(os.Getenv(rest)), 0o600)
				case "linger":
					s.Work(ctx, time.Hour)
				case "dies":
					os.Exit(3)
				default:
					if text := misbehave(s, verb, rest); text != "" {
						answer = append(answer, text)
					}
				}
			}
			s.Done(answer...)
			hook("Stop", map[string]any{"last_assistant_message": strings.Join(answer, "\n")})
		}
	})
	return nil
}

// script is a model service that answers what junctor asks by what the question is.
type script struct {
	*httptest.Server

	mu    sync.Mutex
	asked []string
}

// scripted answers as a sensible model would: every turn that asks nothing is done, and
// every piece of work passes, but for what answer says otherwise; "" says nothing.
func scripted(t *testing.T, answer func(prompt string) string) *script {
	s := &script{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var in struct {
			Messages []struct {
				Role    string
				Content json.RawMessage
			}
		}
		_ = json.Unmarshal(body, &in)
		prompt := ""
		for _, m := range in.Messages {
			if m.Role == "user" {
				var text string
				if json.Unmarshal(m.Content, &text) != nil {
					text = string(m.Content)
				}
				prompt += text
			}
		}
		s.mu.Lock()
		s.asked = append(s.asked, prompt)
		s.mu.Unlock()
		text := ""
		if answer != nil {
			text = answer(prompt)
		}
		if text == "" {
			text = sensible(prompt)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{
			"id": "c1", "object": "chat.completion", "model": "m", "usage": map[string]int{"prompt_tokens": 1, "completion_tokens": 1},
			"choices": []any{map[string]any{
				"index": 0, "finish_reason": "stop",
				"message": map[string]string{"role": "assistant", "content": text},
			}},
		})
	}))
	t.Cleanup(s.Close)
	return s
}

func sensible(prompt string) string {
	switch {
	case strings.Contains(prompt, `{"tier":`):
		return `{"tier":"routine"}`
	case strings.Contains(prompt, "You validate the work"):
		return `{"verdict":"pass","summary":"the evidence shows it","checklist":[]}`
	case strings.Contains(prompt, "You coordinate agents"):
		return `{"action":"complete","reasoning":"it is done"}`
	case strings.Contains(prompt, "acceptance criteria"):
		return `["It is there.", "It is right.", "It is tidy."]`
	case strings.Contains(prompt, "Write one short message to the user"):
		return "Synthesis: all of it is done."
	}
	return "{}"
}

// count is how many questions have all of the parts.
func (s *script) count(parts ...string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.asked {
		if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(p, part) }) {
			n++
		}
	}
	return n
}

// TestASwarm is three agents on worktrees of one repository: they share decisions, one is
// sent back, one waits for the others and joins their work, and the user gets one message
// and one pull request.
func TestASwarm(t *testing.T) {
	t.Parallel()
	origin := repository(t)
	sentBack := sync.OnceValue(func() string {
		return `{"verdict":"revise","summary":"api.txt says the wrong thing","followUpPrompt":"Please correct it:\nwrite api.txt right\ngit add -A\ngit commit -q -m better"}`
	})
	first := true
	var mu sync.Mutex
	model := scripted(t, func(prompt string) string {
		mu.Lock()
		defer mu.Unlock()
		if first && strings.Contains(prompt, "You validate the work") && strings.Contains(prompt, "write api.txt wrong") {
			first = false
			return sentBack()
		}
		return ""
	})
	_, env := scriptedHome(t)
	n := serve(t, t.TempDir(), append(env, "JUNCTOR_AGENTS_REPOSITORIES="+filepath.Dir(origin), "JUNCTOR_MODEL_KIND=openai",
		"JUNCTOR_MODEL_URL="+model.URL+"/v1", "JUNCTOR_MODEL_NAME=m")...)
	admin := n.token(t, "admin")
	var made createdThread
	n.ask(t, "POST", "/api/coding-agents/coordinator/threads", mustJSON(t, map[string]any{
		"task": "Build the thing", "repo": origin, "approvalPreset": "autonomous", "brief": "The plan: small files.",
		"agents": []any{
			map[string]any{"label": "api", "agentType": "claude", "task": "write api.txt wrong\ngit add -A\ngit commit -q -m api\ndecide the port is 8080"},
			map[string]any{"label": "docs", "agentType": "claude", "task": "write docs.txt docs\ngit add -A\ngit commit -q -m docs\ntell the docs are in English"},
			map[string]any{
				"label": "join", "agentType": "claude", "dependsOn": []int{0, 1},
				"task": "write joined.txt joined\ngit add -A\ngit commit -q -m joined\nsay joined",
			},
		},
	}), http.StatusCreated, &made)
	if len(made.Agents) != 3 || made.Agents[0].SessionID == "" || made.Agents[1].SessionID == "" || made.Agents[2].SessionID != "" ||
		made.Agents[2].Status != "planned" {
		t.Fatalf(`%+v; want len(made.Agents) = 3, made.Agents[0].SessionID other than "", made.Agents[1].SessionID other than `+
			`"", made.Agents[2].SessionID = "", made.Agents[2].Status = "planned"`, made)
	}
	if made.Agents[0].Workdir == made.Agents[1].Workdir {
		t.Errorf("both work in %s; want made.Agents[0].Workdir other than made.Agents[1].Workdir", made.Agents[0].Workdir)
	}
	eventually(t, "the task is completed", func() bool { return n.task(t, made.Task).Task.State == "completed" })
	th := n.thread(t, made.ThreadID)
	eventually(t, "the message about the end is stored", func() bool { // the task completes before it
		th = n.thread(t, made.ThreadID)
		for _, e := range th.Events {
			if e.EventType == "message" && e.SessionID == "" {
				return true
			}
		}
		return false
	})
	if th.Status != "done" || th.Summary != "Synthesis: all of it is done." || len(th.Sessions) != 3 {
		t.Errorf(`%+v; want th.Status = "done", th.Summary = "Synthesis: all of it is done.", len(th.Sessions) = 3`, th)
	}
	messages, shared, back := 0, 0, 0
	for _, e := range th.Events {
		switch {
		case e.EventType == "message" && e.SessionID == "":
			messages++
		case e.EventType == "decision_shared" && (e.Summary == "the port is 8080" || e.Summary == "the docs are in English"):
			shared++
		case e.EventType == "validation_failed":
			back++
		}
	}
	if messages != 1 || shared != 2 || back != 1 {
		t.Errorf("%d messages, %d decisions, %d sent back, of %+v; want messages = 1, shared = 2, back = 1",
			messages, shared, back, th.Events)
	}
	for dir, want := range map[string]string{made.Agents[0].Workdir + "/api.txt": "right\n", made.Agents[1].Workdir + "/docs.txt": "docs\n"} {
		if data, err := os.ReadFile(dir); string(data) != want {
			t.Errorf("%s: %q %v; want string(data) = %v", dir, data, err, want)
		}
	}
	last := th.Sessions[2]
	if model.count("You coordinate agents", "say joined", "the port is 8080") == 0 {
		t.Error(`the decision of one agent is not known where another one's is made; want model.count("You coordinate agents", ` +
			`"say joined", "the port is 8080") other than 0`)
	}
	if text := n.request(t, "GET", "/api/coding-agents/"+last.SessionID+"/output?lines=200", admin, "").body; !strings.Contains(text,
		"joined") {
		t.Errorf(`the last agent shows %s; want text with "joined"`, text)
	}
	// Its branch becomes the pull request.
	var list []struct{ ID, Path string }
	n.ask(t, "GET", "/api/workspace", "", http.StatusOK, &list)
	for _, w := range list {
		if w.Path == last.Workdir {
			var done struct {
				Pull struct{ Number int }
			}
			n.ask(t, "POST", "/api/workspace/"+w.ID+"/finalize", `{"prTitle":"The thing"}`, http.StatusOK, &done)
			if done.Pull.Number != 1 {
				t.Errorf("%+v; want done.Pull.Number = 1", done)
			}
		}
	}
	n.terminate(t)
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// repository is a bare one with a commit.
func repository(t *testing.T) string {
	t.Helper()
	origin, seed := filepath.Join(t.TempDir(), "origin.git"), t.TempDir()
	for _, args := range [][]string{
		{"init", "-q", "-b", "main", seed},
		{"-C", seed, "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "--allow-empty", "-m", "first"},
		{"clone", "-q", "--bare", seed, origin},
	} {
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %s", args, out)
		}
	}
	return origin
}
