package dialect_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/structured/dialect"
)

// opened is a conversation that has begun.
func opened(t *testing.T, name programs.Name) dialect.Dialect {
	t.Helper()
	d, err := dialect.New(dialect.Config{Framework: name, Workdir: "/w", Version: "1"})
	if err != nil {
		t.Fatal(err)
	}
	d.Begin()
	lines := map[programs.Name][]string{
		programs.Claude: {`{"type":"control_response","response":{"subtype":"success","request_id":"junctor-1"}}`},
		programs.Codex: {
			`{"id":1,"result":{}}`, `{"id":2,"result":{"thread":{"id":"th"}}}`,
			`{"method":"turn/started","params":{"threadId":"th","turn":{"id":"tu"}}}`,
		},
	}[name]
	if lines == nil {
		lines = []string{`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1}}`, `{"jsonrpc":"2.0","id":2,"result":{"sessionId":"s1"}}`}
	}
	for _, l := range lines {
		handleLine(t, d, l)
	}
	return d
}

func handleLine(t *testing.T, d dialect.Dialect, line string) dialect.Step {
	t.Helper()
	s, err := d.HandleLine([]byte(line))
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return s
}

func TestQuestionsOfAgentsHaveTheirAnswersAsOptions(t *testing.T) {
	for name, c := range map[programs.Name]struct{ ask, first, none string }{
		programs.Claude: {
			`{"type":"control_request","request_id":"r","request":{"subtype":"can_use_tool","tool_name":"AskUserQuestion","input":{"questions":[{"question":"Which?","header":"h","options":[{"label":"Red"},{"label":"Blue"}]}]}}}`,
			`"answers":{"Which?":"Red"}`, `"behavior":"deny"`,
		},
		programs.Codex: {
			`{"id":9,"method":"item/tool/requestUserInput","params":{"threadId":"th","questions":[{"id":"q1","question":"Which?","options":[{"label":"Red"},{"label":"Blue"}]}]}}`,
			`{"id":9,"result":{"answers":{"q1":{"answers":["Red"]}}}}`, `{"id":9,"result":{"answers":{}}}`,
		},
	} {
		d := opened(t, name)
		s := handleLine(t, d, c.ask)
		if len(s.Told) != 1 || s.Told[0].Kind != dialect.Asked {
			t.Fatalf("%s: %+v; want len(s.Told) = 1, s.Told[0].Kind = dialect.Asked", name, s)
		}
		q := s.Told[0].Question
		if q.Type != "question" || q.Prompt != "Which?" || strings.Join(q.Labels(), "|") != "Red|Blue|Do not answer" {
			t.Errorf(`%s: %+v; want q.Type = "question", q.Prompt = "Which?", strings.Join(q.Labels(), "|") = "Red|Blue|Do not answer"`,
				name, q)
		}
		if out := d.Fill(q, map[string][]string{q.Form[0].ID: {"Red"}}).Out; len(out) != 1 || !strings.Contains(string(out[0]), c.first) {
			t.Errorf("%s: Red is answered by %s, want %s in it", name, out, c.first)
		}
		if out := d.Answer(q, 2, "").Out; len(out) != 1 || !strings.Contains(string(out[0]), c.none) {
			t.Errorf("%s: no answer is sent as %s, want %s in it", name, out, c.none)
		}
		two := strings.Replace(c.ask, `"questions":[`, `"questions":[{"id":"q0","question":"What?","options":[{"label":"x"}]},`, 1)
		s = handleLine(t, d, two)
		if len(s.Told) != 1 || len(s.Told[0].Question.Form) != 2 || strings.Join(s.Told[0].Question.Labels(), "|") != "Do not answer" {
			t.Errorf("%s: two questions are %+v, want a form of two", name, s)
		}
		// A form that cannot be shown whole is refused at once.
		for what, long := range map[string]string{
			"a long text": strings.Replace(c.ask, "Which?", strings.Repeat("x", 3_000), 1),
			"a long form": strings.Replace(c.ask, `"questions":[`, `"questions":[`+strings.Repeat(`{"id":"q0","question":"What?","options":[{"label":"x"}]},`, 8), 1),
		} {
			if s := handleLine(t, d, long); len(s.Told) != 0 || len(s.Out) != 1 {
				t.Errorf("%s: %s: told %d events and sent %d messages, want a refusal", name, what, len(s.Told), len(s.Out))
			}
		}
	}
}

func TestWhatCodexWantsToChangeIsKnownWhenItAsks(t *testing.T) {
	d := opened(t, programs.Codex)
	handleLine(t, d, `{"method":"item/started","params":{"threadId":"th","item":{"type":"fileChange","id":"i1","changes":[{"path":"/w/a","diff":"+a","kind":{"type":"update","move_path":"/etc/b"}},{"path":"/w/c","kind":{"type":"add"}}]}}}`)
	q := handleLine(t, d, `{"id":0,"method":"item/fileChange/requestApproval","params":{"threadId":"th","turnId":"tu","itemId":"i1","grantRoot":"/r"}}`).Told[0].Question
	if q.Tool != "apply_patch" || string(q.Input) != `{"changes":[{"path":"/w/a","diff":"+a"},{"path":"/w/c","diff":""}],"paths":["/w/a","/etc/b","/w/c","/r"]}` {
		t.Errorf("%s %s", q.Tool, q.Input)
	}
	q = handleLine(t, d, `{"id":1,"method":"item/fileChange/requestApproval","params":{"threadId":"th","itemId":"never told"}}`).Told[0].Question
	if string(q.Input) != `{"changes":[],"paths":[]}` {
		t.Errorf(`of a change that is not known: %s; want string(q.Input) = "{\"changes\":[],\"paths\":[]}"`, q.Input)
	}
}

// TestCommandsOfGeminiAreKnownWhenItAsks: its request has the command as a title, and the folder as a text.
func TestCommandsOfGeminiAreKnownWhenItAsks(t *testing.T) {
	for _, c := range []struct{ kind, where, input string }{
		{"execute", "[current working directory /w] (says [in /etc])", `{"command":"make > x","cwd":"/w"}`},
		{"execute", "[in sub] (builds)", `{"command":"make > x","cwd":"sub"}`},
		{"execute", "[in ..] (x] y)", `{"text":"[in ..] (x] y)","title":"make > x"}`}, // the folder could also be "..] (x"
		{"execute", "[in a]/../../..]", `{"text":"[in a]/../../..]","title":"make > x"}`},
		{"execute", "[current working directory /w2]", `{"text":"[current working directory /w2]","title":"make > x"}`},
		{"other", "[current working directory /w]", `{}`},
	} {
		q := handleLine(t, opened(t, programs.Gemini), fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":"session/request_permission","params":`+
			`{"sessionId":"s1","options":[{"optionId":"a","name":"Allow","kind":"allow_once"}],"toolCall":{"kind":%q,"title":"make > x",`+
			`"content":[{"type":"content","content":{"type":"text","text":%q}}]}}}`, c.kind, c.where)).Told[0].Question
		if string(q.Input) != c.input {
			t.Errorf("a request of kind %s in %q: got the input %s, want %s", c.kind, c.where, q.Input, c.input)
		}
	}
}

func TestThreadsAndHelpersThatAreNotOursAreNotHeard(t *testing.T) {
	for name, lines := range map[programs.Name][]string{
		programs.Codex: {
			`{"method":"turn/started","params":{"threadId":"other","turn":{"id":"x"}}}`,
			`{"method":"turn/completed","params":{"threadId":"other","turn":{"id":"x","status":"completed"}}}`,
		},
		programs.Claude: {`{"type":"assistant","parent_tool_use_id":"t","message":{"content":[{"type":"text","text":"of a helper"}]}}`},
		programs.Gemini: {`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"other","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"x"}}}}`},
	} {
		d := opened(t, name)
		for _, l := range lines {
			if s := handleLine(t, d, l); len(s.Told)+len(s.Out) != 0 {
				t.Errorf("%s: %+v; want len(s.Told) + len(s.Out) = 0", name, s)
			}
		}
	}
}

func TestTurnsThatFailSayWhy(t *testing.T) {
	result := `{"type":"result","subtype":%q,"is_error":true,"api_error_status":%s,"result":%q,"session_id":"s"}`
	codex := `{"method":"turn/completed","params":{"threadId":"th","turn":{"id":"tu","status":"failed","error":{"message":"it went wrong","codexErrorInfo":%s}}}}`
	prompt := `{"jsonrpc":"2.0","id":3,%s}`
	for _, c := range []struct {
		name       programs.Name
		line, want string
	}{
		{programs.Claude, fmt.Sprintf(result, "success", "401", "x"), "failed:auth"},
		{programs.Claude, fmt.Sprintf(result, "success", "null", "Credit balance is too low"), "failed:billing"},
		{programs.Claude, fmt.Sprintf(result, "success", "null", "Not logged in · Please run /login"), "failed:auth"},
		{programs.Claude, fmt.Sprintf(result, "success", "529", ""), "failed:server"},
		{programs.Claude, fmt.Sprintf(result, "error_max_turns", "null", ""), "failed:limit"},
		{programs.Claude, fmt.Sprintf(result, "error_during_execution", "null", "hm"), "failed:unknown"},
		{programs.Codex, fmt.Sprintf(codex, `"usageLimitExceeded"`), "failed:rate_limit"},
		{
			programs.Codex,
			strings.Replace(fmt.Sprintf(codex, `"usageLimitExceeded"`), "it went wrong", "Check your plan and billing details.", 1),
			"failed:billing",
		},
		{programs.Codex, fmt.Sprintf(codex, `{"responseStreamConnectionFailed":{"httpStatusCode":401}}`), "failed:auth"},
		{programs.Codex, fmt.Sprintf(codex, `{"responseStreamDisconnected":{"httpStatusCode":null}}`), "failed:network"},
		{programs.Codex, fmt.Sprintf(codex, `null`), "failed:unknown"},
		{programs.Gemini, fmt.Sprintf(prompt, `"error":{"code":429,"message":"x"}`), "failed:rate_limit"},
		{programs.Gemini, fmt.Sprintf(prompt, `"error":{"code":403,"message":"requires billing to be enabled"}`), "failed:billing"},
		{programs.Gemini, fmt.Sprintf(prompt, `"error":{"code":-32000,"message":"x"}`), "failed:auth"},
		{programs.Gemini, fmt.Sprintf(prompt, `"result":{"stopReason":"max_tokens"}`), "failed:limit"},
		{programs.OpenCode, fmt.Sprintf(prompt, `"result":{"stopReason":"refusal"}`), "failed:refused"},
		{programs.OpenCode, fmt.Sprintf(prompt, `"result":[]`), "failed:protocol"},
		{programs.OpenCode, fmt.Sprintf(prompt, `"result":{"stopReason":"cancelled"}`), "interrupted"},
	} {
		d := opened(t, c.name)
		d.Say("text", false)
		s := handleLine(t, d, c.line)
		if end := s.Told[len(s.Told)-1]; end.Kind != dialect.Ended || end.Phase != c.want {
			t.Errorf("%s: %s ends with %+v, and should with %s; want end.Kind = dialect.Ended, end.Phase = %v",
				c.name, c.line, end, c.want, c.want)
		}
	}
}

// What a turn ends with is the last message, not all that was said on the way.
func TestTheLastMessageIsWhatATurnEndsWith(t *testing.T) {
	d := opened(t, programs.OpenCode)
	d.Say("text", false)
	update := `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s1","update":{"sessionUpdate":%s}}}`
	chunk := `"agent_message_chunk","messageId":%q,"content":{"type":"text","text":%q}`
	for _, u := range []string{
		fmt.Sprintf(chunk, "m1", "I will look."), `"tool_call","toolCallId":"c","title":"read","kind":"read"`,
		fmt.Sprintf(chunk, "m2", "Not yet."), fmt.Sprintf(chunk, "m3", "All "), fmt.Sprintf(chunk, "m3", "done."),
	} {
		handleLine(t, d, fmt.Sprintf(update, u))
	}
	s := handleLine(t, d, `{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"}}`)
	if end := s.Told[len(s.Told)-1]; end.Text != "All done." {
		t.Errorf(`it ends with %+v; want end.Text = "All done."`, end)
	}
	if _, ok := d.Say("more", true); ok {
		t.Error("a text was said in the middle of a turn, for which the protocol has no way")
	}
}

// TestAToolThatRanAfterItsQuestionWasWithdrawn: something else has answered, if the tool then worked.
func TestAToolThatRanAfterItsQuestionWasWithdrawn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		failed string
		want   int
	}{"it ran": {"false", 1}, "it was refused": {"true", 0}} {
		d := opened(t, programs.Claude)
		s := handleLine(t, d, `{"type":"control_request","request_id":"r","request":{"subtype":"can_use_tool","tool_name":"Bash","tool_use_id":"t1","input":{"command":"ls"}}}`)
		d.Answer(s.Told[0].Question, 1, "") // too late
		handleLine(t, d, `{"type":"control_cancel_request","request_id":"r"}`)
		result := `{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t1","is_error":` + c.failed + `}]}}`
		got := 0
		for range 2 { // it is reported once
			for _, one := range handleLine(t, d, result).Told {
				if one.Kind == dialect.Elsewhere && one.Tool == "Bash" {
					got++
				}
			}
		}
		if got != c.want {
			t.Errorf("%s: reported %d times as answered elsewhere, want %d", name, got, c.want)
		}
	}
}
