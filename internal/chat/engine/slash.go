package engine

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/command"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/core/tasks"
)

// Run is a command line to run outside a conversation. With Async, Command does not wait
// for its end.
type Run struct {
	Message
	Async    bool
	Progress func(capability.Chunk) // may be nil
}

// Done is the result of Command. One field is set: Text for a built-in command, Started for
// an asynchronous run, Reply for all others.
type Done struct {
	Text    string
	Started *tasks.Run
	Reply   invoke.Reply
}

// Command runs a command line and stores nothing in the session, which may be empty. Errors:
// those of command.Router.Route; invalid_input, reason invalid_args, for text that is not a
// command; those of the run, together with its Reply.
func (e *Engine) Command(ctx context.Context, r Run) (Done, error) {
	route, err := e.Route(r.Text)
	if err != nil {
		return Done{}, err
	}
	if route.Command.Builtin {
		text, err := e.builtin(ctx, r.Message, route)
		return Done{Text: text}, err
	}
	if err := e.verify(ctx, r.Message, route); err != nil {
		return Done{}, err
	}
	inv, about, err := e.invocation(ctx, r.Message, route)
	if err != nil {
		return Done{}, err
	}
	if r.Async {
		one, err := e.cfg.Runs.Start(inv, about)
		return Done{Started: &one}, err
	}
	inv.Progress = r.Progress
	reply, err := e.cfg.Runs.Do(ctx, inv, about)
	return Done{Reply: reply}, err
}

// Route parses a command line; see Command for the errors.
func (e *Engine) Route(s string) (*command.Route, error) {
	route, is, err := e.cfg.Commands().Route(s)
	if err == nil && !is {
		err = capability.Errorf(capability.CodeInvalidInput, "execute", "%q is not a command",
			text.ShortenRunes(s, maxExcerpt)).With("invalid_args", "a command begins with a slash; /help lists them")
	}
	return route, err
}

// Member returns the catalog member that a route runs: the entry of the command's action,
// by the names that the extension declares.
func Member(r *command.Route) capability.Member {
	declared := strings.ToLower(strings.TrimPrefix(r.Command.Declared, "/"))
	return capability.Member{Module: r.Command.Extension, Kind: "command", Name: declared + "." + r.Action.ID}
}

// Input returns the JSON input for the member of a route.
func Input(r *command.Route, noCache bool) (json.RawMessage, error) {
	words := struct {
		Args    []string `json:"args"`
		NoCache bool     `json:"no_cache,omitzero"`
	}{append([]string{}, r.Args...), noCache}
	input, err := jsonx.Marshal(words)
	if err != nil {
		return nil, capability.Wrap(capability.CodeInvalidInput, "execute", "the words cannot be written", err)
	}
	return input, nil
}

// verify asks the verifier of ctx about the call of a command, before anything of it is stored.
func (e *Engine) verify(ctx context.Context, m Message, route *command.Route) error {
	if route.Command.Builtin {
		return nil
	}
	return e.cfg.Runs.Verify(ctx, capability.Invocation{
		Principal: m.Principal, Session: m.Session, Audience: capability.AudienceInternal, Target: capability.Target{Member: Member(route)},
	})
}

// invocation returns the call of a command and its label, and appends the record "command
// routed" to the audit log. It does not start the call.
func (e *Engine) invocation(ctx context.Context, m Message, route *command.Route) (capability.Invocation, tasks.RunLabel, error) {
	input, err := Input(route, m.NoCache)
	if err != nil {
		return capability.Invocation{}, tasks.RunLabel{}, err
	}
	inv := capability.Invocation{
		ID: e.cfg.Runs.NewID(), Surface: "slash", Client: m.Client, Principal: m.Principal, Session: m.Session, Input: input,
		Audience: capability.AudienceInternal, Target: capability.Target{Member: Member(route)},
	}
	about := tasks.RunLabel{Extension: route.Command.Extension, Command: "/" + route.Command.Name, Action: route.Action.ID}
	if e.cfg.Log != nil {
		_, err = e.cfg.Log.Append(ctx, audit.Record{
			Logger: "chat", Event: audit.CommandRouted, Extension: about.Extension, Command: about.Command, Action: about.Action,
			Runner:  route.Action.Runner,
			Session: m.Session, User: m.Principal.ID, Success: audit.OutcomeSuccess,
			Metadata: audit.Metadata{
				RunID: inv.ID, ArgsCount: len(route.Args), ArgsHash: e.cfg.Log.Digest(input), Surface: inv.Surface,
				Principal: audit.Principal{ID: m.Principal.ID, Role: m.Principal.Role},
			},
		}, audit.Buffered)
	}
	return inv, about, err
}

// command answers a message that is a command. It waits for the run, whose progress goes to
// to. Sensitive arguments are masked in the text.
func (e *Engine) command(ctx context.Context, m Message, route *command.Route, to Stream) answer {
	if route.Command.Builtin {
		text, err := e.builtin(ctx, m, route)
		if err != nil {
			return e.failed(err, nil)
		}
		return answer{kind: TypeText, text: text}
	}
	inv, about, err := e.invocation(ctx, m, route)
	if err != nil {
		return e.failed(err, nil)
	}
	if to != nil {
		inv.Progress = to.Progress
	}
	reply, err := e.cfg.Runs.Do(ctx, inv, about)
	metadata := map[string]any{
		"is_extension_output": true, "extension_id": about.Extension, "extension_name": route.Command.ExtensionName, "action": about.Action,
		"command": about.Command, "status": "succeeded", "run_id": reply.Invocation, "duration_seconds": reply.Duration.Seconds(),
	}
	if err != nil {
		a := e.failed(err, metadata)
		a.invocation = &reply
		said, _ := a.err.Details["output"].(string) // output before the failure
		if said = strings.TrimSpace(said); !strings.Contains(a.text, said) {
			a.text += "\n\n" + said
		}
		a.text = masked(a.text, route)
		return a
	}
	var value struct {
		Output   string         `json:"output"`
		Metadata map[string]any `json:"metadata"`
	}
	a := answer{kind: TypeOutput, metadata: metadata, result: jsonx.Raw(reply.Result), invocation: &reply}
	if json.Unmarshal(reply.Result, &value) == nil {
		a.text = value.Output
		for _, key := range []string{"sandbox_tier", "exit_code", "truncated", "cached"} {
			if v, ok := value.Metadata[key]; ok {
				metadata[key] = v
			}
		}
	}
	if a.text == "" {
		a.text = "(no output)"
	}
	a.text = masked(a.text, route)
	return a
}

// masked replaces the sensitive arguments of a command in a text that will be stored.
// Arguments shorter than three bytes are not replaced.
func masked(text string, route *command.Route) string {
	for i, word := range route.Args {
		if !route.SensitiveArg(i) {
			continue
		}
		if _, value, ok := strings.Cut(word, "="); ok && strings.HasPrefix(word, "-") {
			word = value
		}
		if len(word) >= 3 { // shorter ones would match all over the text
			text = strings.ReplaceAll(text, word, command.Mask)
		}
	}
	return text
}
