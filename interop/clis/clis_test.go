package clis

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/internal/platform/scriptedmodel"
)

// program is what the tests know of a program.
type program struct {
	name, binary, base, model, provider string
	files                               map[string]string // of its user, left as they are
	not                                 map[string]string // why it has no mode, or no cell of the suite: in both modes, or in one
	once                                string            // why it has in a terminal only cells of one turn without a question
	long                                []string          // cells that take long
	checksPaths                         bool              // before it asks its hooks
	three                               string            // the third label of a dialog about a command
	bigOver                             map[string]string // modes in which 5 MB of output end the turn, and what is shown
	presets                             bool              // the presets are tried
	slow                                bool              // its sessions are tried one after the other
}

func programs() []program {
	return []program{
		{
			name: "claude", binary: "claude", presets: true,
			not: map[string]string{
				"a form, pty": "a form of several questions has no numbers on the screen",
			},
			files: map[string]string{
				".claude.json": `{"hasCompletedOnboarding":true,"mine":[1, 2]}`,
				".claude/settings.json": "{\n \"theme\": \"light\", \"hooks\": {\"Stop\": [{\"hooks\": [{\"type\": \"command\", " +
					"\"command\": \"true\"}]}]}\n}\n",
				".claude/CLAUDE.md": "Be kind.\n",
			},
		},
		{
			name: "codex", binary: "codex", presets: true, base: "/v1", model: "gpt-5.5", three: "No, and tell Codex",
			long: []string{"the connection is cut", "the server is killed while it asks"}, // it tries again for 8 s
			not: map[string]string{
				"a question, pty": "not offered", "a form, pty": "not offered", "a plan": "its mode for plans is chosen in its own terminal only",
			},
			files: map[string]string{".codex/config.toml": "model = \"mine\"\n", ".codex/AGENTS.md": "Be kind.\n", ".codex/auth.json": "{}\n"},
		},
		{
			name: "gemini", binary: "gemini", bigOver: map[string]string{"structured": "the program ended the turn: max_tokens"},
			checksPaths: true, presets: true, slow: true, model: "gemini-2.5-pro",
			not: map[string]string{
				"a question":                "not offered without a terminal; in one, its dialog may stay after the answer",
				"a form":                    "not offered, or without numbers on the screen",
				"a plan":                    "a model plans only with readonly, into a file",
				"it is resumed, structured": "Gemini CLI 0.61.0 does not find a conversation again that it had over ACP",
			},
			files: map[string]string{".gemini/GEMINI.md": "Be kind.\n", ".gemini/trustedFolders.json": "{\"/somewhere\": \"TRUST_FOLDER\"}\n"},
		},
		{
			name: "qwen", binary: "qwen", base: "/v1", model: "scripted", slow: true,
			not: map[string]string{
				"a question": "not tried yet", "a form": "not tried yet", "a plan": "not tried yet",
				"no money is left": "how it shows this failure is not known yet",
			},
			files: map[string]string{".qwen/QWEN.md": "Be kind.\n", ".qwen/settings.json": "" +
				"{\n  \"security\": {\n    \"folderTrust\": {\n      \"enabled\": true\n    }\n  },\n  \"$version\": 4\n}\n"},
		},
		{
			name: "opencode", binary: "opencode", base: "/v1", model: "scripted", presets: true, slow: true,
			once: "opencode run does one task and ends, and refuses what it would have to ask about",
			not: map[string]string{
				"usage, pty":       "opencode run does not report it, and its records are a database",
				"no money is left": "how it shows this failure is not known yet",
			},
			files: map[string]string{".config/opencode/opencode.json": "" +
				"{\n  \"$schema\": \"https://opencode.ai/config.json\",\n  \"theme\": \"system\"\n}\n"},
		},
		{
			name: "pi", binary: "pi", model: "claude-sonnet-4-5", provider: "anthropic",
			not: map[string]string{
				"structured": "Pi has no protocol of its own here", "a question": "not offered", "a form": "not offered", "a plan": "not offered",
				"a file outside":   "Pi has no hooks: only the list of its tools holds it back",
				"allowed by label": "Pi never asks", "denied by label": "Pi never asks", "allowed by number": "Pi never asks",
				"denied by number": "Pi never asks", "the server is killed while it asks": "Pi never asks",
			},
			files: map[string]string{".pi/agent/AGENTS.md": "Be kind.\n"},
		},
	}
}

// run is a program under test.
type run struct {
	program
	*plane
	fake *scriptedmodel.Model
}

func (r *run) spawn(t *testing.T, preset, dir, task, resume string) session {
	t.Helper()
	return r.spawnIn(t, "pty", preset, dir, task, resume)
}

func (r *run) spawnIn(t *testing.T, mode, preset, dir, task, resume string) session {
	t.Helper()
	return r.spawned(t, r.spawning(mode, preset, dir, task, resume))
}

func (r *run) spawned(t *testing.T, body map[string]any) session {
	t.Helper()
	status, answer := r.request(t, "POST", "/api/coding-agents/spawn", body)
	var made struct{ Session session }
	if err := json.Unmarshal([]byte(answer), &made); err != nil || status != http.StatusCreated {
		t.Fatalf("%d %s; want no error, status = http.StatusCreated", status, answer)
	}
	return made.Session
}

// spawning returns the body of a request that starts a session.
func (r *run) spawning(mode, preset, dir, task, resume string) map[string]any {
	return map[string]any{
		"agentType": r.name, "workdir": dir, "task": task, "approvalPreset": preset, "resumeToken": resume, "mode": mode,
		"model": r.model, "provider": r.provider, "baseUrl": r.fake.URL() + r.base,
		"metadata": map[string]any{"keepAliveAfterComplete": true, "threadId": "one"},
		// There is nothing beyond this machine.
		"customCredentials": map[string]string{
			"HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9",
			"NO_PROXY": "127.0.0.1,localhost", "CLAUDE_CODE_MAX_RETRIES": "1",
		},
	}
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
