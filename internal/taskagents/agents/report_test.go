package agents_test

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/agents"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
)

// Gemini CLI tells of the end of a turn that failed or was interrupted as of any other.
func TestAnEndWithoutAnAnswer(t *testing.T) {
	for _, said := range []string{"", "[no response text]"} {
		body, err := json.Marshal(map[string]string{"hook_event_name": "AfterAgent", "prompt_response": said})
		if err != nil {
			t.Fatal(err)
		}
		if r, err := agents.ReadReport(body); err != nil || r.Kind != agents.Activity || r.Fact != nil || r.Response != "" {
			t.Errorf(`%q: %+v %v; want no error, r.Kind = agents.Activity, r.Fact = nil, r.Response = ""`, said, r, err)
		}
	}
}

// TestRecordedBodies reads a body of each event as real programs sent it.
func TestRecordedBodies(t *testing.T) {
	want := map[string]string{
		"claude Notification idle_prompt":          "waiting ready",
		"claude Notification permission_prompt":    "waiting blocked:permission",
		"claude PermissionRequest":                 "permission Write",
		"claude PostToolUse":                       "activity busy",
		"claude PreToolUse":                        "tool_start busy:tool Write",
		"claude SessionEnd":                        "note",
		"claude Stop":                              "complete done",
		"claude StopFailure authentication_failed": "failure failed:auth",
		"claude StopFailure billing_error":         "failure failed:billing",
		"claude UserPromptSubmit":                  "submitted busy",
		"codex PermissionRequest":                  "permission Bash",
		"codex PostToolUse":                        "activity busy",
		"codex PreToolUse":                         "tool_start busy:tool Bash",
		"codex SessionStart":                       "note",
		"codex Stop":                               "complete done",
		"codex UserPromptSubmit":                   "submitted busy",
		"codex notify":                             "complete done",
		"gemini AfterAgent":                        "complete done",
		"gemini AfterTool":                         "activity busy",
		"gemini BeforeAgent":                       "submitted busy",
		"gemini BeforeTool":                        "tool_start busy:tool write_file",
		"gemini Notification ToolPermission":       "waiting blocked:permission",
		"gemini SessionEnd":                        "note",
		"gemini SessionStart":                      "note",
	}
	const answer = "DECISION: wrote hello.txt because the task asked for it.\nDone: created hello.txt with one line."
	got := map[string]string{}
	f, err := os.Open("testdata/hooks.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var fixture struct {
			CLI, Event string
			Body       json.RawMessage
		}
		var detail struct {
			Type  string `json:"notification_type"`
			Error string
		}
		if err := json.Unmarshal(lines.Bytes(), &fixture); err != nil {
			t.Fatal(err)
		}
		_ = json.Unmarshal(fixture.Body, &detail)
		name := strings.TrimSpace(fixture.CLI + " " + fixture.Event + " " + detail.Type + detail.Error)
		r, err := agents.ReadReport(fixture.Body)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		word := string(r.Kind)
		if r.Fact != nil {
			s := detect.Status{State: r.Fact.State, Phase: r.Fact.Phase}
			if s.State == detect.Blocked {
				s.Blocker = &detect.Blocker{Type: r.Fact.Kind}
			}
			word += " " + s.Word()
			if r.Fact.Class != 2 || r.Fact.Source != "hook:"+r.Event {
				t.Errorf(`%s: %+v; want r.Fact.Class = 2, r.Fact.Source = "hook:" + r.Event`, name, r.Fact)
			}
		}
		if r.Kind == agents.ToolStart || r.Kind == agents.Permission {
			word += " " + r.Tool
			if !strings.Contains(string(r.Input), "hello.txt") {
				t.Errorf(`%s: %s; want string(r.Input) with "hello.txt"`, name, r.Input)
			}
		}
		got[name] = word
		if r.Token == "" || r.Cwd == "" {
			t.Errorf(`%s: %+v; want r.Token other than "", r.Cwd other than ""`, name, r)
		}
		if r.Kind == agents.Complete && r.Response != answer {
			t.Errorf("%s: %q; want not (r.Kind == agents.Complete && r.Response != answer)", name, r.Response)
		}
		if fixture.Event == "notify" && len(r.Prompts) != 1 {
			t.Errorf(`%s: %q; want not (fixture.Event == "notify" && len(r.Prompts) != 1)`, name, r.Prompts)
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("diff (-want +got):\n%s", d)
	}
}

func TestOtherBodies(t *testing.T) {
	for name, c := range map[string]struct{ body, want string }{
		"a turn with work in the background": {`{"hook_event_name":"Stop","background_tasks":[{"id":1}]}`, "activity"},
		"an item of the program's list":      {`{"hook_event_name":"TaskCompleted","task_id":"3"}`, "activity"},
		"the whole task":                     {`{"hook_event_name":"TaskCompleted"}`, "complete"},
		"a question": {
			`{"hook_event_name":"Notification","notification_type":"elicitation_dialog","message":"which?"}`,
			"waiting",
		},
		"a notification without effect": {`{"hook_event_name":"Notification","notification_type":"auth_success"}`, "note"},
		"compaction":                    {`{"hook_event_name":"PreCompact"}`, "activity"},
		"a decision":                    {`{"event":"decision","sessionId":"pty-1-a","data":{"text":" use\n tabs "}}`, "decision"},
		"something new":                 {`{"hook_event_name":"Teleported"}`, "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := agents.ReadReport([]byte(c.body))
			if err != nil || string(r.Kind) != c.want {
				t.Errorf("%+v %v; want no error, string(r.Kind) = %v", r, err, c.want)
			}
			if r.Kind == agents.Decision && (r.Text != "use tabs" || r.Session != "pty-1-a") {
				t.Errorf(`%+v; want not (r.Kind == agents.Decision && (r.Text != "use tabs" || r.Session != "pty-1-a"))`, r)
			}
		})
	}
	for body, want := range map[string]string{
		"": "not_json", "[]": "not_json", `{"hook_event_name":3}`: "not_json", `{"hook_event_name":"a","hook_event_name":"b"}`: "not_json",
		"{}": "no_event", `{"session_id":"x"}`: "no_event",
	} {
		if _, err := agents.ReadReport([]byte(body)); capability.AsError(err).Reason != want {
			t.Errorf("%s: %v; want capability.AsError(err).Reason = %v", body, err, want)
		}
	}
	if _, err := agents.ReadReport(make([]byte, agents.MaxBody+1)); capability.CodeOf(err) != capability.CodeTooLarge {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeTooLarge", err)
	}
	r, err := agents.ReadReport([]byte(`{"event":"decision","data":{"text":"` + strings.Repeat("ä", 3000) + `"}}`))
	if err != nil || len([]rune(r.Text)) != 2000 {
		t.Errorf("err = %v, want nil; len([]rune(r.Text)) = %v, want 2000; len(r.Text) = %v", err, len([]rune(r.Text)), len(r.Text))
	}
	for name, want := range map[string]string{
		"billing_error": "billing", "rate_limit": "rate_limit", "Overloaded Error\n": "overloadederror",
		"": "unknown", "💥": "unknown",
	} {
		body, _ := json.Marshal(map[string]string{"hook_event_name": "StopFailure", "error": name})
		if r, err := agents.ReadReport(body); err != nil || r.Failure != want || r.Fact.Phase != "failed:"+want {
			t.Errorf(`%q: %+v %v; want no error, r.Failure = %v, r.Fact.Phase = "failed:" + want`, name, r, err, want)
		}
	}
}

func TestReplies(t *testing.T) {
	deny := agents.Verdict{Deny: true, Reason: "stay inside the folder"}
	for _, c := range []struct {
		event   string
		verdict agents.Verdict
		want    string
	}{
		{"PermissionRequest", agents.Verdict{Allow: true}, `{"hookSpecificOutput":{"hookEventName":"PermissionRequest","decision":{"behavior":"allow"}}}`},
		{"PermissionRequest", deny, `{"hookSpecificOutput":{"hookEventName":"PermissionRequest","decision":{"behavior":"deny","message":"stay inside the folder"}}}`},
		{"PermissionRequest", agents.Verdict{}, `{}`},
		{"PreToolUse", deny, `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"stay inside the folder"}}`},
		{"PreToolUse", agents.Verdict{Allow: true}, `{}`}, // its own question is asked all the same
		{"BeforeTool", deny, `{"decision":"deny","reason":"stay inside the folder"}`},
		{"BeforeTool", agents.Verdict{}, `{}`},
		{"AfterTool", agents.Verdict{}, `{"continue":true}`},
		{"Stop", deny, `{}`}, // no program is kept from stopping
		{"SessionEnd", agents.Verdict{}, `{}`},
		{"decision", agents.Verdict{}, `{"status":"ok"}`},
		{"Teleported", agents.Verdict{}, `{"reason":"unknown_event","status":"ignored"}`},
	} {
		r, err := agents.ReadReport([]byte(`{"hook_event_name":"` + c.event + `"}`))
		if err != nil {
			t.Fatal(err)
		}
		if got := string(r.Reply(c.verdict)); got != c.want {
			t.Errorf("%s %+v: %s; want got = %v", c.event, c.verdict, got, c.want)
		}
	}
}

func FuzzRead(f *testing.F) {
	data, err := os.ReadFile("testdata/hooks.ndjson")
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var fixture struct{ Body json.RawMessage }
		_ = json.Unmarshal([]byte(line), &fixture)
		f.Add([]byte(fixture.Body))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := agents.ReadReport(data)
		if err != nil {
			return
		}
		if len(r.Event) > 128 || len(r.Tool) > 128 || len(r.Token) > 128 || len([]rune(r.Text)) > 2000 || r.Kind == agents.Complete &&
			r.Fact == nil {
			t.Errorf("%+v; want len(r.Event) at most 128, len(r.Tool) at most 128, len(r.Token) at most 128, "+
				"len([]rune(r.Text)) at most 2000, not (r.Kind == agents.Complete && r.Fact == nil)", r)
		}
		for _, v := range []agents.Verdict{{}, {Allow: true}, {Deny: true, Reason: r.Tool}} {
			if reply := r.Reply(v); !json.Valid(reply) || r.Event == "Stop" && string(reply) != "{}" {
				t.Errorf(`%s; want json.Valid(reply), not (r.Event == "Stop" && string(reply) != "{}")`, reply)
			}
		}
	})
}
