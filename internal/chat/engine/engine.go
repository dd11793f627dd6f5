// Package engine answers the messages of people. A message that begins with a slash runs a
// command through the same governed path as every other call; all other messages go to the
// language model, if one is configured. Every reply is a text that is stored in the session
// and sent whole or in pieces, also if the command is unknown, disabled, denied or failed.
// Data for programs accompanies the text in other fields of the reply.
package engine

import (
	"context"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/chat/agent"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/command"
	"github.com/junctor-run/junctor/internal/core/command/fault"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/core/session"
	"github.com/junctor-run/junctor/internal/core/tasks"
)

// Types of replies.
const (
	TypeText         = "text"             // of the model or of a built-in command
	TypeOutput       = "extension_output" // output of an extension's command
	TypePrompt       = "extension_prompt" // the command is unknown or disabled; the text suggests a remedy
	TypeConfirmation = "confirmation"     // the command needs an approval first
	TypeError        = "error"
	TypeAccepted     = "accepted" // the agent works on it; its reply follows
)

// Model answers messages that are not commands. emit, which may be nil, receives the pieces
// of the text in order.
type Model interface {
	Answer(ctx context.Context, system string, turns []agent.Turn, emit func(piece string) error) (text string, err error)
}

// Config configures an Engine; Model, Agent and Log may be nil.
type Config struct {
	Runs     *tasks.Runs
	Messages *session.Messages
	Results  *session.Results
	Log      *audit.Log
	Commands func() *command.Router
	Usage    func(extension string) (string, error) // returns the extension's usage document
	Model    Model
	Agent    Agent  // nil: the model answers without tools
	Persona  string // who the agent is, for its prompt; may be empty
	// Subagents returns the action of a word after /subagents; nil if task agents are
	// disabled.
	Subagents func(word string) (capability.Action, bool)
	Home      string // shown as ~ in error texts; "": they are not changed
}

// Engine answers messages and runs commands. It is safe for concurrent use.
type Engine struct{ cfg Config }

// New returns an Engine that uses cfg.
func New(cfg Config) *Engine { return &Engine{cfg} }

// Message is a text that a user typed, with its sender and session.
type Message struct {
	Principal capability.Principal
	Session   string
	Text      string
	Client    string // the caller's program, for the audit log
	NoCache   bool
	// Route is the conversation of a chat service that the text came from, or nil; Key identifies the
	// text there. A text with a key that is stored already is not stored again if Again is set.
	Route *capability.Route
	Key   string
	Again bool
	// Foreign is set if another person wrote the text, as of a forwarded message.
	Foreign bool
	// Detached returns as soon as the agent has the message.
	Detached bool
}

// origin is the metadata of a message that has a key or that another person wrote.
type origin struct {
	Key     string `json:"key,omitempty"`
	Foreign bool   `json:"foreign,omitempty"`
}

// Stream receives a reply while it is produced. The text of the reply is the concatenation
// of the pieces that Text received. An error of Text means that the reader disconnected and
// ends the reply.
type Stream interface {
	Text(piece string) error
	Progress(c capability.Chunk)
}

// Reply is the answer to a message.
type Reply struct {
	Type    string          `json:"type"`
	Message session.Message `json:"message"` // as stored
	// Result is the result value of a successful run.
	Result jsonx.Raw `json:"result,omitempty"`
	// Error is the error, for programs; the text of Message explains it to people.
	Error      *capability.Error `json:"error,omitempty"`
	Invocation *invoke.Reply     `json:"invocation,omitempty"`
	// Run is the run of the agent that wrote the reply, or that waits.
	Run string `json:"run,omitempty"`
	// Event is the id of the run's last event before the reply.
	Event string `json:"event,omitempty"`
}

// Say stores a message, answers it, and stores the answer. to, which may be nil, receives
// the answer while it is produced. A failed command is not an error: the Reply reports it.
// Errors: the message was not stored (invalid_input for an empty text or a malformed
// session, too_large, those of the store and of the verifier of ctx); the answer was not stored; cancelled if to failed
// (the answer is stored all the same).
func (e *Engine) Say(ctx context.Context, m Message, to Stream) (Reply, error) {
	owner := session.Owner{Principal: m.Principal.ID, Session: m.Session}
	if err := owner.Check(); err != nil {
		return Reply{}, err
	}
	if strings.TrimSpace(m.Text) == "" {
		return Reply{}, capability.Errorf(capability.CodeInvalidInput, "chat", "there is no text")
	}
	route, is, routed := e.cfg.Commands().Route(m.Text)
	if is && routed == nil {
		if err := e.verify(ctx, m, route); err != nil {
			return Reply{}, err
		}
	}
	if err := e.keep(ctx, owner, m, keepable(m.Text, route, is)); err != nil {
		return Reply{}, err
	}
	var a answer
	switch {
	case routed != nil:
		a = e.failed(routed, nil)
	case is:
		a = e.command(ctx, m, route, to)
	default:
		var err error
		if a, err = e.talk(ctx, m, owner, to); err != nil {
			return Reply{}, err
		}
	}
	if a.kind == TypeAccepted {
		return Reply{Type: a.kind, Run: a.run}, nil
	}
	unheard := a.send(to)
	meta, err := json.Marshal(a.metadata)
	if err != nil || a.metadata == nil {
		meta = nil
	}
	if a.message > 0 { // the agent has stored it
		list, err := e.cfg.Messages.List(context.WithoutCancel(ctx), owner, a.message-1, 1)
		if err == nil && len(list) > 0 {
			return Reply{Type: a.kind, Message: list[0], Error: a.err, Run: a.run}, nil
		}
		return Reply{Type: a.kind, Error: a.err, Run: a.run}, err
	}
	// A user who disconnected finds the answer when they return.
	kept, err := e.cfg.Messages.Append(context.WithoutCancel(ctx), owner, session.RoleAssistant, a.text, meta)
	if err == nil && unheard != nil {
		err = capability.Wrap(capability.CodeCancelled, "chat", "the reply was not read to its end", unheard)
	}
	return Reply{Type: a.kind, Message: kept, Result: a.result, Error: a.err, Invocation: a.invocation, Run: a.run, Event: a.event}, err
}

// keep stores a message, unless it is stored already.
func (e *Engine) keep(ctx context.Context, owner session.Owner, m Message, text string) error {
	if m.Key == "" && !m.Foreign {
		_, err := e.cfg.Messages.Append(ctx, owner, session.RoleUser, text, nil)
		return err
	}
	meta, err := json.Marshal(origin{m.Key, m.Foreign})
	if err != nil {
		return err
	}
	if m.Again && m.Key != "" {
		recent, err := e.cfg.Messages.Recent(ctx, owner, session.MaxPage)
		if err != nil {
			return err
		}
		for _, old := range recent {
			var o origin
			if json.Unmarshal(old.Metadata, &o) == nil && o.Key == m.Key {
				return nil
			}
		}
	}
	_, err = e.cfg.Messages.Append(ctx, owner, session.RoleUser, text, meta)
	return err
}

// keepable returns the form of a message that may be stored: sensitive arguments of a
// command are masked. If the command is unknown (route is nil), all arguments are masked.
func keepable(text string, route *command.Route, is bool) string {
	switch {
	case !is:
		return command.Chat(text)
	case route == nil:
		name, rest, _ := strings.Cut(strings.TrimSpace(text), " ")
		if rest != "" {
			name += " " + command.Mask
		}
		return name
	case !route.Sensitive():
		return text
	}
	return "/" + route.Command.Name + " " + route.Action.ID + " " + strings.Join(route.RecordableArgs(), " ")
}

// answer is a reply before it is stored.
type answer struct {
	kind       string
	text       string
	sent       bool // the stream has received the text
	metadata   map[string]any
	result     jsonx.Raw
	err        *capability.Error
	invocation *invoke.Reply
	run, event string // of the agent
	message    int64  // number of the stored message; 0: it is not stored yet
}

// pieceSize is the size, in bytes, of the pieces in which a finished text is streamed.
const pieceSize = 4 << 10

// send streams the text in pieces of at most pieceSize bytes, unless it was streamed before
// or to is nil.
func (a *answer) send(to Stream) error {
	if to == nil || a.sent {
		return nil
	}
	for rest := a.text; rest != ""; {
		n := min(pieceSize, len(rest))
		for n < len(rest) && !utf8.RuneStart(rest[n]) {
			n--
		}
		if err := to.Text(rest[:n]); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// failed returns the answer that reports an error: what happened and what helps. Its type
// is TypePrompt or TypeConfirmation if the error asks for that, else TypeError. failed adds
// the status to metadata, which may be nil.
func (e *Engine) failed(err error, metadata map[string]any) answer {
	a := answer{kind: TypeError, text: fault.Text(err, e.cfg.Home), err: capability.AsError(err), metadata: metadata}
	if a.metadata == nil {
		a.metadata = map[string]any{}
	}
	a.metadata["status"] = "failed"
	if prompt, ok := command.Prompt(err); ok {
		a.kind = TypePrompt
		a.metadata["prompt"] = prompt
	}
	if a.err.Code == capability.CodeApprovalRequired {
		a.kind = TypeConfirmation
		a.metadata["confirmation"] = a.err.Details
	}
	return a
}
