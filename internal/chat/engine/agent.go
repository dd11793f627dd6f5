package engine

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/chat/agent"
	"github.com/junctor-run/junctor/internal/core/command/fault"
	"github.com/junctor-run/junctor/internal/core/session"
)

// Agent answers messages with the capabilities of the catalog; [agent.Engine] implements it.
type Agent interface {
	Send(ctx context.Context, m agent.Message) (*agent.Follower, error)
	CancelSession(ctx context.Context, person, session string) (bool, error)
	Forget(ctx context.Context, person, session string) error
}

// Statuses of replies in their metadata.
const (
	statusSucceeded = "succeeded"
	statusFailed    = "failed"
	statusCancelled = "cancelled"
	statusWaiting   = "waiting" // the run goes on after an approval
	statusIgnored   = "ignored" // a module decided that the message gets no reply
)

// replyData is the part of a reply's metadata that the agent reads again.
type replyData struct {
	Status  string       `json:"status"`
	Run     string       `json:"run,omitempty"`
	Calls   []agent.Done `json:"calls,omitempty"` // what was done for it, from the governed path
	Tainted bool         `json:"tainted,omitempty"`
}

// converse answers a message with the agent. The run goes on if the reader disconnects, and its
// reply is in the history then.
func (e *Engine) converse(ctx context.Context, m Message, recent []session.Message, to Stream) (answer, error) {
	text, _ := session.Cut(m.Text, talkMessage)
	f, err := e.cfg.Agent.Send(ctx, agent.Message{
		Person: m.Principal, Session: m.Session, System: e.duty(), Turns: turns(recent), Text: text, Tainted: m.Foreign || tainted(recent),
		Route: m.Route, Key: m.Key, Again: m.Again,
	})
	if err != nil || f == nil {
		return answer{kind: TypeAccepted}, err
	}
	defer f.Close()
	if m.Detached {
		return answer{kind: TypeAccepted, run: f.Run}, nil
	}
	var heard strings.Builder
	var step int64 // of the last text, which begins at begins
	var begins int
	say := func(piece string) error {
		heard.WriteString(piece)
		if to == nil {
			return nil
		}
		return to.Text(piece)
	}
	for {
		ev, err := f.Next(ctx)
		if err != nil {
			return answer{}, unread(err)
		}
		switch ev.Type {
		case "text":
			if ev.Step != step {
				step, begins = ev.Step, heard.Len()
			}
			if err := say(ev.Text); err != nil {
				return answer{}, unread(err)
			}
		case "text_reset": // another gateway asks the model again
			if ev.Step == step {
				kept := heard.String()[:begins]
				heard.Reset()
				heard.WriteString(kept)
			}
		case "call":
			if to != nil && ev.Call != "" {
				to.Progress(capability.Chunk{Message: ev.Call + " " + ev.State})
			}
		case "park", "end":
			a := e.replyOf(f.Run, *ev.Outcome)
			if ev.Type == "park" {
				a.text = strings.TrimPrefix(joined(heard.String(), a.text), "\n")
			}
			if rest, ok := strings.CutPrefix(a.text, heard.String()); ok && rest != "" {
				_ = say(rest) // a reader that left finds it in the history
			}
			a.sent, a.event = true, ev.ID
			return a, nil
		}
	}
}

func unread(cause error) error {
	return capability.Wrap(capability.CodeCancelled, "chat", "the reply was not read to its end; the agent goes on without a reader", cause)
}

func joined(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "\n\n" + b
}

// replyOf returns the answer for the end of a run, or for its waiting.
func (e *Engine) replyOf(run string, o agent.Outcome) answer {
	a := answer{kind: TypeText, text: o.Text, run: run, message: o.Message}
	data := map[string]any{"status": statusSucceeded, "run": run, "tainted": o.Tainted}
	if n := min(len(o.Done), maxListed); n > 0 {
		data["calls"] = o.Done[:n]
	}
	switch o.State {
	case agent.Waiting:
		a.kind, data["status"] = TypeConfirmation, statusWaiting
		a.text = "This needs an approval: " + strings.Join(o.Approvals, ", ") + ". I go on when it is decided."
		a.err = capability.Errorf(capability.CodeApprovalRequired, "agent", "%s", a.text).
			With("confirmation_required", "look at it with: junctor approvals show "+o.Approvals[0]+"; then approve or deny it").
			Detail("approval", o.Approvals[0]).Detail("approvals", o.Approvals).Detail("run", run)
		data["confirmation"] = a.err.Details
	case agent.Cancelled:
		data["status"] = statusCancelled
		a.text = joined(a.text, "(stopped)")
	case agent.Failed:
		a.kind, a.err, data["status"] = TypeError, o.Error, statusFailed
		a.text = joined(a.text, fault.Text(o.Error, e.cfg.Home))
	default:
		if o.Ignored {
			data["status"], a.text = statusIgnored, "(No reply: a module decided so.)"
		}
		if strings.TrimSpace(a.text) == "" {
			a.text = "(The model ended without a text.)"
		}
	}
	a.metadata = data
	return a
}

// Deliver stores the reply of a run once, and returns it.
func (e *Engine) Deliver(ctx context.Context, r agent.Run, o agent.Outcome) (session.Message, error) {
	owner := session.Owner{Principal: r.Person, Session: r.Session}
	recent, err := e.cfg.Messages.Recent(ctx, owner, talkMessages)
	if err != nil {
		return session.Message{}, err
	}
	for _, m := range recent {
		if d := dataOf(m); d.Run == r.ID && d.Status != statusWaiting {
			return m, nil
		}
	}
	a := e.replyOf(r.ID, o)
	meta, err := json.Marshal(a.metadata)
	if err != nil {
		return session.Message{}, err
	}
	return e.cfg.Messages.Append(ctx, owner, session.RoleAssistant, a.text, meta)
}

func dataOf(m session.Message) (d replyData) {
	if m.Role == session.RoleAssistant && len(m.Metadata) > 0 {
		_ = jsonx.Unmarshal(m.Metadata, &d) // foreign metadata has none of it
	}
	return d
}

// tainted reports whether messages contain what neither the person nor the operator wrote: a forwarded
// message, the output of a command, or the reply of a run that read something.
func tainted(recent []session.Message) bool {
	for _, m := range recent {
		if m.Role != session.RoleAssistant {
			var o origin
			if len(m.Metadata) > 0 && jsonx.Unmarshal(m.Metadata, &o) == nil && o.Foreign {
				return true
			}
			continue
		}
		if d := dataOf(m); d.Tainted || d.Run == "" && d.Status != "no_model" {
			return true
		}
	}
	return false
}

// duty returns the first part of the agent's prompt.
func (e *Engine) duty() string {
	return agent.Persona(e.cfg.Persona) + agent.Duty
}
