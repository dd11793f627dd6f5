// Package engine answers what people type: a message behind a slash runs a command
// over the one governed path, everything else goes to a language model where one
// is configured. Every reply, also that a command is unknown, disabled, denied or
// has failed, is a text that is kept in the session, comes whole or as a stream of
// pieces of that text, and never as anything else; what a program needs to know is
// beside it.
package engine

import (
	"context"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/command"
	"github.com/junctor-run/junctor/internal/core/command/fault"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/core/session"
	"github.com/junctor-run/junctor/internal/core/tasks"
)

// Types of replies.
const (
	TypeText         = "text"             // the model's, or what a command of ours says
	TypeOutput       = "extension_output" // of a command that ran
	TypePrompt       = "extension_prompt" // unknown or disabled: what could be done about it
	TypeConfirmation = "confirmation"     // an approval is needed first
	TypeError        = "error"
)

// Model answers ordinary chat. emit, which may be nil, receives the pieces of the
// text in their order.
type Model interface {
	Answer(ctx context.Context, system string, turns []Turn, emit func(piece string) error) (text string, err error)
}

// Turn is one message of the conversation that a model is given.
type Turn struct {
	Assistant bool
	Text      string
}

// Config is what an Engine needs; Model and Log may be nil.
type Config struct {
	Runs     *tasks.Runs
	Messages *session.Messages
	Results  *session.Results
	Log      *audit.Log
	Commands func() *command.Router
	Usage    func(extension string) (string, error) // its usage document
	Model    Model
	// Subagents finds the action that a word after /subagents means; nil where no task
	// agents run.
	Subagents func(word string) (capability.Action, bool)
	Home      string // shown as ~ in replies; "": texts stay as they are
}

// Engine answers. It is safe for concurrent use.
type Engine struct{ cfg Config }

// New returns an Engine.
func New(cfg Config) *Engine { return &Engine{cfg} }

// Message is the text that the user typed.
type Message struct {
	Principal capability.Principal
	Session   string
	Text      string
	Client    string // the caller's program, for the record
	NoCache   bool
}

// Stream receives a reply while it is made; the text of the reply is what Text received.
// Errors end the reply: the reader is gone.
type Stream interface {
	Text(piece string) error
	Progress(c capability.Chunk)
}

// Reply is the answer to a message.
type Reply struct {
	Type    string          `json:"type"`
	Message session.Message `json:"message"` // as it is kept
	// Result is the value of a run that succeeded.
	Result jsonx.Raw `json:"result,omitempty"`
	// Error is the reason for a missing answer, for programs; the text says it to people.
	Error      *capability.Error `json:"error,omitempty"`
	Invocation *invoke.Reply     `json:"invocation,omitempty"`
}

// Say keeps a message, answers it, and keeps the answer. to may be nil. Errors
// tell that the message was not taken: invalid_input (no text, a session that is
// none), too_large; or that the answer could not be kept.
func (e *Engine) Say(ctx context.Context, m Message, to Stream) (Reply, error) {
	owner := session.Owner{Principal: m.Principal.ID, Session: m.Session}
	if err := owner.Check(); err != nil {
		return Reply{}, err
	}
	if strings.TrimSpace(m.Text) == "" {
		return Reply{}, capability.Errorf(capability.CodeInvalidInput, "chat", "there is no text")
	}
	route, is, routed := e.cfg.Commands().Route(m.Text)
	if _, err := e.cfg.Messages.Append(ctx, owner, session.RoleUser, keepable(m.Text, route, is), nil); err != nil {
		return Reply{}, err
	}
	var a answer
	switch {
	case routed != nil:
		a = e.failed(routed, nil)
	case is:
		a = e.command(ctx, m, route, to)
	default:
		a = e.talk(ctx, m, owner, to)
	}
	unheard := a.send(to)
	meta, err := json.Marshal(a.metadata)
	if err != nil || a.metadata == nil {
		meta = nil
	}
	// A user who went away finds the answer when they come back.
	kept, err := e.cfg.Messages.Append(context.WithoutCancel(ctx), owner, session.RoleAssistant, a.text, meta)
	if err == nil && unheard != nil {
		err = capability.Wrap(capability.CodeCancelled, "chat", "the reply was not read to its end", unheard)
	}
	return Reply{Type: a.kind, Message: kept, Result: a.result, Error: a.err, Invocation: a.invocation}, err
}

// keepable is the message as it may be kept: words that a command does not want
// recorded are dots. If those are unknown, all words are.
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

// answer is a reply in the making.
type answer struct {
	kind       string
	text       string
	sent       bool // the stream has received the text
	metadata   map[string]any
	result     jsonx.Raw
	err        *capability.Error
	invocation *invoke.Reply
}

// pieceSize is how much of a finished text a stream receives at once.
const pieceSize = 4 << 10

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

// failed makes a reply of an error: what happened, and what helps.
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
	if a.err.Code == capability.CodeConsentRequired {
		a.kind = TypeConfirmation
		a.metadata["confirmation"] = a.err.Details
	}
	return a
}
