package taskagents

import (
	"context"
	"encoding/json"
	"iter"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/taskagents/adapter"
	"github.com/junctor-run/junctor/internal/taskagents/choice"
	"github.com/junctor-run/junctor/internal/taskagents/coordinator"
	"github.com/junctor-run/junctor/internal/taskagents/coordinator/validation"
	"github.com/junctor-run/junctor/internal/taskagents/directive"
	"github.com/junctor-run/junctor/internal/taskagents/launch"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
	"github.com/junctor-run/junctor/internal/taskagents/threads/share"
)

// coordinatorDoor adapts threads to what the surface asks for.
type coordinatorDoor struct {
	*taskThreads
	chooser *chooser
	roots   []string
}

const (
	shownThreads = 50
	recentTasks  = 10
)

// taskView is a session's task as seed 001 shows it.
type taskView struct {
	ThreadID     string            `json:"threadId"`
	NodeID       string            `json:"taskNodeId,omitempty"`
	SessionID    string            `json:"sessionId"`
	AgentType    string            `json:"agentType"`
	Label        string            `json:"label"`
	OriginalTask string            `json:"originalTask"`
	Workdir      string            `json:"workdir"`
	Repo         string            `json:"repo,omitempty"`
	Status       row.SessionStatus `json:"status"`
	Decisions    int               `json:"decisionCount"`
	AutoResolved int               `json:"autoResolvedCount"`
	Summary      string            `json:"completionSummary,omitempty"`
	LastActivity row.Millis        `json:"lastActivityAt"`
}

func viewOf(s row.Session) taskView {
	return taskView{
		ThreadID: s.ThreadID, NodeID: row.Meta(s.Metadata, "taskNodeId"), SessionID: s.SessionID, AgentType: s.Framework, Label: s.Label, OriginalTask: s.OriginalTask,
		Workdir: s.Workdir, Repo: s.Repo, Status: s.Status, Decisions: s.DecisionCount, AutoResolved: s.AutoResolvedCount, Summary: s.CompletionSummary, LastActivity: s.LastActivityAt,
	}
}

// views are the tasks of the threads that were active last: those that go on, and the
// last ones that have ended.
func (d coordinatorDoor) views(ctx context.Context, list []threads.Summary) (live, recent []taskView, err error) {
	live, recent = []taskView{}, []taskView{}
	for _, t := range list {
		detail, err := d.registry.Detail(ctx, t.ID, threads.Selection{Fields: []threads.Field{threads.FieldSessions}})
		if err != nil {
			return nil, nil, err
		}
		for _, s := range detail.Sessions {
			switch {
			case row.Meta(s.Metadata, row.ReplacedBy) != "":
			case s.Status.Live():
				live = append(live, viewOf(s))
			default:
				recent = append(recent, viewOf(s))
			}
		}
	}
	slices.SortStableFunc(recent, func(a, b taskView) int { return int(b.LastActivity - a.LastActivity) })
	return live, recent[:min(len(recent), recentTasks)], nil
}

// Status implements agentserve.Coordinator.
func (d coordinatorDoor) Status(ctx context.Context) (any, error) {
	list, err := d.registry.List(ctx, threads.Filter{Limit: shownThreads})
	if err != nil {
		return nil, err
	}
	total, err := d.registry.Count(ctx, threads.Filter{})
	if err != nil {
		return nil, err
	}
	live, recent, err := d.views(ctx, list)
	if err != nil {
		return nil, err
	}
	pending, err := d.registry.Pending(ctx)
	if err != nil {
		return nil, err
	}
	state := d.chooser.State(ctx, choice.Task{})
	return map[string]any{
		"supervisionLevel": d.coordinator.Level(""), "taskCount": len(live), "tasks": live, "recentTasks": recent, "taskThreadCount": total, "taskThreads": list,
		"pendingConfirmations": len(pending), "preferredAgentType": state.Preferred.ID, "preferredAgentReason": state.Preferred.Reason, "frameworks": state.Frameworks,
	}, nil
}

// Snapshot implements agentserve.Coordinator.
func (d coordinatorDoor) Snapshot(ctx context.Context) (any, error) {
	active := true
	list, err := d.registry.List(ctx, threads.Filter{Active: &active, Limit: threads.MaxLimit})
	if err != nil {
		return nil, err
	}
	live, _, err := d.views(ctx, list)
	if err != nil {
		return nil, err
	}
	pending, err := d.registry.Pending(ctx)
	if err != nil {
		return nil, err
	}
	return map[string]any{"type": "snapshot", "timestamp": time.Now().UTC(), "data": map[string]any{
		"tasks": live, "pendingDecisions": append([]row.PendingDecision{}, pending...), "supervisionLevel": d.coordinator.Level(""),
	}}, nil
}

// Events implements agentserve.Coordinator.
func (d coordinatorDoor) Events(ctx context.Context, after uint64) iter.Seq2[uint64, []byte] {
	if after == 0 {
		after = d.feed.Latest()
	}
	return func(yield func(uint64, []byte) bool) {
		for e, err := range d.feed.Subscribe(ctx, after) {
			if err != nil {
				return
			}
			data := []byte(e.Data)
			if len(data) == 0 { // events were lost
				data, _ = json.Marshal(map[string]any{"type": e.Type, "timestamp": e.At})
			}
			if !yield(e.ID, data) {
				return
			}
		}
	}
}

// Create implements agentserve.Coordinator.
func (d coordinatorDoor) Create(ctx context.Context, by capability.Principal, request json.RawMessage) (any, error) {
	type part struct {
		Task      string `json:"task"`
		AgentType string `json:"agentType"`
		Label     string `json:"label"`
		DependsOn []int  `json:"dependsOn"`
	}
	var in struct {
		Task       string             `json:"task"`
		Title      string             `json:"title"`
		Kind       row.ThreadKind     `json:"kind"`
		AgentType  string             `json:"agentType"`
		Label      string             `json:"label"`
		Agents     []part             `json:"agents"`
		Repo       string             `json:"repo"`
		BaseBranch string             `json:"baseBranch"`
		Workdir    string             `json:"workdir"`
		Brief      string             `json:"brief"`
		Memory     string             `json:"memoryContent"`
		Preset     adapter.Preset     `json:"approvalPreset"`
		Criteria   []string           `json:"acceptanceCriteria"`
		Validator  *validation.Custom `json:"validator"`
		RoomID     string             `json:"roomId"`
		WorldID    string             `json:"worldId"`
		UserID     string             `json:"userId"`
		Metadata   json.RawMessage    `json:"metadata"`
	}
	if err := httpapi.DecodeStrict(request, &in); err != nil {
		return nil, err
	}
	t := launch.Task{
		Title: in.Title, Request: in.Task, Kind: in.Kind, Repo: in.Repo, BaseBranch: in.BaseBranch, Workdir: in.Workdir, Brief: in.Brief, Memory: in.Memory, Preset: in.Preset,
		Criteria: in.Criteria, Validator: in.Validator, RoomID: in.RoomID, WorldID: in.WorldID, UserID: in.UserID, Metadata: in.Metadata,
	}
	for _, p := range in.Agents {
		t.Parts = append(t.Parts, launch.Part(p))
	}
	if len(in.Agents) == 0 && strings.TrimSpace(in.Task) != "" {
		t.Parts = []launch.Part{{Task: in.Task, AgentType: in.AgentType, Label: in.Label}}
	}
	return d.launcher.Create(ctx, by, t)
}

// filter reads the selection of threads (task-agents, section 9.2).
func filter(q url.Values) (f threads.Filter, err error) {
	bad := func(name, want string) error {
		return capability.Errorf(capability.CodeInvalidInput, "coordinator.threads", "%s is %s", name, want)
	}
	f = threads.Filter{
		Kind: row.ThreadKind(q.Get("kind")), RoomID: q.Get("roomId"), WorldID: q.Get("worldId"), OwnerUserID: q.Get("ownerUserId"), ScenarioID: q.Get("scenarioId"),
		BatchID: q.Get("batchId"), Search: q.Get("search"), Archived: q.Get("includeArchived") == "true",
	}
	for _, text := range append(q["status"], strings.Split(q.Get("statuses"), ",")...) {
		if text != "" {
			f.Statuses = append(f.Statuses, row.ThreadStatus(strings.TrimSpace(text)))
		}
	}
	for name, at := range map[string]*time.Time{
		"createdAfter": &f.CreatedAfter, "createdBefore": &f.CreatedBefore, "updatedAfter": &f.UpdatedAfter, "updatedBefore": &f.UpdatedBefore,
		"latestActivityAfter": &f.ActivityAfter, "latestActivityBefore": &f.ActivityBefore,
	} {
		if text := q.Get(name); text != "" {
			ms, err := strconv.ParseInt(text, 10, 64)
			if err != nil || ms < 0 {
				return f, bad(name, "a time in milliseconds since 1970")
			}
			*at = time.UnixMilli(ms)
		}
	}
	if text := q.Get("hasActiveSession"); text != "" {
		yes, err := strconv.ParseBool(text)
		if err != nil {
			return f, bad("hasActiveSession", "true or false")
		}
		f.Active = &yes
	}
	if text := q.Get("limit"); text != "" {
		if f.Limit, err = strconv.Atoi(text); err != nil || f.Limit < 1 {
			return f, bad("limit", "a number from 1 to 500")
		}
		f.Limit = min(f.Limit, threads.MaxLimit)
	}
	return f, nil
}

// Threads implements agentserve.Coordinator.
func (d coordinatorDoor) Threads(ctx context.Context, q url.Values) (any, error) {
	f, err := filter(q)
	if err != nil {
		return nil, err
	}
	list, err := d.registry.List(ctx, f)
	return append([]threads.Summary{}, list...), err
}

// Count implements agentserve.Coordinator.
func (d coordinatorDoor) Count(ctx context.Context, q url.Values) (any, error) {
	f, err := filter(q)
	if err != nil {
		return nil, err
	}
	n, err := d.registry.Count(ctx, f)
	return map[string]int{"total": n}, err
}

// Thread implements agentserve.Coordinator.
func (d coordinatorDoor) Thread(ctx context.Context, id string, q url.Values) (any, error) {
	var sel threads.Selection
	if q.Has("fields") {
		sel.Fields = []threads.Field{}
		for name := range strings.SplitSeq(q.Get("fields"), ",") {
			f := threads.Field(strings.TrimSpace(name))
			if !slices.Contains(threads.Fields(), f) {
				return nil, capability.Errorf(capability.CodeInvalidInput, "coordinator.thread", "a thread has no field %.40q", f).With("unknown_field", "")
			}
			sel.Fields = append(sel.Fields, f)
		}
	}
	if text := q.Get("transcriptLimit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return nil, capability.Errorf(capability.CodeInvalidInput, "coordinator.thread", "transcriptLimit is a number from 1 to %d", threads.MaxTranscript)
		}
		sel.Transcripts = min(n, threads.MaxTranscript)
	}
	return d.registry.Detail(ctx, id, sel)
}

// Share implements agentserve.Coordinator.
func (d coordinatorDoor) Share(ctx context.Context, id string) (any, error) {
	return d.registry.Share(ctx, id, share.Roots{Allowed: d.roots, Resolve: filepath.EvalSymlinks})
}

// Control implements agentserve.Coordinator.
func (d coordinatorDoor) Control(ctx context.Context, by capability.Principal, id, action string, request json.RawMessage) (any, error) {
	var in struct {
		Action      launch.Operation `json:"action"`
		Note        string           `json:"note"`
		Instruction string           `json:"instruction"`
		AgentType   string           `json:"agentType"`
	}
	if err := httpapi.DecodeStrict(request, &in); err != nil {
		return nil, err
	}
	if action != "" {
		in.Action = launch.Operation(action)
	}
	out, err := d.launcher.Control(ctx, by, launch.Control{ThreadID: id, Operation: in.Action, Note: in.Note, Instruction: in.Instruction, AgentType: in.AgentType})
	if err != nil {
		return nil, err
	}
	return struct {
		Success bool `json:"success"`
		launch.Controlled
	}{true, out}, nil
}

// Task implements agentserve.Coordinator.
func (d coordinatorDoor) Task(ctx context.Context, session string) (any, error) {
	s, err := d.registry.Session(ctx, session)
	if err != nil {
		return nil, err
	}
	detail, err := d.registry.Detail(ctx, s.ThreadID, threads.Selection{Fields: []threads.Field{threads.FieldDecisions}})
	if err != nil {
		return nil, err
	}
	mine := slices.DeleteFunc(slices.Clone(detail.Decisions), func(one row.Decision) bool { return one.SessionID != session })
	return struct {
		taskView
		List []row.Decision `json:"decisions"`
	}{viewOf(s), append([]row.Decision{}, mine...)}, nil
}

// Pending implements agentserve.Coordinator.
func (d coordinatorDoor) Pending(ctx context.Context) (any, error) {
	list, err := d.registry.Pending(ctx)
	return append([]row.PendingDecision{}, list...), err
}

// Confirm implements agentserve.Coordinator.
func (d coordinatorDoor) Confirm(ctx context.Context, session string, request json.RawMessage) (any, error) {
	in := struct {
		Approved *bool `json:"approved"`
		Override *struct {
			Response string   `json:"response"`
			UseKeys  bool     `json:"useKeys"`
			Keys     []string `json:"keys"`
		} `json:"override"`
	}{}
	if err := httpapi.DecodeStrict(request, &in); err != nil {
		return nil, err
	}
	approved := in.Approved == nil || *in.Approved
	var instead *directive.Answer
	if o := in.Override; o != nil {
		instead = &directive.Answer{Action: "respond", Response: o.Response, UseKeys: o.UseKeys, Keys: o.Keys}
	}
	err := d.coordinator.Confirm(ctx, session, approved, instead)
	return map[string]any{"success": err == nil, "sessionId": session, "approved": approved}, err
}

// Supervision implements agentserve.Coordinator.
func (d coordinatorDoor) Supervision(thread string) any {
	return map[string]any{"level": d.coordinator.Level(thread)}
}

// Supervise implements agentserve.Coordinator.
func (d coordinatorDoor) Supervise(ctx context.Context, request json.RawMessage) (any, error) {
	var in struct {
		Level    coordinator.Level `json:"level"`
		ThreadID string            `json:"threadId"`
	}
	if err := httpapi.DecodeStrict(request, &in); err != nil {
		return nil, err
	}
	err := d.coordinator.SetLevel(ctx, in.ThreadID, in.Level)
	return map[string]any{"success": err == nil, "level": d.coordinator.Level(in.ThreadID)}, err
}
