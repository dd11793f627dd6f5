package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/policy"
)

// boardQuestion is what a task waits for. Its answers go to this question only: an answer to one that has
// ended is refused by the server.
type boardQuestion struct {
	path    string
	choices []boardChoice
	typed   func(said string) map[string]any // body of a typed answer; nil if none is possible
	decline map[string]any
	secret  bool
	hint    string // how it is answered elsewhere
}

type boardChoice struct {
	n    int
	deny bool
	body map[string]any
}

// question fills the page of a task with what it waits for: complete, with the numbers of the answers.
func (b *board) question(ctx context.Context, page *boardPage) error {
	r := page.task.Requests[0]
	id := r.Approval
	if id == "" {
		id = r.Params.Meta.Blocker.ID
	}
	if id == "" {
		page.question, page.body = taskQuestion(page.task.taskRow)
		return nil
	}
	var out approvalAnswer
	if err := b.do(ctx, http.MethodGet, string(currentApprovals)+"/"+url.PathEscape(id), nil, &out); err != nil {
		return err
	}
	body, err := b.printed(func(a *app) error { return a.printApproval(out, true) })
	if err != nil {
		return err
	}
	page.body, page.question = body, approvalQuestion(out.one())
	if len(page.question.choices) == 2 && !out.one().Waits() {
		page.body += "\n1 approve this call, once\n2 deny it\n"
	}
	if out.one().Shown.Cut() && (len(out.Input) == 0 || string(out.Input) == "null") { // not all of it is here, so that it can only be refused
		page.question.typed = nil
		page.question.choices = slices.DeleteFunc(page.question.choices, func(c boardChoice) bool { return !c.deny })
		page.question.hint = "it is too long for the board: junctor approvals show " + id + " --input"
	}
	return nil
}

// approvalQuestion returns the answers to an approval.
func approvalQuestion(c policy.Approval) *boardQuestion {
	q := &boardQuestion{path: string(currentApprovals) + "/" + url.PathEscape(c.ID), decline: map[string]any{"decision": "deny"}}
	if !c.Waits() {
		q.choices = []boardChoice{
			{n: 1, body: map[string]any{"decision": string(policy.DecideOnce)}}, {n: 2, deny: true, body: q.decline},
		}
		return q
	}
	switch {
	case len(c.Shown.Questions) > 1 || len(c.Shown.Questions) == 1 && c.Shown.Questions[0].Multiple:
		q.hint = "it takes several answers: junctor approvals approve " + c.ID + " --answer QUESTION=ANSWER …"
		return q
	case len(c.Shown.Questions) == 1:
		q.secret = c.Shown.Questions[0].Secret
	}
	for _, choice := range c.Shown.Choices {
		q.choices = append(q.choices, boardChoice{
			n: choice.N, deny: choice.Effect == string(policy.DecideDeny), body: map[string]any{"answer": fmt.Sprint(choice.N)},
		})
	}
	q.typed = func(said string) map[string]any {
		if len(c.Shown.Choices) == 0 {
			return map[string]any{"text": said}
		}
		return map[string]any{"answer": said}
	}
	return q
}

// taskQuestion returns the question of a task that is not an approval, and its text.
func taskQuestion(t taskRow) (*boardQuestion, string) {
	r := t.Requests[0]
	answer := func(action string, content map[string]any) map[string]any {
		out := map[string]any{"action": action}
		if content != nil {
			out["content"] = content
		}
		return map[string]any{"key": r.Key, "answer": out}
	}
	q := &boardQuestion{path: taskPath(t.ID, "/answer"), decline: answer("decline", nil)}
	body := text.VisibleLines(r.Params.Message) + "\n"
	properties := r.Params.RequestedSchema.Properties
	if len(properties) != 1 {
		q.hint = "it has a form: junctor tasks answer " + t.ID + " --answer NAME=VALUE …"
		return q, body
	}
	for name, p := range properties {
		switch {
		case p.Type == "boolean":
			q.choices = []boardChoice{
				{n: 1, body: answer("accept", map[string]any{name: true})}, {n: 2, deny: true, body: answer("accept", map[string]any{name: false})},
			}
			body += "\n1 yes\n2 no\n"
		case len(p.Enum) > 0:
			body += "\n"
			for i, value := range p.Enum {
				q.choices = append(q.choices, boardChoice{n: i + 1, body: answer("accept", map[string]any{name: value})})
				body += fmt.Sprintf("%d %s\n", i+1, text.Visible(value))
			}
		case p.Type == "string":
			q.typed = func(said string) map[string]any { return answer("accept", map[string]any{name: said}) }
		default:
			q.hint = "answer with: junctor tasks answer " + t.ID + " --answer NAME=VALUE …"
		}
	}
	return q, body
}

// answer sends a choice or a typed answer.
func (b *board) answer(p *boardPage, body map[string]any) tea.Cmd {
	return b.post(p.question.path, body, p, func(json.RawMessage) string { return "answered: " + p.task.Title })
}

// pressed returns the answer that a digit means. A question with more than nine choices takes typed
// numbers only.
func (q *boardQuestion) pressed(key string) (boardChoice, bool) {
	if len(q.choices) > 9 || len(key) != 1 || !strings.Contains("123456789", key) {
		return boardChoice{}, false
	}
	at := slices.IndexFunc(q.choices, func(c boardChoice) bool { return fmt.Sprint(c.n) == key })
	if at < 0 {
		return boardChoice{}, false
	}
	return q.choices[at], true
}
