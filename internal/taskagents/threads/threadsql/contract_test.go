package threadsql_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

func reason(err error) string {
	if err == nil {
		return ""
	}
	return capability.AsError(err).Reason
}

func contract(t *testing.T, open func(t *testing.T) *world) {
	for name, test := range map[string]func(*testing.T, *world){
		"a plan becomes nodes that wait for each other":           aPlan,
		"a session takes its node through its life":               aLife,
		"what fails holds up what waits for it, until replaced":   aRecovery,
		"what people do to a thread":                              controls,
		"all that is recorded comes back":                         records,
		"a transcript has its bound and says what is gone":        transcripts,
		"messages and pending decisions are taken once":           taken,
		"a restart interrupts what this gateway was doing":        restart,
		"every filter selects":                                    filters,
		"hostile texts are texts":                                 hostile,
		"changes that meet are all kept":                          meeting,
		"what is refused leaves nothing":                          refused,
		"what can be shown is found and recorded once":            shared,
		"rows that somebody damaged are not read as if they said": damaged,
		"bounds hold":              bounds,
		"usage is kept and summed": usage,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := open(t)
			test(t, w)
			w.hold(t)
		})
	}
}

func kinds(events []row.Event) (out []string) {
	for _, e := range events {
		out = append(out, e.EventType)
	}
	return out
}

func statuses(nodes []row.Node) (out []row.NodeStatus) {
	for _, n := range nodes {
		out = append(out, n.Status)
	}
	return out
}

func aPlan(t *testing.T, w *world) {
	c := must(w.Create(t.Context(), threads.Plan{
		Thread: row.Thread{
			Title: "ship", OriginalRequest: "fix the bug and deploy it", RoomID: "r",
			Metadata: raw(`{"originRoomId":"r","controlState":"stopped"}`),
		},
		Brief: "same names everywhere",
		Parts: []threads.Part{
			{Title: "fix", Instructions: "fix it", Label: "a", AgentType: "claude", Criteria: []string{"tests pass"}},
			{Title: "deploy", Label: "b", DependsOn: []int{0, 0}},
		},
	}))(t)
	if c.Thread.Kind != row.Coding || c.Thread.Status != row.ThreadOpen {
		t.Errorf("c.Thread.Kind = %q, want row.Coding; c.Thread.Status = %q, want row.ThreadOpen", c.Thread.Kind, c.Thread.Status)
	}
	d := w.detail(t, c.Thread.ID)
	if diff := cmp.Diff([]row.NodeStatus{row.NodePlanned, row.NodeReady, row.NodePlanned}, statuses(d.Nodes)); diff != "" {
		t.Errorf(`diff = %q, want ""`, diff)
	}
	if d.Nodes[0].Priority != 100 || d.Nodes[1].Priority != 10 || d.Nodes[1].ParentNodeID != d.Nodes[0].ID || d.Nodes[2].Sequence != 2 ||
		string(d.Nodes[1].AcceptanceCriteria) != `["tests pass"]` {
		t.Errorf("%+v; want d.Nodes[0].Priority = 100, d.Nodes[1].Priority = 10, d.Nodes[1].ParentNodeID = d.Nodes[0].ID, "+
			`d.Nodes[2].Sequence = 2, string(d.Nodes[1].AcceptanceCriteria) = "[\"tests pass\"]"`, d.Nodes)
	}
	var edges []string
	for _, x := range d.Dependencies {
		name := func(id string) string {
			return d.Nodes[slices.IndexFunc(d.Nodes, func(n row.Node) bool { return n.ID == id })].Title
		}
		edges = append(edges, fmt.Sprintf("%s %s %s", name(x.ToNodeID), x.DependencyKind, name(x.FromNodeID)))
	}
	if diff := cmp.Diff([]string{"ship parent_child fix", "ship parent_child deploy", "deploy blocks fix"}, edges); diff != "" {
		t.Errorf(`diff = %q, want ""`, diff)
	}
	if len(d.Mailbox) != 2 || d.Mailbox[1].Recipient != "b" || d.Mailbox[1].Body != "same names everywhere" ||
		d.Mailbox[0].DeliveryState != row.MailPending {
		t.Errorf(`%+v; want len(d.Mailbox) = 2, d.Mailbox[1].Recipient = "b", d.Mailbox[1].Body = "same names everywhere", `+
			"d.Mailbox[0].DeliveryState = row.MailPending", d.Mailbox)
	}
	if diff := cmp.Diff([]string{row.TaskCreated}, kinds(d.Events)); diff != "" {
		t.Errorf("diff (-want +got):\n%s", diff)
	}
	if row.Meta(d.Metadata, "originRoomId") != "r" || row.Meta(d.Metadata, row.ControlState) != "" {
		t.Errorf("metadata = %s, want room r and no control state", d.Metadata)
	}
	if diff := cmp.Diff(c.Nodes, d.Nodes); diff != "" {
		t.Errorf("diff (-want +got):\n%s", diff)
	}
	_, err := w.Create(t.Context(), threads.Plan{
		Thread: row.Thread{Title: "x"},
		Parts:  []threads.Part{{Title: "a", DependsOn: []int{1}}, {Title: "b", DependsOn: []int{0}}},
	})
	if reason(err) != "invalid_plan" {
		t.Errorf(`%v; want reason(err) = "invalid_plan"`, err)
	}
	if _, err := w.Create(t.Context(), threads.Plan{Thread: row.Thread{Title: "x"}}); reason(err) != "invalid_plan" {
		t.Errorf(`%v; want reason(err) = "invalid_plan"`, err)
	}
	if n := must(w.Count(t.Context(), threads.Filter{}))(t); n != 1 {
		t.Errorf("must(w.Count(t.Context(), threads.Filter{})) = %v, want 1", n)
	}
}

func usage(t *testing.T, w *world) {
	made := w.thread(t, "count", 2)
	w.begin(t, made.Thread.ID, "pty-1", made.Nodes[1].ID)
	w.begin(t, made.Thread.ID, "pty-2", made.Nodes[2].ID)
	if d := w.detail(t, made.Thread.ID); d.Usage != nil {
		t.Errorf("usage before any was reported = %+v, want nil", d.Usage)
	}
	for _, one := range []struct {
		session string
		spent   programs.Usage
	}{{"pty-1", programs.Usage{In: 1, Out: 1}}, {"pty-1", programs.Usage{In: 5, Out: 2, USD: 0.5}}, {"pty-2", programs.Usage{In: 10, Out: 3}}} {
		if err := w.Spend(t.Context(), one.session, one.spent); err != nil {
			t.Fatalf("Spend(%s): got %v, want no error", one.session, err)
		}
	}
	w.to(t, "pty-1", row.SessionCompleted) // other changes keep it
	want := programs.Usage{In: 15, Out: 5, USD: 0.5}
	if d := w.detail(t, made.Thread.ID); d.Usage == nil || *d.Usage != want {
		t.Errorf("usage of the thread = %+v, want %+v", d.Usage, want)
	}
	if got := threads.UsageOf(must(w.Session(t.Context(), "pty-1"))(t).Metadata); got == nil || *got != (programs.Usage{In: 5, Out: 2, USD: 0.5}) {
		t.Errorf("usage of the session = %+v, want 5 in, 2 out, 0.5 USD", got)
	}
	if err := w.Spend(t.Context(), "pty-9", want); reason(err) != threads.ReasonNoSession {
		t.Errorf("Spend(unknown session) = %v, want %s", err, threads.ReasonNoSession)
	}
}

func aLife(t *testing.T, w *world) {
	c := w.thread(t, "one", 1)
	id, node := c.Thread.ID, c.Nodes[1].ID
	m := w.begin(t, id, "pty-1-a", node)
	if m.Thread.Status != row.ThreadActive || m.Nodes[1].Status != row.NodeClaimed || m.Nodes[1].AssignedSessionID != "pty-1-a" {
		t.Errorf("%+v; want m.Thread.Status = row.ThreadActive, m.Nodes[1].Status = row.NodeClaimed, "+
			`m.Nodes[1].AssignedSessionID = "pty-1-a"`, m)
	}
	m = must(w.UpdateSession(t.Context(), "pty-1-a", func(s *row.Session) {
		s.TaskDelivered, s.LastInputSentAt, s.ThreadID, s.DecisionCount = true, row.At(at(99)), "another", 77
	}))(t)
	if s, _ := m.Session("pty-1-a"); m.Nodes[1].Status != row.NodeRunning || s.ThreadID != id || s.DecisionCount != 0 ||
		s.LastInputSentAt != row.At(at(99)) {
		t.Errorf("%+v; want m.Nodes[1].Status = row.NodeRunning, s.ThreadID = %v, s.DecisionCount = 0, s.LastInputSentAt = row.At(at(99))",
			m, id)
	}
	job := must(w.StartJob(t.Context(), row.VerifierJob{ThreadID: id, NodeID: node, VerifierType: "model", Title: "look"}))(t)
	for _, step := range []struct {
		status row.SessionStatus
		thread row.ThreadStatus
		node   row.NodeStatus
		claim  row.ClaimStatus
	}{
		{row.SessionToolRunning, row.ThreadActive, row.NodeVerifying, row.ClaimActive},
		{row.SessionBlocked, row.ThreadBlocked, row.NodeBlocked, row.ClaimActive},
		{row.SessionWaiting, row.ThreadWaiting, row.NodeWaiting, row.ClaimActive},
		{row.SessionStopped, row.ThreadInterrupted, row.NodeInterrupted, row.ClaimReleased},
		{row.SessionActive, row.ThreadActive, row.NodeVerifying, row.ClaimActive}, // it resumed
		{row.SessionError, row.ThreadFailed, row.NodeFailed, row.ClaimFailed},
		{row.SessionCompleted, row.ThreadDone, row.NodeCompleted, row.ClaimCompleted},
	} {
		m := w.to(t, "pty-1-a", step.status)
		d := w.detail(t, id)
		if m.Thread.Status != step.thread || d.Status != step.thread || d.Nodes[1].Status != step.node || d.Claims[0].Status != step.claim {
			t.Errorf("%s: thread %s %s, node %s, claim %s; want m.Thread.Status = %v, d.Status = %v, d.Nodes[1].Status = %v, "+
				"d.Claims[0].Status = %v", step.status, m.Thread.Status, d.Status, d.Nodes[1].Status, d.Claims[0].Status, step.thread,
				step.thread, step.node, step.claim)
		}
		if d.Status.Closed() == d.ClosedAt.IsZero() || step.status.Live() != (d.Sessions[0].StoppedAt == 0) {
			t.Errorf("%s: closed %v, stopped %v; want d.Status.Closed() other than d.ClosedAt.IsZero(), step.status.Live() = "+
				"(d.Sessions[0].StoppedAt == 0)", step.status, d.ClosedAt, d.Sessions[0].StoppedAt)
		}
	}
	m = must(w.EndJob(t.Context(), id, job.ID, row.JobPassed, "fine"))(t)
	if m.Nodes[0].Status != row.NodeCompleted || m.Nodes[0].CompletedAt.IsZero() {
		t.Errorf("the goal: %+v; want m.Nodes[0].Status = row.NodeCompleted, not m.Nodes[0].CompletedAt.IsZero()", m.Nodes[0])
	}
	if _, err := w.EndJob(t.Context(), id, job.ID, row.JobFailed, ""); reason(err) != threads.ReasonState {
		t.Errorf("%v; want reason(err) = threads.ReasonState", err)
	}
	want := []string{
		row.TaskCreated, row.SessionRegistered, row.TaskStatusChanged, row.SessionUpdated, row.ValidationStarted,
		row.SessionUpdated, // tool_running
	}
	for range 6 {
		want = append(want, row.SessionUpdated, row.TaskStatusChanged)
	}
	if diff := cmp.Diff(append(want, row.ValidationPassed), kinds(w.detail(t, id).Events)); diff != "" {
		t.Errorf(`diff = %q, want ""`, diff)
	}
	before := len(w.detail(t, id).Events)
	must(w.UpdateSession(t.Context(), "pty-1-a", func(s *row.Session) { s.LastActivityAt++ }))(t)
	if after := len(w.detail(t, id).Events); after != before {
		t.Errorf("activity alone is an event; got after = %v; want after = %v", after, before)
	}
}

func aRecovery(t *testing.T, w *world) {
	c := must(w.Create(t.Context(), threads.Plan{
		Thread: row.Thread{Title: "t"},
		Parts:  []threads.Part{{Title: "first"}, {Title: "second", DependsOn: []int{0}}},
	}))(t)
	id := c.Thread.ID
	if _, err := w.Register(t.Context(), threads.Registration{
		ThreadID: id, Node: c.Nodes[2].ID,
		Session: row.Session{SessionID: "pty-0"},
	}); reason(err) != threads.ReasonState {
		t.Errorf("a node was claimed that waits %v; want reason(err) = threads.ReasonState", err)
	}
	w.begin(t, id, "pty-1", c.Nodes[1].ID)
	if _, err := w.Register(t.Context(), threads.Registration{
		ThreadID: id, Node: c.Nodes[1].ID,
		Session: row.Session{SessionID: "pty-2"},
	}); reason(err) != threads.ReasonState {
		t.Errorf("a node was claimed twice %v; want reason(err) = threads.ReasonState", err)
	}
	m := w.to(t, "pty-1", row.SessionError)
	if diff := cmp.Diff([]row.NodeStatus{row.NodeFailed, row.NodeFailed, row.NodeBlocked}, statuses(m.Nodes)); diff != "" {
		t.Errorf(`diff = %q, want ""`, diff)
	}
	m = w.begin(t, id, "pty-2", "", "pty-1")
	if diff := cmp.Diff([]row.NodeStatus{row.NodePlanned, row.NodeClaimed, row.NodePlanned}, statuses(m.Nodes)); diff != "" ||
		m.Thread.Status != row.ThreadActive {
		t.Errorf(`diff = %q, want ""; m.Thread.Status = %q, want row.ThreadActive`, diff, m.Thread.Status)
	}
	if _, err := w.UpdateSession(t.Context(), "pty-1", func(s *row.Session) { s.Status = row.SessionActive }); reason(
		err) != threads.ReasonState {
		t.Errorf("what was replaced lives %v; want reason( err) = threads.ReasonState", err)
	}
	m = must(w.UpdateSession(t.Context(), "pty-1", func(s *row.Session) { s.Metadata = nil }))(t)
	if s, _ := m.Session("pty-1"); row.Meta(s.Metadata, row.ReplacedBy) != "pty-2" || row.Meta(s.Metadata, row.Gateway) != "g1" {
		t.Errorf("metadata = %s, want replaced by pty-2 at gateway g1", s.Metadata)
	}
	m = w.to(t, "pty-2", row.SessionCompleted)
	if m.Thread.Status != row.ThreadActive || m.Nodes[0].Status != row.NodePlanned || m.Nodes[2].Status != row.NodeReady {
		t.Errorf("%s %v; want m.Thread.Status = row.ThreadActive, m.Nodes[0].Status = row.NodePlanned, m.Nodes[2].Status = row.NodeReady",
			m.Thread.Status, statuses(m.Nodes))
	}
	m = w.begin(t, id, "pty-3", c.Nodes[2].ID)
	m = w.to(t, "pty-3", row.SessionCompleted)
	if m.Thread.Status != row.ThreadDone || m.Nodes[0].Status != row.NodeCompleted {
		t.Errorf("%s %v; want m.Thread.Status = row.ThreadDone, m.Nodes[0].Status = row.NodeCompleted",
			m.Thread.Status, statuses(m.Nodes))
	}
	if _, err := w.Register(t.Context(), threads.Registration{
		ThreadID: id, Replaces: []string{"pty-1"},
		Session: row.Session{SessionID: "pty-4"},
	}); reason(err) != threads.ReasonState {
		t.Errorf("replaced twice %v; want reason(err) = threads.ReasonState", err)
	}
	// A live one is ended by being replaced, and its claim released.
	w.begin(t, id, "pty-5", "")
	m = w.begin(t, id, "pty-6", "", "pty-5")
	if s, _ := m.Session("pty-5"); s.Status != row.SessionStopped || s.StoppedAt == 0 {
		t.Errorf("%+v; want s.Status = row.SessionStopped, s.StoppedAt other than 0", s)
	}
}

func controls(t *testing.T, w *world) {
	c := w.thread(t, "one", 1)
	id := c.Thread.ID
	w.begin(t, id, "pty-1", c.Nodes[1].ID)
	do := func(control threads.Control, want row.ThreadStatus) threads.Moved {
		t.Helper()
		m := must(w.Control(t.Context(), id, control, "because"))(t)
		if m.Thread.Status != want {
			t.Errorf("%s: %s, not %s; want m.Thread.Status = %v", control, m.Thread.Status, want, want)
		}
		return m
	}
	do(threads.Pause, row.ThreadActive) // its session is not stopped yet
	do(threads.Pause, row.ThreadActive)
	if m := w.to(t, "pty-1", row.SessionStopped); m.Thread.Status != row.ThreadWaiting {
		t.Errorf("m.Thread.Status = %q, want row.ThreadWaiting", m.Thread.Status)
	}
	if _, err := w.Register(t.Context(), threads.Registration{
		ThreadID: id,
		Session:  row.Session{SessionID: "pty-2"},
	}); reason(err) != threads.ReasonState {
		t.Errorf("a session began in a paused thread %v; want reason(err) = threads.ReasonState", err)
	}
	m := do(threads.Stop, row.ThreadInterrupted)
	if state, ok := threads.TaskState(m.Thread); state != "cancelled" || !ok {
		t.Errorf(`threads.TaskState(m.Thread): state = %q, want "cancelled"; ok = %v, want true`, state, ok)
	}
	do(threads.Resume, row.ThreadInterrupted)
	w.begin(t, id, "pty-2", "", "pty-1")
	if m := w.to(t, "pty-2", row.SessionCompleted); m.Thread.Status != row.ThreadDone {
		t.Errorf("m.Thread.Status = %q, want row.ThreadDone", m.Thread.Status)
	}
	do(threads.Archive, row.ThreadArchived)
	do(threads.Archive, row.ThreadArchived)
	if _, err := w.Control(t.Context(), id, threads.Pause, ""); reason(err) != threads.ReasonState {
		t.Errorf("%v; want reason(err) = threads.ReasonState", err)
	}
	if _, err := w.Control(t.Context(), id, "explode", ""); reason(err) != "invalid_operation" {
		t.Errorf(`%v; want reason(err) = "invalid_operation"`, err)
	}
	if d := w.detail(t, id); d.ArchivedAt.IsZero() || d.ClosedAt.IsZero() {
		t.Errorf("%+v; want not d.ArchivedAt.IsZero(), not d.ClosedAt.IsZero()", d.Thread)
	}
	if m := do(threads.Reopen, row.ThreadDone); !m.Thread.ArchivedAt.IsZero() {
		t.Errorf("%+v; want m.Thread.ArchivedAt.IsZero()", m.Thread)
	}
	var of []string
	for _, e := range w.detail(t, id).Events {
		if e.Summary == "because" {
			of = append(of, e.EventType)
		}
	}
	if diff := cmp.Diff([]string{row.TaskPaused, row.TaskStopped, row.TaskResumed, row.TaskArchived, row.TaskReopened}, of); diff != "" {
		t.Errorf(`diff = %q, want ""`, diff)
	}
}

func records(t *testing.T, w *world) {
	c := w.thread(t, "one", 1)
	id, node := c.Thread.ID, c.Nodes[1].ID
	w.begin(t, id, "pty-1", node)
	d := row.Decision{
		SessionID: "pty-1", Timestamp: 1234567890123, EventType: "blocked", PromptText: "may I?", Decision: row.Respond,
		Response: "y", Reasoning: "routine", Metadata: raw(`{"n":1.10}`),
	}
	must(w.Decide(t.Context(), d))(t)
	d.Decision = row.AutoResolved
	m := must(w.Decide(t.Context(), d))(t)
	if s, _ := m.Session("pty-1"); s.DecisionCount != 2 || s.AutoResolvedCount != 1 {
		t.Errorf("%+v; want s.DecisionCount = 2, s.AutoResolvedCount = 1", s)
	}
	before := w.detail(t, id).UpdatedAt
	if err := w.Record(t.Context(), row.Event{ThreadID: id, EventType: "tool_running", Summary: "s", Data: raw(`{"a":[1]}`)}); err != nil {
		t.Error(err)
	}
	if !w.detail(t, id).UpdatedAt.After(before) {
		t.Error("an event happened to nobody")
	}
	a := must(w.AddArtifact(t.Context(), row.Artifact{
		ThreadID: id, SessionID: "pty-1", ArtifactType: "report", Title: "r", Path: "/w/r.txt",
		MimeType: "text/plain",
	}))(t)
	job := must(w.StartJob(t.Context(), row.VerifierJob{
		ThreadID: id, NodeID: node, VerifierType: "custom",
		Config: raw(`{"service":"s"}`),
	}))(t)
	e := must(w.AddEvidence(t.Context(), row.Evidence{
		ThreadID: id, NodeID: node, SessionID: "pty-1", VerifierJobID: job.ID,
		EvidenceType: "git_status", Title: "t", Summary: "s", Content: raw(`{"files":[]}`),
	}))(t)
	must(w.EndJob(t.Context(), id, job.ID, row.JobFailed, "no"))(t)
	must(w.AddEvidence(t.Context(), row.Evidence{ThreadID: id, VerifierJobID: job.ID, EvidenceType: "late"}))(t) // of a job that has ended
	must(w.UpdateThread(t.Context(), id, func(x *row.Thread) {
		x.Summary, x.CurrentPlan, x.LastUserTurnAt, x.Status, x.OriginalRequest = "better", raw(`{"steps":[1]}`), at(500), row.ThreadDone,
			"not said"
		x.Metadata = raw(`{"controlState":"paused","k":"v"}`)
	}))(t)

	got := w.detail(t, id)
	if got.Summary.Summary != "better" || string(got.CurrentPlan) != `{"steps":[1]}` || !got.LastUserTurnAt.Equal(at(500)) ||
		got.Status != row.ThreadActive || got.OriginalRequest != "please one" ||
		row.Meta(got.Metadata, row.ControlState) != "" || row.Meta(got.Metadata, "k") != "v" {
		t.Errorf(`%+v; want got.Summary.Summary = "better", string(got.CurrentPlan) = "{\"steps\":[1]}", `+
			`got.LastUserTurnAt.Equal(at(500)), got.Status = row.ThreadActive, got.OriginalRequest = "please one", `+
			`row.Meta(got.Metadata, row.ControlState) = "", row.Meta(got.Metadata, "k") = "v"`, got.Thread)
	}
	if diff := cmp.Diff([]row.Artifact{a}, got.Artifacts); diff != "" {
		t.Errorf("diff (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(e, got.Evidence[0]); diff != "" {
		t.Errorf("diff (-want +got):\n%s", diff)
	}
	d.ID, d.ThreadID, d.CreatedAt = got.Decisions[1].ID, id, got.Decisions[1].CreatedAt
	if diff := cmp.Diff(d, got.Decisions[1]); diff != "" {
		t.Errorf("diff (-want +got):\n%s", diff)
	}
	if got.VerifierJobs[0].Status != row.JobFailed || got.VerifierJobs[0].CompletedAt.IsZero() ||
		string(got.VerifierJobs[0].Config) != `{"service":"s"}` {
		t.Errorf("%+v; want got.VerifierJobs[0].Status = row.JobFailed, not got.VerifierJobs[0].CompletedAt.IsZero(), "+
			`string(got.VerifierJobs[0].Config) = "{\"service\":\"s\"}"`, got.VerifierJobs)
	}
	if got.DecisionCount != 2 || got.VerifierJobCount != 1 || got.EvidenceCount != 2 || got.NodeCount != 2 || got.SessionCount != 1 ||
		got.ActiveSessionCount != 1 || got.LatestSessionLabel != "l pty-1" {
		t.Errorf("%+v; want got.DecisionCount = 2, got.VerifierJobCount = 1, got.EvidenceCount = 2, got.NodeCount = 2, "+
			`got.SessionCount = 1, got.ActiveSessionCount = 1, got.LatestSessionLabel = "l pty-1"`, got.Summary)
	}
	few := must(w.Detail(t.Context(), id, threads.Selection{Fields: []threads.Field{threads.FieldMailbox, threads.FieldTranscripts}}))(t)
	wire := must(jsonx.Marshal(few))(t)
	var members map[string]json.RawMessage
	if err := jsonx.Unmarshal(wire, &members); err != nil {
		t.Fatal(err)
	}
	if string(members["transcripts"]) != `[]` || members["mailbox"] == nil || members["sessions"] != nil ||
		string(members["originalRequest"]) != `"please one"` || string(members["metadata"]) == "" {
		t.Errorf(`%s; want string(members["transcripts"]) = "[]", members["mailbox"] not nil, members["sessions"] = nil, `+
			`string(members["originalRequest"]) = "\"please one\"", string(members["metadata"]) other than ""`, wire)
	}
	if _, err := w.Detail(t.Context(), id, threads.Selection{Fields: []threads.Field{"secrets"}}); reason(err) != "invalid_fields" {
		t.Errorf(`%v; want reason(err) = "invalid_fields"`, err)
	}
	if _, err := w.Detail(t.Context(), "thr_none", threads.Selection{}); reason(err) != threads.ReasonNotFound {
		t.Errorf("%v; want reason(err) = threads.ReasonNotFound", err)
	}
}

func transcripts(t *testing.T, w *world) {
	c := w.thread(t, "one", 1)
	w.begin(t, c.Thread.ID, "pty-1", "")
	w.begin(t, c.Thread.ID, "pty-2", "")
	say := func(id string, pieces ...threads.Piece) {
		t.Helper()
		if err := w.Transcribe(t.Context(), id, pieces); err != nil {
			t.Fatal(err)
		}
	}
	said := func(ms int, way row.Direction, what string) threads.Piece {
		return threads.Piece{At: at(0).Add(time.Duration(ms) * time.Millisecond), Direction: way, Content: what}
	}
	say("pty-1", said(0, row.Stdout, "a"), said(250, row.Stdout, "b"), said(251, row.Stdout, "c"),
		said(252, row.Stdin, "d"), said(253, row.Stdin, ""), said(254, row.Stdout, "e"))
	var rows []string
	for _, r := range w.detail(t, c.Thread.ID).Transcripts {
		rows = append(rows, string(r.Direction)+" "+r.Content)
	}
	if diff := cmp.Diff([]string{"stdout ab", "stdout c", "stdin d", "stdout e"}, rows); diff != "" {
		t.Errorf(`diff = %q, want ""`, diff)
	}
	say("pty-2", said(0, row.Stdout, "kept"))
	chunk := strings.Repeat("é", 50_000) // 100 kB
	for i := range 80 {
		say("pty-1", said(1000*(i+1), row.Stdout, fmt.Sprint(i, " ")+chunk))
	}
	got := must(w.Detail(t.Context(), c.Thread.ID, threads.Selection{Transcripts: threads.MaxTranscript}))(t).Transcripts
	total, gone, last := 0, threads.Gone{}, ""
	for _, r := range got {
		if r.SessionID == "pty-2" {
			continue
		}
		if row.System == r.Direction {
			if gone.Rows != 0 || total != 0 {
				t.Errorf("more than one marker, or not the first; got gone.Rows = %v, total = %v; want gone.Rows = 0, total = 0",
					gone.Rows, total)
			}
			if err := jsonx.Unmarshal(r.Metadata, &gone); err != nil {
				t.Error(err)
			}
		}
		total, last = total+len(r.Content), r.Content
	}
	if total > threads.MaxTranscribe || total < threads.MaxTranscribe/2 || !strings.HasPrefix(last, "79 ") {
		t.Errorf("%d bytes, the last %.10q; want total at most threads.MaxTranscribe, total at least threads.MaxTranscribe / 2, "+
			`last beginning with "79 "`, total, last)
	}
	if kept := len(got) - 2; gone.Rows+kept != 84 {
		t.Errorf("%d rows are gone and %d kept of 84; want gone.Rows + kept = 84", gone.Rows, kept)
	}
	if n := must(w.Detail(t.Context(), c.Thread.ID, threads.Selection{Transcripts: 3}))(t).Transcripts; len(n) != 3 ||
		!strings.HasPrefix(n[2].Content, "79 ") || !strings.HasPrefix(n[0].Content, "77 ") {
		t.Error(`not the newest three, in their order; want len(n) = 3, n[2].Content beginning with "79 ", n[0].Content ` +
			`beginning with "77 "`)
	}
	say("pty-2", said(1, row.Keys, strings.Repeat("\xff\x00", row.MaxText))) // 1.5 MiB as U+FFFD
	if n := must(w.Detail(t.Context(), c.Thread.ID, threads.Selection{Transcripts: 2}))(t).Transcripts; n[1].Direction != row.Keys ||
		!strings.HasPrefix(n[1].Content, "\uFFFD\uFFFD") {
		t.Errorf(`%.20q; want n[1].Direction = row.Keys, n[1].Content beginning with "\uFFFD\uFFFD"`, n[1].Content)
	}
}

func taken(t *testing.T, w *world) {
	c := w.thread(t, "one", 2)
	id := c.Thread.ID
	w.begin(t, id, "pty-1", c.Nodes[1].ID)
	m := must(w.PutMail(t.Context(), row.MailboxItem{
		ThreadID: id, NodeID: c.Nodes[2].ID, Sender: "agent-0", Recipient: "agent-1",
		Subject: "result", Body: "done", DeliveryState: row.MailConsumed,
	}))(t)
	list := must(w.Mail(t.Context(), threads.MailQuery{ThreadID: id, NodeID: c.Nodes[2].ID, State: row.MailPending}))(t)
	if len(list) != 2 || list[1].ID != m.ID || list[0].Subject != "task-brief" {
		t.Errorf(`%+v; want len(list) = 2, list[1].ID = %v, list[0].Subject = "task-brief"`, list, m.ID)
	}
	if err := w.MoveMail(t.Context(), id, m.ID, row.MailDelivered, "pty-1"); err != nil {
		t.Error(err)
	}
	for _, to := range []row.MailState{row.MailPending, row.MailDelivered} {
		if err := w.MoveMail(t.Context(), id, m.ID, to, "pty-1"); reason(err) != threads.ReasonState {
			t.Errorf("reason(err) = %q, want threads.ReasonState; to = %q", reason(err), to)
		}
	}
	if err := w.MoveMail(t.Context(), id, m.ID, row.MailConsumed, ""); err != nil {
		t.Error(err)
	}
	if list := must(w.Mail(t.Context(), threads.MailQuery{ThreadID: id, Recipient: "agent-1", State: row.MailConsumed}))(t); len(list) != 1 ||
		list[0].SessionID != "pty-1" || list[0].DeliveredAt.IsZero() {
		t.Errorf(`%+v; want len(list) = 1, list[0].SessionID = "pty-1", not list[0].DeliveredAt.IsZero()`, list)
	}
	p := row.PendingDecision{
		SessionID: "pty-1", PromptText: "really?", RecentOutput: "…", LLMDecision: raw(`{"action":"respond"}`),
		TaskContext: raw(`{"label":"x"}`),
	}
	if err := w.PutPending(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	p.PromptText = "really, now?"
	if err := w.PutPending(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if all := must(w.Pending(t.Context()))(t); len(all) != 1 || all[0].PromptText != "really, now?" || all[0].ThreadID != id {
		t.Errorf(`%+v; want len(all) = 1, all[0].PromptText = "really, now?", all[0].ThreadID = %v`, all, id)
	}
	w.to(t, "pty-1", row.SessionInterrupted)
	if _, err := w.TakePending(t.Context(), "pty-1", true); reason(err) != threads.ReasonGone ||
		capability.CodeOf(err) != capability.CodeConflict {
		t.Errorf("%v; want reason(err) = threads.ReasonGone, capability.CodeOf(err) = capability.CodeConflict", err)
	}
	w.to(t, "pty-1", row.SessionActive)
	var got, missed int
	var mu sync.Mutex
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			_, err := w.TakePending(t.Context(), "pty-1", true)
			mu.Lock()
			defer mu.Unlock()
			switch reason(err) {
			case "":
				got++
			case threads.ReasonNoRow:
				missed++
			default:
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got != 1 || missed != 3 {
		t.Errorf("got = %v, want 1; missed = %v, want 3", got, missed)
	}
	if _, ok, err := w.PeekPending(t.Context(), "pty-1"); ok || err != nil {
		t.Errorf(`w.PeekPending(t.Context(), "pty-1"): ok = %v, want false; err = %v, want nil`, ok, err)
	}
}

func restart(t *testing.T, w *world) {
	other := must(threads.New(threads.Config{Store: w.store, Gateway: "g2", Now: w.clock.now}))(t)
	c, c2 := w.thread(t, "one", 3), w.thread(t, "two", 1)
	id := c.Thread.ID
	w.begin(t, id, "pty-1", c.Nodes[1].ID)
	w.begin(t, id, "pty-2", c.Nodes[2].ID)
	w.begin(t, id, "pty-3", c.Nodes[3].ID)
	w.to(t, "pty-2", row.SessionCompleted)
	w.to(t, "pty-3", row.SessionWaiting)
	job := must(w.StartJob(t.Context(), row.VerifierJob{ThreadID: id, VerifierType: "model"}))(t)
	if err := w.PutPending(t.Context(), row.PendingDecision{SessionID: "pty-1"}); err != nil {
		t.Fatal(err)
	}
	must(other.Register(t.Context(), threads.Registration{
		ThreadID: c2.Thread.ID,
		Session:  row.Session{SessionID: "pty-9", Status: row.SessionBlocked},
	}))(t)
	for range 2 { // what was done is not done again
		list, err := w.Restart(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range list {
			if one.Thread.ID != id || one.Thread.Status != row.ThreadWaiting || len(one.Resumable) != 1 || one.Resumable[0].SessionID != "pty-1" ||
				one.Resumable[0].StoppedAt == 0 {
				t.Errorf("%+v; want one.Thread.ID = %v, one.Thread.Status = row.ThreadWaiting, len(one.Resumable) = 1, "+
					`one.Resumable[0].SessionID = "pty-1", one.Resumable[0].StoppedAt other than 0`, one, id)
			}
		}
	}
	d := w.detail(t, id)
	var got []row.SessionStatus
	for _, s := range d.Sessions {
		got = append(got, s.Status)
	}
	if diff := cmp.Diff([]row.SessionStatus{row.SessionInterrupted, row.SessionCompleted, row.SessionWaiting}, got); diff != "" {
		t.Errorf(`diff = %q, want ""`, diff)
	}
	if d.VerifierJobs[0].ID != job.ID || d.VerifierJobs[0].Status != row.JobCanceled || len(d.PendingDecisions) != 1 ||
		d.Nodes[1].Status != row.NodeInterrupted {
		t.Errorf("%+v; want d.VerifierJobs[0].ID = %v, d.VerifierJobs[0].Status = row.JobCanceled, len(d.PendingDecisions) = 1, "+
			"d.Nodes[1].Status = row.NodeInterrupted", d, job.ID)
	}
	n := 0
	for _, e := range d.Events {
		if e.EventType == row.SessionInterrupt {
			n++
		}
	}
	if n != 1 {
		t.Errorf("sessions were interrupted: n = %v, want 1", n)
	}
	if s := must(w.Session(t.Context(), "pty-9"))(t); s.Status != row.SessionBlocked {
		t.Errorf("another gateway's session was interrupted; got s.Status = %v; want s.Status = row.SessionBlocked", s.Status)
	}
}
