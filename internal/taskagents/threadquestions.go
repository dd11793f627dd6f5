package taskagents

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/core/tasks"
	"github.com/junctor-run/junctor/internal/taskagents/directive"
	"github.com/junctor-run/junctor/internal/taskagents/launch"
	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

// questions returns one form for each session of a thread that waits for its user: to confirm
// a decision, to answer a blocker of its program, or to answer with a text.
func (f *threadTasks) questions(d threads.Detail) (list []tasks.Request) {
	for _, s := range d.Sessions {
		if s.Status != row.SessionBlocked && s.Status != row.SessionWaiting {
			continue
		}
		f.mu.Lock()
		text := f.asked[d.ID][s.SessionID]
		f.mu.Unlock()
		key, form := s.SessionID, map[string]any{"text": map[string]any{"type": "string", "title": "Answer"}}
		meta := map[string]any{}
		if live, err := f.sessions.Get(s.SessionID); err == nil {
			if b := live.Info().Blocker; b != nil {
				key, text, form = blockerKey(s.SessionID, b), shown(message(b, text)), answers(b)
				meta["blocker"] = b
			}
		}
		for _, p := range d.PendingDecisions {
			if p.SessionID == s.SessionID {
				key, text = s.SessionID, shown(p.PromptText+"\n\n"+decided(p))
				form = map[string]any{
					"text":     map[string]any{"type": "string", "title": "Answer"},
					"approved": map[string]any{"type": "boolean", "title": "Do what was decided", "default": true},
				}
			}
		}
		if text == "" {
			text = s.Label + " waits for you."
		}
		params := map[string]any{"message": text, "requestedSchema": map[string]any{"type": "object", "properties": form}}
		if len(meta) > 0 {
			params["_meta"] = meta
		}
		raw, err := jsonx.Marshal(params)
		if err == nil && len(raw) > 4*maxAsked {
			delete(params, "_meta")
			raw, err = jsonx.Marshal(params)
		}
		if err != nil {
			f.logger.Error("a question of a thread cannot be asked", "session", s.SessionID, "err", err)
			continue
		}
		list = append(list, tasks.Request{Key: key, Method: "elicitation/create", Params: raw})
	}
	return list
}

// shown returns a text with escapes for characters that a screen does not show, because a user
// decides on it.
func shown(s string) string { return text.VisibleLines(s) }

// blockerKey returns the key of a question. It names the blocker, so that an answer to one that has
// ended does not reach the next.
func blockerKey(session string, b *detect.Blocker) string {
	if b.ID == "" {
		return session
	}
	return session + "/" + b.ID
}

// message returns the text of a question about a blocker: what is asked, for what, and the options
// with their numbers.
func message(b *detect.Blocker, asked string) string {
	var out strings.Builder
	fmt.Fprintln(&out, first(b.Prompt, asked, "The program waits for an answer."))
	if b.Tool != "" {
		fmt.Fprintln(&out, "tool: "+b.Tool)
	}
	if b.Cwd != "" {
		fmt.Fprintln(&out, "folder: "+b.Cwd)
	}
	if b.Reason != "" {
		fmt.Fprintln(&out, "in the words of the model: "+b.Reason)
	}
	if (len(b.Questions) == 0 || b.Type == "plan") && len(b.Input) > 0 {
		if tooLong(b) {
			fmt.Fprintf(&out, "input: %d bytes, which are too many for this question. To allow it, see it with tasks show, of the session.\n",
				len(b.Input))
		} else {
			fmt.Fprintln(&out, "input: "+string(b.Input))
		}
	}
	if len(b.Questions) > 1 || len(b.Questions) == 1 && b.Questions[0].Multiple {
		for _, q := range b.Questions {
			fmt.Fprintf(&out, "%s: %s\n", q.ID, q.Text)
			listed(&out, q.Options)
		}
		return strings.TrimSpace(out.String())
	}
	listed(&out, b.Choices)
	return strings.TrimSpace(out.String())
}

func listed(out *strings.Builder, list []detect.Choice) {
	for _, c := range list {
		fmt.Fprintf(out, "  %d %s", c.N, c.Label)
		if c.Description != "" {
			out.WriteString(": " + c.Description)
		}
		out.WriteByte('\n')
	}
}

func first(list ...string) string {
	for _, s := range list {
		if strings.TrimSpace(s) != "" {
			return s
		}
	}
	return ""
}

func tooLong(b *detect.Blocker) bool { return len(b.Input) > maxAsked }

// answers returns the members of a form that answers a blocker.
func answers(b *detect.Blocker) map[string]any {
	form := map[string]any{}
	if len(b.Questions) > 1 || len(b.Questions) == 1 && b.Questions[0].Multiple {
		for _, q := range b.Questions {
			one := map[string]any{"type": "string", "title": q.Text}
			if !q.FreeText {
				one["enum"] = labels(q.Options)
			}
			if q.Multiple {
				delete(one, "enum")
				items := map[string]any{"type": "string"}
				if !q.FreeText {
					items["enum"] = labels(q.Options)
				}
				one["type"], one["items"] = "array", items
			}
			form[q.ID] = one
		}
		return form
	}
	answer := map[string]any{"type": "string", "title": "Answer"}
	switch free := len(b.Questions) == 1 && b.Questions[0].FreeText; {
	case tooLong(b):
		var list []string
		for _, c := range b.Choices {
			if c.Effect == detect.Denies {
				list = append(list, c.Label)
			}
		}
		answer["enum"] = list
	case len(b.Options) > 0 && !free:
		answer["enum"] = b.Options
	}
	return map[string]any{"text": answer}
}

func labels(list []detect.Choice) []string {
	out := make([]string, len(list))
	for i, c := range list {
		out[i] = c.Label
	}
	return out
}

// decided returns what a decision that waits for confirmation would do.
func decided(p row.PendingDecision) string {
	var a directive.Answer
	if jsonx.Unmarshal(p.LLMDecision, &a) != nil {
		return ""
	}
	said := a.Response
	if len(a.Keys) > 0 && (a.UseKeys || said == "") {
		said = "press " + strings.Join(a.Keys, " ")
	}
	return strings.TrimSpace("Decided: " + a.Action + " " + said)
}

// Answer implements tasks.Carrier. It resumes or stops the thread, confirms the pending
// decision of the session, or answers its blocker or turn. Errors: invalid_input, reason
// no_answer, and those of the operation.
func (f *threadTasks) Answer(ctx context.Context, who capability.Principal, t tasks.Task, r tasks.Request, answer json.RawMessage) error {
	const op = "tasks.answer"
	var a struct {
		Action  string                     `json:"action"`
		Content map[string]json.RawMessage `json:"content"`
	}
	if err := json.Unmarshal(answer, &a); err != nil {
		return capability.Errorf(capability.CodeInvalidInput, op, "the answer is not the result of elicitation/create")
	}
	session, blocker, _ := strings.Cut(r.Key, "/")
	var form []detect.Question
	s, gone := f.sessions.Get(session)
	if gone == nil && s.Info().Blocker != nil {
		form = s.Info().Blocker.Questions
	}
	reply, approved, err := read(a.Content, form)
	if err != nil {
		return err
	}
	yes := a.Action == "accept"
	reply.Decline, reply.Blocker = !yes, blocker
	if r.Key == resumeKey {
		return f.goOn(ctx, who, t, yes, reply.Text)
	}
	if what := lets(s, gone, yes, approved, blocker); what != "" {
		if err := policy.Confirm(ctx, who.ID, what); err != nil {
			return err
		}
	}
	_, pending, err := f.c.registry.PeekPending(ctx, session)
	if err != nil {
		return err
	}
	if pending {
		return f.confirm(ctx, session, yes, approved, reply.Text)
	}
	if gone != nil {
		return gone
	}
	i := s.Info()
	if blocker != "" || i.Status == detect.Blocked && i.Blocker != nil && len(i.Blocker.Options) > 0 {
		return f.blockers.answer(ctx, who, s, reply, maxAsked)
	}
	if !yes || reply.Text == "" {
		return capability.Errorf(capability.CodeInvalidInput, op, "the agent waits for a text").With("no_answer",
			"answer with a text, or cancel the task")
	}
	_, err = sessions.SendSoon(ctx, s, reply.Text, false)
	return err
}

// lets describes what an answer lets an agent do, or returns "" for a refusal and for answers to the
// questions and plans of its program.
func lets(s sessions.Live, gone error, yes bool, approved *bool, blocker string) string {
	if !yes || approved != nil && !*approved {
		return ""
	}
	if gone == nil {
		if b := s.Info().Blocker; b != nil && blocker != "" && (b.Type == "question" || b.Type == "plan") {
			return ""
		}
	}
	return "let a coding agent go on with your answer"
}

// confirm carries out or rejects the decision that waits, or answers with a text instead.
func (f *threadTasks) confirm(ctx context.Context, session string, yes bool, approved *bool, text string) error {
	var instead *directive.Answer
	switch said := strings.ToLower(strings.TrimSpace(text)); {
	case approved == nil && said == "no":
		yes = false
	case said != "" && said != "yes":
		instead = &directive.Answer{Action: "respond", Response: text}
	}
	return f.c.coordinator.Confirm(ctx, session, yes && (approved == nil || *approved), instead)
}

// goOn resumes or ends a thread that was interrupted or paused.
func (f *threadTasks) goOn(ctx context.Context, who capability.Principal, t tasks.Task, yes bool, text string) error {
	switch said := strings.ToLower(strings.TrimSpace(text)); {
	case !yes || said == giveUp || said == "no":
		return f.Stop(ctx, who.ID, t)
	case said == goOn || said == "yes":
		if err := policy.Confirm(ctx, who.ID, "let the task "+t.ID+" go on"); err != nil {
			return err
		}
		defer f.poke(t.Thread)
		_, err := f.c.launcher.Control(ctx, who, launch.Control{ThreadID: t.Thread, Operation: launch.Resume})
		return err
	}
	return capability.Errorf(capability.CodeInvalidInput, "tasks.answer", "the task is to go on or to end").With("no_answer",
		"answer resume or cancel")
}

// read returns the reply in the content of an answer: text, free and approved; all other members
// are values for the questions of a form, which may have these names too.
func read(content map[string]json.RawMessage, form []detect.Question) (r detect.Reply, approved *bool, err error) {
	for name, raw := range content {
		member := name
		if slices.ContainsFunc(form, func(q detect.Question) bool { return q.ID == name }) {
			member = ""
		}
		switch member {
		case "text", "answer":
			err = jsonx.Unmarshal(raw, &r.Text)
		case "free":
			err = jsonx.Unmarshal(raw, &r.Free)
		case "approved":
			err = jsonx.Unmarshal(raw, &approved)
		default:
			var one string
			var list []string
			if jsonx.Unmarshal(raw, &one) == nil {
				list = []string{one}
			} else if err = jsonx.Unmarshal(raw, &list); err != nil {
				break
			}
			if r.Values == nil {
				r.Values = make(map[string][]string)
			}
			r.Values[name] = list
		}
		if err != nil {
			return r, nil, capability.Errorf(capability.CodeInvalidInput, "tasks.answer", "the member %.80q of the answer has another type", name).
				With("no_answer", "write texts, or lists of texts for questions with several answers")
		}
	}
	return r, approved, nil
}
