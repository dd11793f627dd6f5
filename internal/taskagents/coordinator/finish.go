package coordinator

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/taskagents/coordinator/decide"
	"github.com/junctor-run/junctor/internal/taskagents/coordinator/validation"
	"github.com/junctor-run/junctor/internal/taskagents/directive"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

// complete validates the session's work and acts on the outcome: it accepts the task, sends
// the follow-up to the agent, or asks the user. Without Validator it accepts the task.
func (t *task) complete() {
	summary := t.summary()
	if t.c.cfg.Validator == nil {
		t.accept(summary)
		return
	}
	t.update(func(s *row.Session) { s.Status = row.SessionToolRunning })
	d, err := t.c.cfg.Registry.Detail(t.c.ctx, t.thread, threads.Selection{
		Fields: []threads.Field{threads.FieldNodes, threads.FieldTranscripts, threads.FieldArtifacts}, Transcripts: 8,
	})
	if err != nil {
		t.c.cfg.Logger.Warn("a thread could not be read", "thread", t.thread, "err", err)
	}
	subject := t.subject(d)
	job, err := t.c.cfg.Registry.StartJob(t.c.ctx, row.VerifierJob{
		ThreadID: t.thread, NodeID: t.node(d), VerifierType: "validation",
		Title: "Validate " + t.name(),
	})
	if err != nil {
		t.c.cfg.Logger.Warn("a validation could not be kept", "session", t.id, "err", err)
	}
	t.c.tell(t.event("validation", map[string]string{"status": "running"}))
	ctx, cancel := context.WithTimeout(t.c.ctx, validateTimeout)
	r := t.c.cfg.Validator.Validate(ctx, subject)
	cancel()
	if t.c.ctx.Err() != nil {
		return // closing: after a restart the thread shows the interrupted session
	}
	t.keep(r, job)
	t.c.tell(t.event("validation", r))
	if r.Outcome == validation.Revise && t.shell() { // a shell would run the follow-up as commands
		r.Outcome = validation.Escalate
	}
	switch r.Outcome {
	case validation.Pass:
		if r.By == validation.Unreviewed {
			summary += "\n\n(Not validated: there is no model and no check.)"
		}
		t.accept(summary)
	case validation.Revise:
		t.update(func(s *row.Session) {
			s.Status, s.Metadata = row.SessionActive, row.WithMeta(s.Metadata, metaRounds, strconv.Itoa(subject.Rounds+1))
		})
		if err := t.respond(nil, directive.Answer{Action: "respond", Response: r.FollowUp}); err != nil {
			t.unanswered(r.Summary, err)
		}
	default:
		t.update(func(s *row.Session) { s.CompletionSummary = summary })
		note := strings.TrimSpace(r.Summary + " " + strings.Join(r.Notes, " "))
		t.escalate(row.SessionWaiting, summary, directive.Answer{
			Response:  text.CutRunes(summary, 4000) + "\n\nThe validation says: " + note,
			Reasoning: note,
		})
	}
}

// subject returns the input of the validation. The members checks (a list of commands) and
// validator of the session's metadata win over those of the thread's. If neither has checks and
// the preset does not let them run, no checks are run.
func (t *task) subject(d threads.Detail) validation.Subject {
	s := validation.Subject{
		ThreadID: t.thread, SessionID: t.id, Task: t.row.OriginalTask, Kind: d.Kind, Workdir: t.row.Workdir, Repo: t.row.Repo, Text: t.result,
	}
	s.Rounds, _ = strconv.Atoi(row.Meta(t.row.Metadata, metaRounds))
	var given, parts []string
	if len(d.AcceptanceCriteria) > 0 && jsonx.Unmarshal(d.AcceptanceCriteria, &given) != nil {
		given = nil
	}
	for _, n := range d.Nodes {
		if n.Kind != row.GoalNode {
			parts = append(parts, n.Title)
		}
		if n.AssignedSessionID != t.id || len(n.AcceptanceCriteria) == 0 {
			continue
		}
		var own []string
		if jsonx.Unmarshal(n.AcceptanceCriteria, &own) == nil && len(own) > 0 {
			given = own
		}
	}
	s.Criteria = validation.SettleCriteria(t.c.ctx, t.c.cfg.Model, s.Task, s.Kind, given, parts)
	for _, raw := range [][]byte{d.Metadata, t.row.Metadata} {
		var said struct {
			Checks    [][]string         `json:"checks"`
			Validator *validation.Custom `json:"validator"`
		}
		if len(raw) == 0 || jsonx.Unmarshal(raw, &said) != nil {
			continue
		}
		if said.Checks != nil {
			s.Checks = said.Checks
		}
		if said.Validator != nil {
			s.Custom = said.Validator
		}
	}
	if s.Checks == nil && !t.mayRun() {
		s.Checks = [][]string{} // none
	}
	for _, x := range d.Transcripts {
		if x.SessionID == t.id {
			s.Transcripts = append(s.Transcripts, string(x.Direction)+": "+x.Content)
		}
	}
	for _, x := range d.Artifacts {
		s.Artifacts = append(s.Artifacts, x.Title+" "+x.Path+x.URI)
	}
	return s
}

// mayRun reports whether the conventional checks of a folder may run. The agent or the author
// of the repository controls these commands, so the preset must allow shell commands, or
// require a question that an autonomous coordinator may answer. A session without preset may.
func (t *task) mayRun() bool {
	preset := programs.Preset(row.Meta(t.row.Metadata, metaPreset))
	switch preset.Judge(programs.ShellUse) {
	case programs.Auto:
		return true
	case programs.Ask:
		return t.c.Level(t.thread) == Autonomous
	}
	return preset == ""
}

// node returns the id of the plan's part that is assigned to the session, or "".
func (t *task) node(d threads.Detail) string {
	for _, n := range d.Nodes {
		if n.AssignedSessionID == t.id {
			return n.ID
		}
	}
	return ""
}

// keep stores a report: it ends job and adds the report as evidence and artifact. Failures are
// logged.
func (t *task) keep(r validation.Report, job row.VerifierJob) {
	status, said := row.JobFailed, string(r.Outcome)
	switch {
	case r.By == validation.Unreviewed:
		status, said = row.JobCanceled, "none"
	case r.Outcome == validation.Pass:
		status = row.JobPassed
	}
	if job.Status != "" {
		m, err := t.c.retry(func() (threads.Moved, error) {
			return t.c.cfg.Registry.EndJob(t.c.ctx, t.thread, job.ID, status, r.Summary)
		})
		if err != nil {
			t.c.cfg.Logger.Warn("the end of a validation could not be kept", "session", t.id, "err", err)
		} else {
			t.took(m)
		}
	}
	brief := r
	brief.Look = validation.Look{} // the report's file has it
	_, err := t.c.cfg.Registry.AddEvidence(t.c.ctx, row.Evidence{
		ThreadID: t.thread, NodeID: job.NodeID, SessionID: t.id, VerifierJobID: job.ID, EvidenceType: "validation_report",
		Title: "Validation: " + said, Summary: r.Summary, Path: r.Path, Content: document(brief),
	})
	if err == nil && r.Path != "" {
		_, err = t.c.cfg.Registry.AddArtifact(t.c.ctx, row.Artifact{
			ThreadID: t.thread, SessionID: t.id, ArtifactType: "validation_report", Title: "Validation: " + said, Path: r.Path,
			MimeType: "application/json",
		})
	}
	if err != nil {
		t.c.cfg.Logger.Warn("a validation's report could not be kept", "session", t.id, "err", err)
	}
}

// accept marks the task completed and schedules the stop of its program after stopDelay. The
// program keeps running if the session's metadata has keepAlive, or if it starts a new turn
// before.
func (t *task) accept(summary string) {
	t.waiting = time.Time{}
	t.end(row.SessionCompleted, summary, t.event("task_complete", map[string]string{"summary": summary}))
	var meta struct {
		Keep bool `json:"keepAlive"`
	}
	if len(t.row.Metadata) == 0 || jsonx.Unmarshal(t.row.Metadata, &meta) != nil || !meta.Keep {
		t.stopAt = t.c.cfg.Now().Add(stopDelay)
	}
}

// end stores the task's final status with text as its summary or reason and publishes e. Then
// it starts parts that became ready, or reports the end of the thread.
func (t *task) end(status row.SessionStatus, text string, e Event) {
	m, err := t.change(func(s *row.Session) {
		s.Status = status
		if status == row.SessionCompleted {
			s.CompletionSummary = text
			return
		}
		s.Metadata = row.WithMeta(s.Metadata, metaReason, text)
		if s.CompletionSummary == "" {
			s.CompletionSummary = text
		}
	})
	t.c.tell(e)
	if err == nil {
		t.c.moved(m)
	}
}

// closing reports the end of a thread if it is closed, none of its sessions is live, and no
// launcher starts parts of it.
func (c *Coordinator) closing(m threads.Moved) {
	if !m.Thread.Status.Closed() || len(m.Sessions) == 0 || c.starting(m.Thread.ID) {
		return
	}
	for _, s := range m.Sessions {
		if s.Status.Live() {
			return
		}
	}
	c.over(m)
}

// over reports the end of a thread to subscribers and the user, once for each time that it
// ends. The message is first stored in the thread, so that after a crash the end is reported
// exactly once (see [Coordinator.Settle]).
func (c *Coordinator) over(m threads.Moved) {
	if threads.Told(m.Thread, len(m.Sessions)) {
		return
	}
	swarm := decide.Over(m.Thread, m.Sessions, m.Nodes)
	text, mine := c.synthesis(swarm), false
	now, err := c.retry(func() (m2 threads.Moved, err error) {
		m2, mine, err = c.cfg.Registry.Tell(c.ctx, m.Thread.ID, text)
		return m2, err
	})
	if err != nil {
		c.cfg.Logger.Error("the end of a thread could not be kept", "thread", m.Thread.ID, "err", err)
		return
	}
	if !mine {
		return
	}
	c.tell(Event{Type: "swarm_complete", ThreadID: now.Thread.ID, Data: swarm})
	c.say(now.Thread, "", text)
}

// synthesis returns the message about a finished thread, by Chat or else by decide.Synthesis.
func (c *Coordinator) synthesis(s decide.Swarm) string {
	if c.cfg.Chat != nil {
		ctx, cancel := context.WithTimeout(c.ctx, modelTimeout)
		defer cancel()
		if content, err := c.cfg.Chat.Synthesise(ctx, s); err == nil && strings.TrimSpace(content) != "" {
			return text.CutRunes(content, maxSummary)
		}
	}
	return text.CutRunes(decide.Synthesis(s), maxSummary)
}

// Settle reports the end of a thread that ended in an earlier server process, unless that
// process reported it. If the thread is not closed, has parts to start, or has interrupted
// sessions and was not stopped, Settle returns true and reports nothing.
func (c *Coordinator) Settle(m threads.Moved) (resumable bool) {
	if !m.Thread.Status.Closed() || len(c.ready(m)) > 0 {
		return true
	}
	for _, s := range m.Sessions {
		if !m.Thread.Held() && s.Status == row.SessionInterrupted && row.Meta(s.Metadata, row.ReplacedBy) == "" {
			return true
		}
	}
	c.over(m)
	return false
}
