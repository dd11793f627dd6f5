package verbs

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/taskagents/launch"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

// which identifies a thread: by its id, by one of its sessions, or by search words.
type which struct {
	ThreadID  string `json:"threadId"`
	SessionID string `json:"sessionId"`
	Search    string `json:"search"`
}

// thread returns the id of the thread that w identifies. If w is empty, it is the conversation's
// last thread. It fails with THREAD_NOT_FOUND. A ThreadID is not checked.
func (v *verbs) thread(ctx context.Context, c Call, w which) (string, error) {
	switch {
	case w.ThreadID != "":
		return w.ThreadID, nil
	case w.SessionID != "":
		s, err := v.cfg.Registry.Session(ctx, w.SessionID)
		if err != nil {
			return "", ThreadNotFound.Errorf("no task has a session %.64q", w.SessionID)
		}
		return s.ThreadID, nil
	case strings.TrimSpace(w.Search) != "":
		s, err := v.cfg.Registry.Find(ctx, w.Search, "")
		return s.ID, err
	}
	if id := v.talks.Last(c).ThreadID; id != "" {
		return id, nil
	}
	return "", ThreadNotFound.Errorf("it is not clear which task is meant").With("thread_not_found", "give threadId, sessionId or search")
}

// control implements TASK_CONTROL.
func (v *verbs) control(ctx context.Context, c Call, params json.RawMessage) (Result, error) {
	var p struct {
		which
		Operation   string `json:"operation"`
		Action      string `json:"action"` // synonym of operation, as in /threads/{id}/control
		Note        string `json:"note"`
		Instruction string `json:"instruction"`
		AgentType   string `json:"agentType"`
	}
	if err := Params(params, &p); err != nil {
		return Fail(err, nil)
	}
	op, err := operation(c, First(p.Operation, p.Action))
	if err != nil {
		return Fail(err, nil)
	}
	name, err := Program(p.AgentType)
	if err != nil {
		return Fail(err, nil)
	}
	id, err := v.thread(ctx, c, p.which)
	if err != nil {
		return Fail(err, nil)
	}
	done, err := v.cfg.Launcher.Control(ctx, c.By, launch.Control{
		ThreadID: id, Operation: op, Note: p.Note, Instruction: p.Instruction,
		AgentType: string(name),
	})
	if err != nil {
		return Fail(err, nil)
	}
	v.talks.Remember(c, func(t *Talk) {
		t.ThreadID = done.ThreadID
		for _, a := range done.Agents {
			if a.SessionID != "" {
				t.SessionID, t.Workdir = a.SessionID, a.Workdir
			}
		}
	})
	words := map[launch.Operation]string{
		launch.Pause: "paused", launch.Stop: "stopped", launch.Resume: "resumed", launch.Continue: "continued", launch.Archive: "archived",
		launch.Reopen: "reopened",
	}
	r := Result{Success: true, Text: fmt.Sprintf("The task is %s.", words[op]), Data: done, Task: done.Task}
	if len(done.Agents) > 0 {
		return began(r, done.Agents)
	}
	return r, nil
}

// operation returns the operation that the parameter names or, if it is "", the one of the
// alias that was called. It fails with INVALID_OPERATION.
func operation(c Call, named string) (launch.Operation, error) {
	alias, _ := strings.CutSuffix(c.Spelled, "_TASK")
	switch op := launch.Operation(strings.ToLower(First(named, alias))); op {
	case launch.Pause, launch.Stop, launch.Resume, launch.Continue, launch.Archive, launch.Reopen:
		return op, nil
	}
	return "", InvalidOperation.Errorf("%.40q is not an operation on a task", named).With("invalid_operation",
		"the operations are pause, stop, resume, continue, archive and reopen")
}

// timeWindow is a period of the past that a text asks about.
type timeWindow string

// Values of timeWindow.
const (
	windowActive    timeWindow = "active"
	windowToday     timeWindow = "today"
	windowYesterday timeWindow = "yesterday"
	windowLast7     timeWindow = "last_7_days"
	windowLast30    timeWindow = "last_30_days"
)

// span returns the inclusive begin and end of the window in the time zone of now. A zero end
// means now, and two zero times mean no limit. ok is false if the window is unknown.
func (w timeWindow) span(now time.Time) (from, to time.Time, ok bool) {
	day := func(back int) time.Time {
		y, m, d := now.Date()
		return time.Date(y, m, d-back, 0, 0, 0, 0, now.Location())
	}
	switch w {
	case "", windowActive:
		return from, to, true
	case windowToday:
		return day(0), to, true
	case windowYesterday:
		return day(1), day(0).Add(-time.Millisecond), true
	case windowLast7:
		return now.AddDate(0, 0, -7), to, true
	case windowLast30:
		return now.AddDate(0, 0, -30), to, true
	}
	return from, to, false
}

// history implements TASK_HISTORY.
func (v *verbs) history(ctx context.Context, c Call, params json.RawMessage) (Result, error) {
	var p struct {
		which
		Metric   string     `json:"metric"`
		Window   timeWindow `json:"window"`
		Statuses Texts      `json:"statuses"`
		Limit    int        `json:"limit"`
		Archived bool       `json:"includeArchived"`
	}
	if err := Params(params, &p); err != nil {
		return Fail(err, nil)
	}
	if p.Metric == "" {
		switch {
		case p.ThreadID != "" || p.SessionID != "":
			p.Metric = "detail"
		case c.Spelled == "COUNT_TASKS":
			p.Metric = "count"
		default:
			p.Metric = "list"
		}
	}
	f, err := v.filter(c, p.Window, p.Statuses)
	if err != nil {
		return Fail(err, nil)
	}
	f.Search, f.Archived, f.Limit = p.Search, p.Archived, min(max(p.Limit, 0), threads.MaxLimit)
	switch p.Metric {
	case "count":
		n, err := v.cfg.Registry.Count(ctx, f)
		if err != nil {
			return Fail(err, nil)
		}
		return Result{Success: true, Text: counted(n, p.Window), Data: map[string]any{"metric": "count", "window": p.Window, "count": n}}, nil
	case "detail":
		return v.details(ctx, c, p.which, f)
	case "list":
	default:
		return Fail(MissingParams.Errorf("metric is %.40q; it is list, count or detail", p.Metric), nil)
	}
	if f.Limit == 0 {
		f.Limit = defaultTasks
	}
	list, err := v.cfg.Registry.List(ctx, f)
	if err != nil {
		return Fail(err, nil)
	}
	content := counted(len(list), p.Window)
	for _, s := range list {
		content += fmt.Sprintf("\n- %s: %s", text.Line(s.Title, 100), s.Status)
		if s.Summary != "" {
			content += ". " + text.Line(s.Summary, 200)
		}
	}
	return Result{Success: true, Text: content, Data: map[string]any{"metric": "list", "window": p.Window, "threads": Summaries(list)}}, nil
}

// counted returns a sentence with the number of tasks in a window.
func counted(n int, w timeWindow) string {
	word := "tasks"
	if n == 1 {
		word = "task"
	}
	of := map[timeWindow]string{
		windowActive: " not finished", windowToday: " of today", windowYesterday: " of yesterday",
		windowLast7: " of the last 7 days", windowLast30: " of the last 30 days",
	}[w]
	return fmt.Sprintf("%d %s%s.", n, word, of)
}

// filter returns the filter for a window in the user's time zone. Given statuses replace those
// of the window. It fails with MISSING_PARAMS for an unknown window or status.
func (v *verbs) filter(c Call, w timeWindow, statuses []string) (f threads.Filter, err error) {
	now := v.cfg.Now()
	if c.Zone != nil {
		now = now.In(c.Zone)
	}
	from, to, ok := w.span(now)
	if !ok {
		return f, MissingParams.Errorf("window is %.40q; it is active, today, yesterday, last_7_days or last_30_days", w)
	}
	f.ActivityAfter, f.ActivityBefore = from, to
	if w == windowActive {
		f.Statuses = Unfinished()
	}
	if len(statuses) > 0 {
		f.Statuses = nil
	}
	for _, text := range statuses {
		status := row.ThreadStatus(strings.ToLower(text))
		if !status.Valid() {
			return f, MissingParams.Errorf("%.40q is not a status of a task", text)
		}
		f.Statuses = append(f.Statuses, status)
	}
	return f, nil
}

// details returns the records of the task that w names by thread or session, otherwise of the
// newest tasks that match f, at most maxDetails.
func (v *verbs) details(ctx context.Context, c Call, w which, f threads.Filter) (Result, error) {
	var ids []string
	if w.ThreadID != "" || w.SessionID != "" {
		id, err := v.thread(ctx, c, w)
		if err != nil {
			return Fail(err, nil)
		}
		ids = []string{id}
	} else {
		f.Limit = min(max(f.Limit, 1), maxDetails)
		list, err := v.cfg.Registry.List(ctx, f)
		if err != nil {
			return Fail(err, nil)
		}
		for _, s := range list {
			ids = append(ids, s.ID)
		}
	}
	type detail struct {
		Summary
		Sessions  []row.Session  `json:"sessions"`
		Nodes     []row.Node     `json:"nodes"`
		Decisions []row.Decision `json:"decisions"`
		Artifacts []row.Artifact `json:"artifacts"`
	}
	list, content := []detail{}, ""
	for _, id := range ids {
		d, err := v.cfg.Registry.Detail(ctx, id, threads.Selection{Fields: []threads.Field{
			threads.FieldSessions, threads.FieldNodes, threads.FieldDecisions, threads.FieldArtifacts,
		}})
		if err != nil {
			return Fail(err, nil)
		}
		one := detail{Summaries([]threads.Summary{d.Summary})[0], newest(d.Sessions), newest(d.Nodes), newest(d.Decisions), newest(d.Artifacts)}
		shorten(one.Sessions, one.Nodes, one.Decisions, one.Artifacts)
		list = append(list, one)
		content += fmt.Sprintf("%s: %s. %s\n", text.Line(d.Title, 100), d.Status,
			text.Line(First(d.Summary.Summary, d.OriginalRequest), MaxListedText))
		for _, s := range one.Sessions {
			content += fmt.Sprintf("- %s (%s): %s. %s\n", First(s.Label, s.SessionID), s.Framework, s.Status, text.Line(s.CompletionSummary, 200))
		}
	}
	if len(list) == 0 {
		content = counted(0, "")
	}
	return Result{Success: true, Text: strings.TrimSpace(content), Data: map[string]any{"metric": "detail", "threads": list}}, nil
}

// shorten cuts long texts in place and removes the metadata, which holds data of callers and
// the resume tokens of programs.
func shorten(sessions []row.Session, nodes []row.Node, decisions []row.Decision, artifacts []row.Artifact) {
	cut := func(texts ...*string) {
		for _, t := range texts {
			*t = text.Line(*t, MaxListedText)
		}
	}
	for i := range sessions {
		s := &sessions[i]
		cut(&s.OriginalTask, &s.CompletionSummary)
		s.Metadata = nil
	}
	for i := range nodes {
		n := &nodes[i]
		cut(&n.Instructions)
		n.Metadata = nil
	}
	for i := range decisions {
		d := &decisions[i]
		cut(&d.PromptText, &d.Response, &d.Reasoning)
		d.Metadata = nil
	}
	for i := range artifacts {
		artifacts[i].Metadata = nil
	}
}

// newest returns the last maxDetailItems of a list.
func newest[T any](list []T) []T { return list[max(0, len(list)-maxDetailItems):] }

// share implements TASK_SHARE. If nothing identifies a task, the newest one is used.
func (v *verbs) share(ctx context.Context, c Call, params json.RawMessage) (Result, error) {
	var p which
	if err := Params(params, &p); err != nil {
		return Fail(err, nil)
	}
	id, err := v.thread(ctx, c, p)
	if err != nil && p == (which{}) {
		// "Can I see it?" refers to the newest task.
		list, failed := v.cfg.Registry.List(ctx, threads.Filter{Limit: 1})
		if failed == nil && len(list) > 0 {
			id, err = list[0].ID, nil
		}
	}
	if err != nil {
		return Fail(err, nil)
	}
	shared, err := v.cfg.Registry.Share(ctx, id, v.cfg.Roots)
	if err != nil {
		return Fail(err, nil)
	}
	if len(shared.Targets) == 0 {
		return Fail(NoShareTarget.Errorf("the task %q has made nothing that can be shown", text.Line(shared.Title, 100)), shared)
	}
	s := text.Line(shared.Title, 100) + ":"
	for _, target := range shared.Targets {
		s += fmt.Sprintf("\n- %s: %s", text.Line(First(target.Title, string(target.Kind)), 100), First(target.URI, target.Path))
	}
	return Result{Success: true, Text: s, Data: shared}, nil
}
