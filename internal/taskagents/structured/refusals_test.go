package structured_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/internal/platform/process"
	"github.com/junctor-run/junctor/internal/taskagents/permit"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
	"github.com/junctor-run/junctor/internal/taskagents/structured"
)

// rules allow reading, refuse the web, and ask about all else.
func rules(tool string, _ []byte) permit.Decision {
	d := permit.Decision{Category: programs.CategoryOf(programs.Claude, tool), Effect: permit.Ask}
	switch d.Category {
	case programs.FileRead:
		d.Effect = permit.Allow
	case programs.Web:
		d.Effect = permit.Deny
	}
	return d
}

// TestRefusalsOfAProgram ends turns of Claude Code that report refused tool calls.
func TestRefusalsOfAProgram(t *testing.T) {
	denial := func(tool, input string) string {
		return fmt.Sprintf(`{"tool_name":%q,"tool_use_id":"call-%s","tool_input":%s}`, tool, tool, input)
	}
	for name, c := range map[string]struct {
		denials, subtype string
		end              sessions.Type
		want             []sessions.Refusal
	}{
		"asked about": {
			denial("Bash", `{"command":"make"}`), "success", sessions.TurnFailed,
			[]sessions.Refusal{{Tool: "Bash", What: "make", By: sessions.Unasked}},
		},
		"refused by the preset, and allowed": {
			denial("WebFetch", `{"url":"u"}`) + "," + denial("Read", `{"file_path":"f"}`), "success", sessions.TaskComplete,
			[]sessions.Refusal{{Tool: "WebFetch", What: "u", By: sessions.ByPreset}, {Tool: "Read", What: "f", By: sessions.ByProgram}},
		},
		"a question to the user": {denial("AskUserQuestion", `{}`), "success", sessions.TaskComplete, nil},
		"none":                   {"", "success", sessions.TaskComplete, nil},
		"a failed turn": {
			denial("Bash", `{"command":"make"}`), "error_max_turns", sessions.TurnFailed,
			[]sessions.Refusal{{Tool: "Bash", What: "make", By: sessions.Unasked}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := start(t, programs.Claude, func(p *child) process.Exit {
					hello(t, p)
					p.receive(t, "go")
					p.say(inited)
					p.say(`{"type":"result","subtype":%q,"is_error":false,"result":"over","session_id":"t1","permission_denials":[%s]}`,
						c.subtype, c.denials)
					return p.wait()
				}, func(s *structured.Spec) { s.Task, s.Rules = "go", rules })
				e := r.until(c.end, 1)
				i := r.Info()
				if d := cmp.Diff(c.want, i.Refusals); d != "" {
					t.Errorf("refusals (-want +got):\n%s", d)
				}
				if refused := name == "asked about"; refused != (e.Kind == "permission_refused") {
					t.Errorf("the turn ended with %+v, permission_refused is wanted: %v", e, refused)
				}
			})
		})
	}
}

// TestADeclinedCommandOfCodex: one that the user declined is listed only; one that was declined without a
// question makes the turn fail.
func TestADeclinedCommandOfCodex(t *testing.T) {
	for asked, end := range map[bool]sessions.Type{true: sessions.TaskComplete, false: sessions.TurnFailed} {
		synctest.Test(t, func(t *testing.T) {
			r := start(t, programs.Codex, func(p *child) process.Exit {
				p.receive(t, "initialize")
				p.say(`{"id":1,"result":{}}`)
				p.receive(t, "initialized")
				p.receive(t, "thread/start")
				p.say(`{"id":2,"result":{"thread":{"id":"th"}}}`)
				p.receive(t, "turn/start")
				p.say(`{"method":"turn/started","params":{"threadId":"th","turn":{"id":"tu"}}}`)
				p.say(`{"id":3,"result":{}}`)
				if asked {
					p.say(`{"id":9,"method":"item/commandExecution/requestApproval","params":{"threadId":"th","itemId":"i1","command":"make"}}`)
					p.receive(t, "decline")
				}
				p.say(`{"method":"item/completed","params":{"threadId":"th","item":{"type":"commandExecution","id":"i1","status":"declined","command":"make"}}}`)
				p.say(`{"method":"turn/completed","params":{"threadId":"th","turn":{"id":"tu","status":"completed"}}}`)
				return p.wait()
			}, func(s *structured.Spec) { s.Task, s.Rules = "go", rules })
			want := sessions.Refusal{Tool: "exec_command", What: "make", By: sessions.Unasked}
			if asked {
				want.By = sessions.ByAnswer
				r.until(sessions.BlockedNow, 1)
				if err := r.Choose(t.Context(), "", "Deny"); err != nil {
					t.Fatalf("declining the command: %v", err)
				}
			}
			r.until(end, 1)
			if d := cmp.Diff([]sessions.Refusal{want}, r.Info().Refusals); d != "" {
				t.Errorf("refusals, asked %v (-want +got):\n%s", asked, d)
			}
		})
	}
}

// TestAPresetMayRefuseButNotAllowACallThatAServerCouldForge: a request for a call of an MCP tool has no other
// form than a question of an MCP server can have.
func TestAPresetMayRefuseButNotAllowACallThatAServerCouldForge(t *testing.T) {
	for effect, answer := range map[permit.Effect]string{permit.Allow: "accept", permit.Deny: "decline"} {
		synctest.Test(t, func(t *testing.T) {
			r := start(t, programs.Codex, func(p *child) process.Exit {
				p.receive(t, "initialize")
				p.say(`{"id":1,"result":{}}`)
				p.receive(t, "initialized")
				p.receive(t, "thread/start")
				p.say(`{"id":2,"result":{"thread":{"id":"th"}}}`)
				p.receive(t, "turn/start")
				p.say(`{"method":"turn/started","params":{"threadId":"th","turn":{"id":"tu"}}}`)
				p.say(`{"id":3,"result":{}}`)
				p.say(`{"id":9,"method":"mcpServer/elicitation/request","params":{"threadId":"th","serverName":"files","mode":"form","message":"Allow it?",` +
					`"requestedSchema":{"type":"object","properties":{}},"_meta":{"codex_approval_kind":"mcp_tool_call","tool_name":"remove"}}}`)
				p.receive(t, answer)
				p.say(`{"method":"turn/completed","params":{"threadId":"th","turn":{"id":"tu","status":"completed"}}}`)
				return p.wait()
			}, func(s *structured.Spec) {
				s.Task, s.Rules = "go", rules
				s.Judge = func(context.Context, structured.Ask) permit.Decision { return permit.Decision{Effect: effect} }
			})
			if effect == permit.Allow {
				r.until(sessions.BlockedNow, 1)
				if err := r.Choose(t.Context(), "", "Allow"); err != nil {
					t.Fatalf("allowing the call: %v", err)
				}
			}
			r.until(sessions.TaskComplete, 1)
		})
	}
}
