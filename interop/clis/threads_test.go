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

const (
	playThread   = "PLAY-THREAD"
	playQuestion = "PLAY-QUESTION"
	playNoMoney  = "PLAY-NO-MONEY"
	playHang     = "PLAY-HANG"
)

// thread is one as the API shows it.
type thread struct {
	ID, Status, Summary string
	Sessions            []struct {
		SessionID, Status, Framework, CompletionSummary, Workdir string
		TaskDelivered                                            bool
	}
	Usage  usage
	Events []struct{ EventType, SessionID, Summary string }
}

type created struct {
	ThreadID, Task string
	Agents         []struct {
		SessionID, Workdir, Status string
		Error                      *struct{ Message string }
	}
}

type handle struct {
	Task struct {
		State, Status string
		Requests      []struct {
			Key    string
			Params struct{ Message string }
		}
	}
}

// TestThreads looks after real programs: a task that is done, a question that becomes the
// user's, a provider that fails while another program goes on, and a server that is
// killed and goes on with the same conversation.
func TestThreads(t *testing.T) {
	bin, _ := commands(t)
	installed := func(name string) bool {
		_, err := os.Stat(filepath.Join(bin, name))
		return err == nil
	}
	binary := built.Junctor(t)
	if !installed("claude") || !installed("codex") {
		t.Skip("Claude Code and Codex are needed; run: make test-agents")
	}
	fakes := map[string]*scriptedmodel.Model{}
	var p *plane
	script := func(own scriptedmodel.Script) scriptedmodel.Script {
		for name, play := range map[string][]scriptedmodel.Step{
			playThread:                             {{Say: "All is well.\n\n" + decision}},
			playQuestion:                           {{Say: "Should the greeting be in English or in French?"}},
			playHang:                               {{Run: "true"}, {Slow: 2 * time.Minute, Say: "At last."}},
			"interrupted. Go on where you stopped": {{Say: "I went on."}},
			"In French.":                           {{Say: "Bonjour it is."}},
		} {
			own[name] = play
		}
		return own
	}
	var err error
	fakes["claude"], err = scriptedmodel.Start(script(scriptedmodel.Script{playNoMoney: {{Fail: scriptedmodel.Billing}}}))
	ok(t, err)
	t.Cleanup(fakes["claude"].Close)
	fakes["codex"], err = scriptedmodel.Start(script(scriptedmodel.Script{playNoMoney: {{Say: "I went on for the other one."}}}))
	ok(t, err)
	t.Cleanup(fakes["codex"].Close)
	p = newPlane(t, binary, map[string]string{".claude.json": `{"hasCompletedOnboarding":true}`},
		"ANTHROPIC_BASE_URL="+fakes["claude"].URL(), "OPENAI_BASE_URL="+fakes["codex"].URL()+"/v1", "CLAUDE_CODE_MAX_RETRIES=1",
		"PARALLAX_CODEX_MODEL_POWERFUL=gpt-5.5", "JUNCTOR_AGENTS_AUTO_RESUME=true")

	t.Run("a task is done", func(t *testing.T) {
		made := p.create(t, "claude", "Say that all is well. "+playThread)
		p.ends(t, made, "completed")
		th := p.thread(t, made.ThreadID)
		if th.Status != "done" || !strings.Contains(th.Sessions[0].CompletionSummary, "All is well.") {
			t.Errorf(`%+v; want th.Status = "done", th.Sessions[0].CompletionSummary with "All is well."`, th)
		}
		// It is stored after the session has reported it.
		p.until(t, th.Sessions[0].SessionID, "the thread's usage is stored", func(session) bool {
			th = p.thread(t, made.ThreadID)
			return th.Usage.InputTokens > 0 && th.Usage.OutputTokens > 0
		})
	})
	t.Run("a question becomes the user's, whose answer goes back", func(t *testing.T) {
		made := p.create(t, "claude", "Greet. "+playQuestion)
		h := p.ends(t, made, "input_required")
		if len(h.Task.Requests) != 1 || !strings.Contains(h.Task.Requests[0].Params.Message, "English or in French?") {
			t.Fatalf(`%+v; want len(h.Task.Requests) = 1, h.Task.Requests[0].Params.Message with "English or in French?"`, h)
		}
		status, answer := p.request(t, "POST", "/api/v1/tasks/"+made.Task+"/answer",
			map[string]any{"answer": map[string]any{"action": "accept", "content": map[string]string{"text": "In French."}}})
		if status != http.StatusOK {
			t.Fatalf("%d %s; want status = http.StatusOK", status, answer)
		}
		p.ends(t, made, "completed")
		if asked := fakes["claude"].Asked("In French."); len(asked) == 0 {
			t.Errorf("the agent was not told; got len(asked) = %v; want len(asked) other than 0", len(asked))
		}
	})
	t.Run("the provider fails, and another program goes on", func(t *testing.T) {
		made := p.create(t, "claude", "Go on. "+playNoMoney)
		p.ends(t, made, "completed")
		th := p.thread(t, made.ThreadID)
		if len(th.Sessions) != 2 || th.Sessions[1].Framework != "codex" || th.Sessions[1].Workdir != th.Sessions[0].Workdir ||
			!strings.Contains(th.Sessions[1].CompletionSummary, "I went on for the other one.") {
			t.Errorf(`%+v; want len(th.Sessions) = 2, th.Sessions[1].Framework = "codex", th.Sessions[1].Workdir = `+
				`th.Sessions[0].Workdir, th.Sessions[1].CompletionSummary with "I went on for the other one."`, th)
		}
	})
	t.Run("the server is killed in the middle of a turn, and the conversation goes on", func(t *testing.T) {
		made := p.create(t, "claude", "Wait for it. "+playHang)
		p.until(t, made.Agents[0].SessionID, "it has kept what it said and did", func(session) bool {
			kept, err := filepath.Glob(filepath.Join(p.user, ".claude", "projects", "*"+filepath.Base(made.Agents[0].Workdir), "*.jsonl"))
			if err != nil || len(kept) != 1 {
				return false
			}
			data, err := os.ReadFile(kept[0])
			return err == nil && strings.Contains(string(data), `"tool_result"`) && len(fakes["claude"].Asked(playHang)) > 1
		})
		p.until(t, made.Agents[0].SessionID, "it is busy, and the registry knows", func(s session) bool {
			return s.Status == "busy" && p.thread(t, made.ThreadID).Sessions[0].TaskDelivered
		})
		p.restart(t)
		p.ends(t, made, "completed")
		th := p.thread(t, made.ThreadID)
		asked := fakes["claude"].Asked("interrupted. Go on where you stopped")
		if len(th.Sessions) != 2 || len(asked) == 0 || !strings.Contains(asked[0].Text, playHang) {
			t.Errorf("%+v, the model was told %+v; want len(th.Sessions) = 2, len(asked) other than 0, asked[0].Text with %v",
				th, asked, playHang)
		}
		told := 0
		for _, e := range th.Events {
			if e.EventType == "swarm_complete" {
				told++
			}
		}
		if told != 1 {
			t.Errorf("the end was told %d times; want told = 1", told)
		}
	})
}

func (p *plane) create(t *testing.T, program, task string) (made created) {
	t.Helper()
	status, answer := p.request(t, "POST", "/api/coding-agents/coordinator/threads",
		map[string]any{"task": task, "agentType": program, "approvalPreset": "autonomous"})
	if err := json.Unmarshal([]byte(answer), &made); err != nil || status != http.StatusCreated || len(made.Agents) != 1 ||
		made.Agents[0].SessionID == "" {
		t.Fatalf(`%d %s; want no error, status = http.StatusCreated, len(made.Agents) = 1, made.Agents[0].SessionID other than ""`,
			status, answer)
	}
	return made
}

// ends waits until the task is in a state.
func (p *plane) ends(t *testing.T, made created, state string) (h handle) {
	t.Helper()
	began := time.Now()
	for {
		_, answer := p.request(t, "GET", "/api/v1/tasks/"+made.Task, nil)
		ok(t, json.Unmarshal([]byte(answer), &h))
		if h.Task.State == state {
			return h
		}
		if time.Since(began) > waitTimeout {
			th := p.thread(t, made.ThreadID)
			t.Fatalf("not %s within %s: %s\n%+v\n%s\nwant time.Since(began) at most %v",
				state, waitTimeout, answer, th, p.picture(t, th.Sessions[len(th.Sessions)-1].SessionID), waitTimeout)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (p *plane) thread(t *testing.T, id string) (th thread) {
	t.Helper()
	status, answer := p.request(t, "GET", "/api/coding-agents/coordinator/threads/"+id, nil)
	if err := json.Unmarshal([]byte(answer), &th); err != nil || status != http.StatusOK {
		t.Fatalf("%d %s; want no error, status = http.StatusOK", status, answer)
	}
	return th
}
