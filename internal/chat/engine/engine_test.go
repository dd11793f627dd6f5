package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/chat/agent"
	"github.com/junctor-run/junctor/internal/chat/engine"
	"github.com/junctor-run/junctor/internal/core/command"
	"github.com/junctor-run/junctor/internal/core/command/fault"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/core/session"
	"github.com/junctor-run/junctor/internal/core/tasks"
	"github.com/junctor-run/junctor/internal/testkit/sessiontest"
)

// invoker answers by the name of the action.
type invoker struct {
	calls      []capability.Invocation
	unverified error // of Verify
}

func (e *invoker) NewID() string { return "run_1" }

func (e *invoker) Verify(context.Context, capability.Invocation) error { return e.unverified }

func (e *invoker) Follow(_ context.Context, inv capability.Invocation, _ func(invoke.State)) (invoke.Reply, error) {
	e.calls = append(e.calls, inv)
	reply := invoke.Reply{Invocation: inv.ID, State: invoke.StateFailed}
	_, action, _ := strings.Cut(inv.Target.Member.Name, ".")
	switch action {
	case "deny":
		return reply, fault.PermissionDenied("exec", "nobody said yes")
	case "break":
		return reply, fault.ExecutionFailed(3, "bad thing").Detail("output", "partly done\nbad thing")
	case "ask":
		return reply, capability.Errorf(capability.CodeApprovalRequired, "t", "this asks").Detail("approval", "apr_1").Detail("channel", "client")
	case "slow":
		inv.Progress(capability.Chunk{Message: "half way"})
	}
	reply.State = invoke.StateCompleted
	data, err := json.Marshal(map[string]any{
		"output":   strings.Repeat("é", 5000),
		"metadata": map[string]any{"exit_code": 0, "sandbox_tier": "T3"},
	})
	reply.Result = data
	return reply, err
}

// model is what answers ordinary engine.
type model struct {
	system string
	turns  []agent.Turn
	pieces []string
	fail   error
}

func (m *model) Answer(_ context.Context, system string, turns []agent.Turn, emit func(string) error) (string, error) {
	m.system, m.turns = system, turns
	for _, piece := range m.pieces {
		if emit == nil {
			break
		}
		if err := emit(piece); err != nil {
			return "", err
		}
	}
	if m.fail != nil {
		return "", m.fail
	}
	return strings.Join(m.pieces, ""), nil
}

// stream keeps what it receives.
type stream struct {
	text     strings.Builder
	progress int
	gone     error
}

func (s *stream) Text(piece string) error {
	s.text.WriteString(piece)
	return s.gone
}

func (s *stream) Progress(capability.Chunk) { s.progress++ }

type rig struct {
	*engine.Engine
	engine   *invoker
	model    *model
	messages *session.Messages
	results  *session.Results
}

func newRig(with *model) *rig {
	act := func(id string) command.Action { return command.Action{ID: id, Runner: "exec.x"} }
	secretive := command.Action{
		ID: "login", Runner: "exec.x", Args: []command.Arg{{Name: "user"}, {Name: "password"}},
		Sensitive: []string{"password"},
	}
	router := command.New(command.Table{Commands: append(engine.Builtins(),
		command.Command{
			Name: "x", Declared: "x", Extension: "tools.x", ExtensionName: "X", Enabled: true, Summary: "Does x",
			Usage: "docs/USAGE.md", Actions: []command.Action{act("go"), act("deny"), act("break"), act("ask"), act("slow"), secretive},
		},
		command.Command{Name: "off", Extension: "tools.off", ExtensionName: "Off", Actions: []command.Action{act("go")}},
	)})
	store := sessiontest.NewMemory()
	r := &rig{
		engine: &invoker{}, model: with, messages: session.NewMessages(session.MessagesConfig{Store: store}),
		results: session.NewResults(session.ResultsConfig{Store: store}),
	}
	cfg := engine.Config{
		Runs: tasks.NewRuns(r.engine, time.Now), Messages: r.messages, Results: r.results, Commands: func() *command.Router { return router },
		Usage: func(string) (string, error) { return "# How to x", nil },
	}
	if with != nil {
		cfg.Model = with
	}
	r.Engine = engine.New(cfg)
	return r
}

func who() capability.Principal {
	return capability.Principal{ID: "admin:ann", Role: capability.RoleAdmin}
}

func message(text string) engine.Message {
	return engine.Message{Principal: who(), Session: "s", Text: text}
}

// Every path gives the same text whole and as a stream, and it is what is kept.
func TestEveryReplyIsTextWholeAndStreamed(t *testing.T) {
	t.Parallel()
	answers := func() *model { return &model{pieces: []string{"Good ", "day"}} }
	for _, tt := range []struct {
		name, text string
		model      *model
		kind, want string
		code       capability.Code
	}{
		{"a run", "/x go a b", nil, engine.TypeOutput, strings.Repeat("é", 5000), ""},
		{"a slow run", "/x slow", nil, engine.TypeOutput, "é", ""},
		{"not found", "/z", nil, engine.TypePrompt, "there is no command /z here", capability.CodeUnknownCapability},
		{"disabled", "/off", nil, engine.TypePrompt, "which is disabled", capability.CodeUnavailable},
		{"no action", "/x fly", nil, engine.TypeError, "Hint: ", capability.CodeInvalidInput},
		{"denied", "/x deny", nil, engine.TypeError, "permission exec", capability.CodeDenied},
		{"failed, with what it said", "/x break", nil, engine.TypeError, "exit code 3: bad thing\n\npartly done", capability.CodeFailed},
		{"a question", "/x ask", nil, engine.TypeConfirmation, "this asks", capability.CodeApprovalRequired},
		{"help", "/help", nil, engine.TypeText, "/x", ""},
		{"help for one", "/help x", nil, engine.TypeText, "# How to x", ""},
		{"help for none", "/help zz", nil, engine.TypePrompt, "no command /zz", capability.CodeUnknownCapability},
		{"who", "/whoami", nil, engine.TypeText, "admin:ann, role admin", ""},
		{"a list", "/commands", nil, engine.TypeText, "/x  Does x", ""},
		{"no model", "hello", nil, engine.TypeText, "No language model is configured", ""},
		{"a model", "hello", answers(), engine.TypeText, "Good day", ""},
		{"a path is chat", "/etc/passwd is a file", answers(), engine.TypeText, "Good day", ""},
		{"an escaped slash", "//x go", answers(), engine.TypeText, "Good day", ""},
		{
			"a model that fails at once", "hello", &model{fail: capability.Errorf(capability.CodeUnavailable, "t", "the model is away")},
			engine.TypeError, "the model is away", capability.CodeUnavailable,
		},
		{
			"a model that fails half way", "hello", &model{
				pieces: []string{"Good "},
				fail:   capability.Errorf(capability.CodeUnavailable, "t", "the model is away"),
			}, engine.TypeError, "the model is away",
			capability.CodeUnavailable,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, to := range []*stream{nil, {}} {
				r := newRig(tt.model)
				var out engine.Stream
				if to != nil {
					out = to
				}
				reply, err := r.Say(t.Context(), message(tt.text), out)
				if err != nil {
					t.Fatal(err)
				}
				if reply.Type != tt.kind || !strings.Contains(reply.Message.Text, tt.want) {
					t.Errorf("%s %q; want reply.Type = %v, reply.Message.Text with %v",
						reply.Type, reply.Message.Text, tt.kind, tt.want)
				}
				if (reply.Error == nil) != (tt.code == "") || reply.Error != nil && reply.Error.Code != tt.code {
					t.Errorf(`%v; want (reply.Error == nil) = (tt.code == ""), not (reply.Error != nil && reply.Error.Code != tt.code)`,
						reply.Error)
				}
				if to != nil && to.text.String() != reply.Message.Text {
					t.Errorf("heard %q, kept %q; want not (to != nil && to.text.String() != reply.Message.Text)",
						to.text.String(), reply.Message.Text)
				}
				kept, err := r.messages.List(t.Context(), session.Owner{Principal: "admin:ann", Session: "s"}, 0, 10)
				if err != nil || len(kept) != 2 || kept[0].Role != session.RoleUser || kept[1].Text != reply.Message.Text {
					t.Errorf("%+v %v; want no error, len(kept) = 2, kept[0].Role = session.RoleUser, kept[1].Text = %v",
						kept, err, reply.Message.Text)
				}
			}
		})
	}
}

func TestARunLeavesItsTraceWithTheMessage(t *testing.T) {
	t.Parallel()
	r := newRig(nil)
	to := &stream{}
	reply, err := r.Say(t.Context(), message("/x slow"), to)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(reply.Message.Metadata, &m); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]any{
		"is_extension_output": true, "extension_id": "tools.x", "extension_name": "X", "action": "slow", "command": "/x", "status": "succeeded",
		"run_id": "run_1", "sandbox_tier": "T3", "exit_code": 0.0,
	} {
		if m[key] != want {
			t.Errorf("%s: %v; want m[key] = %v", key, m[key], want)
		}
	}
	if to.progress != 1 || len(reply.Result) == 0 {
		t.Errorf("%+v; want to.progress = 1, len(reply.Result) other than 0", reply)
	}
	call := r.engine.calls[0]
	if call.Surface != "slash" || call.Session != "s" || string(call.Input) != `{"args":[]}` ||
		call.Target.Member.String() != "tools.x:command:x.slow" {
		t.Errorf(`%+v; want call.Surface = "slash", call.Session = "s", string(call.Input) = "{\"args\":[]}", `+
			`call.Target.Member.String() = "tools.x:command:x.slow"`, call)
	}
}

func TestWhatMustNotBeRecordedIsNot(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, text, want string }{
		{"a declared secret", "/x login ann hunter2", "/x login ann " + command.Mask},
		{"of a command that is off, nobody knows", "/off login hunter2", "/off " + command.Mask},
		{"of one that does not exist, too", "/y --token hunter2", "/y " + command.Mask},
		{"a name alone", "/y", "/y"},
		{"everything else is kept", "/x go hunter2", "/x go hunter2"},
		{"chat is", "hunter2", "hunter2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(nil)
			if _, err := r.Say(t.Context(), message(tt.text), nil); err != nil {
				t.Fatal(err)
			}
			kept, err := r.messages.List(t.Context(), session.Owner{Principal: "admin:ann", Session: "s"}, 0, 1)
			if err != nil || kept[0].Text != tt.want {
				t.Errorf("%+v %v; want no error, kept[0].Text = %v", kept, err, tt.want)
			}
		})
	}
}

func TestAModelIsGivenTheConversationAndNoMore(t *testing.T) {
	t.Parallel()
	r := newRig(&model{pieces: []string{"ok"}})
	say := func(text string) {
		t.Helper()
		if _, err := r.Say(t.Context(), message(text), nil); err != nil {
			t.Fatal(err)
		}
	}
	for range 30 {
		say(strings.Repeat("long ", 2000))
	}
	say("last words")
	turns := r.model.turns
	size := 0
	for i, turn := range turns {
		if turn.Assistant != (i%2 == 1) {
			t.Fatalf("turn %d: %+v; want turn.Assistant = (i%%2 == 1)", i, turn)
		}
		size += len(turn.Text)
	}
	if last := turns[len(turns)-1]; last.Text != "last words" || size > 49<<10 || len(turns) < 9 {
		t.Errorf(`%d turns, %d bytes, the last %.20q; want last.Text = "last words", size at most 49 << 10, len(turns) at least 9`,
			len(turns), size, last.Text)
	}
	if !strings.Contains(r.model.system, "/x  Does x") || strings.Contains(r.model.system, "/off") {
		t.Errorf(`r.model.system = %q, want it to contain "/x  Does x" and it not to contain "/off"`, r.model.system)
	}
}

func TestANewConversationForgets(t *testing.T) {
	t.Parallel()
	r := newRig(nil)
	owner := session.Owner{Principal: "admin:ann", Session: "s"}
	if err := r.results.Save(t.Context(), owner, session.Result{Text: "kept", Extension: "tools.x"}); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"/x go", "/new"} {
		if _, err := r.Say(t.Context(), message(text), nil); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := r.messages.List(t.Context(), owner, 0, 10)
	if err != nil || len(kept) != 1 || kept[0].Role != session.RoleAssistant { // the reply begins the new one
		t.Errorf("%+v %v; want no error, len(kept) = 1, kept[0].Role = session.RoleAssistant", kept, err)
	}
	if _, err := r.results.Last(t.Context(), owner, session.Reader{Extension: "tools.x"}); capability.CodeOf(err) != capability.CodeNotFound {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeNotFound", err)
	}
}

func TestWhatIsNoMessageIsRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, session, text string
		code                capability.Code
	}{
		{"no text", "s", " \n", capability.CodeInvalidInput},
		{"no session", "", "hello", capability.CodeInvalidInput},
		{"a session that is none", "a b", "hello", capability.CodeInvalidInput},
		{"a novel", "s", strings.Repeat("x", 300<<10), capability.CodeTooLarge},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(nil)
			if _, err := r.Say(t.Context(), engine.Message{Principal: who(), Session: tt.session, Text: tt.text},
				nil); capability.CodeOf(err) != tt.code {
				t.Errorf("%v; want capability.CodeOf(err) = %v", err, tt.code)
			}
		})
	}
}

func TestAReplyOutlivesItsListener(t *testing.T) {
	t.Parallel()
	r := newRig(nil)
	_, err := r.Say(t.Context(), message("/x go"), &stream{gone: errors.New("hung up")})
	if capability.CodeOf(err) != capability.CodeCancelled {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeCancelled", err)
	}
	kept, err := r.messages.List(t.Context(), session.Owner{Principal: "admin:ann", Session: "s"}, 0, 10)
	if err != nil || len(kept) != 2 {
		t.Errorf("%+v %v; want no error, len(kept) = 2", kept, err)
	}
}

func TestACommandOutsideAConversation(t *testing.T) {
	t.Parallel()
	r := newRig(nil)
	run := func(text string, async bool) (engine.Done, error) {
		return r.Command(t.Context(), engine.Run{Message: engine.Message{Principal: who(), Text: text}, Async: async})
	}
	if done, err := run("/x go", false); err != nil || done.Reply.Invocation != "run_1" {
		t.Errorf(`%+v %v; want no error, done.Reply.Invocation = "run_1"`, done, err)
	}
	if done, err := run("/help", false); err != nil || !strings.Contains(done.Text, "/x") {
		t.Errorf(`%+v %v; want no error, done.Text with "/x"`, done, err)
	}
	if done, err := run("/x go", true); err != nil || done.Started == nil || done.Started.ID != "run_1" {
		t.Errorf(`%+v %v; want no error, done.Started not nil, done.Started.ID = "run_1"`, done, err)
	}
	for text, reason := range map[string]string{
		"hello": "invalid_args", "/z": "unknown_command", "/new": "invalid_args",
		"/stop": "invalid_args",
	} {
		if _, err := run(text, false); capability.AsError(err).Reason != reason {
			t.Errorf("%s: %v; want capability.AsError(err).Reason = %v", text, err, reason)
		}
	}
}

func TestACommandThatIsNotVerifiedLeavesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(nil)
	r.engine.unverified = capability.Errorf(capability.CodeDenied, "test", "the person has to confirm it").With("unconfirmed", "")
	_, err := r.Say(t.Context(), message("/x go a"), nil)
	if capability.AsError(err) == nil || capability.AsError(err).Reason != "unconfirmed" {
		t.Errorf("in a conversation: got %v, want reason unconfirmed", err)
	}
	_, err = r.Command(t.Context(), engine.Run{Message: message("/x go a"), Async: true})
	if capability.AsError(err) == nil || capability.AsError(err).Reason != "unconfirmed" {
		t.Errorf("in the background: got %v, want reason unconfirmed", err)
	}
	kept, err := r.History(t.Context(), who(), "s", 0, 10)
	if err != nil || len(kept) != 0 || len(r.engine.calls) != 0 {
		t.Errorf("stored %d messages, %d calls, error %v; want none", len(kept), len(r.engine.calls), err)
	}
	if _, err := r.Say(t.Context(), message("/help"), nil); err != nil {
		t.Errorf("a command that calls nothing: got %v, want nil", err)
	}
}

// assistant keeps the messages that it is sent.
type assistant struct {
	engine.Agent
	got []agent.Message
}

func (a *assistant) Send(_ context.Context, m agent.Message) (*agent.Follower, error) {
	a.got = append(a.got, m)
	return nil, nil
}

// A forwarded message is text of another person, for itself and for the rest of the conversation.
func TestAForwardedMessageIsForeign(t *testing.T) {
	t.Parallel()
	r, a := newRig(nil), new(assistant)
	r.Engine = engine.New(engine.Config{
		Runs: tasks.NewRuns(r.engine, time.Now), Messages: r.messages, Results: r.results, Agent: a, Model: new(model),
		Commands: func() *command.Router { return command.New(command.Table{}) },
	})
	for i, m := range []struct{ foreign, want bool }{{false, false}, {true, true}, {false, true}} {
		said := message(fmt.Sprint("text ", i))
		said.Foreign = m.foreign
		if _, err := r.Say(t.Context(), said, nil); err != nil {
			t.Fatalf("Say = %v, want no error", err)
		}
		if len(a.got) != i+1 || a.got[i].Tainted != m.want {
			t.Errorf("message %d: sent %+v, want it tainted: %t", i, a.got, m.want)
		}
	}
}
