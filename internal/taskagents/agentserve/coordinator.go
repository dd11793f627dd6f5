package agentserve

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/bus"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/taskagents/choice"
	"github.com/junctor-run/junctor/internal/taskagents/coordinator"
	"github.com/junctor-run/junctor/internal/taskagents/coordinator/validation"
	"github.com/junctor-run/junctor/internal/taskagents/directive"
	"github.com/junctor-run/junctor/internal/taskagents/launch"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/sessions"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
	"github.com/junctor-run/junctor/internal/taskagents/workspace"
	"github.com/junctor-run/junctor/internal/taskagents/workspace/forge"
)

// Threads reads the threads of tasks.
type Threads interface {
	List(ctx context.Context, f threads.Filter) ([]threads.Summary, error)
	Count(ctx context.Context, f threads.Filter) (int, error)
	Detail(ctx context.Context, thread string, s threads.Selection) (threads.Detail, error)
	Session(ctx context.Context, id string) (row.Session, error)
	Pending(ctx context.Context) ([]row.PendingDecision, error)
	Share(ctx context.Context, thread string, roots threads.ShareRoots) (threads.Shared, error)
}

// Launcher creates threads and controls them.
type Launcher interface {
	Create(ctx context.Context, by capability.Principal, t launch.Task) (launch.Created, error)
	Control(ctx context.Context, by capability.Principal, c launch.Control) (launch.Controlled, error)
	Review(ctx context.Context, thread, part string) (launch.Reviewed, error)
	Merge(ctx context.Context, m launch.Merge) (workspace.Merged, error)
	Pull(ctx context.Context, p launch.Pull) (forge.Pull, error)
	Checks(ctx context.Context, thread string) (launch.Pulled, error)
	Discard(ctx context.Context, thread string) (branches []string, err error)
	Comment(ctx context.Context, by capability.Principal, c launch.Comments) (launch.Controlled, error)
}

// Supervisor reads and changes the coordinator's supervision, and confirms its pending decisions.
type Supervisor interface {
	Level(thread string) coordinator.Level
	SetLevel(ctx context.Context, thread string, l coordinator.Level) error
	Confirm(ctx context.Context, session string, approved bool, override *directive.Answer) error
}

// Choice returns the ranking of programs for a task.
type Choice interface {
	State(ctx context.Context, task choice.Task) choice.State
}

const (
	shownThreads = 50
	recentTasks  = 10
)

// taskView is a session's task in this API's answers.
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
	Usage        *programs.Usage   `json:"usage,omitempty"`
}

func viewOf(s row.Session) taskView {
	return taskView{
		ThreadID: s.ThreadID, NodeID: row.Meta(s.Metadata, "taskNodeId"), SessionID: s.SessionID, AgentType: s.Framework, Label: s.Label,
		OriginalTask: s.OriginalTask,
		Workdir:      s.Workdir, Repo: s.Repo, Status: s.Status, Decisions: s.DecisionCount, AutoResolved: s.AutoResolvedCount,
		Summary: s.CompletionSummary, LastActivity: s.LastActivityAt, Usage: threads.UsageOf(s.Metadata),
	}
}

// coordinatorStatus is the answer about the state of all tasks.
type coordinatorStatus struct {
	Frameworks           []choice.Framework `json:"frameworks"`
	PendingConfirmations int                `json:"pendingConfirmations"`
	PreferredReason      string             `json:"preferredAgentReason"`
	PreferredType        programs.Name      `json:"preferredAgentType"`
	RecentTasks          []taskView         `json:"recentTasks"`
	SupervisionLevel     coordinator.Level  `json:"supervisionLevel"`
	TaskCount            int                `json:"taskCount"`
	TaskThreadCount      int                `json:"taskThreadCount"`
	TaskThreads          []threads.Summary  `json:"taskThreads"`
	Tasks                []taskView         `json:"tasks"`
}

// snapshot is the first event of a stream.
type snapshot struct {
	Data      snapshotData `json:"data"`
	Timestamp time.Time    `json:"timestamp"`
	Type      string       `json:"type"`
}

type snapshotData struct {
	PendingDecisions []row.PendingDecision `json:"pendingDecisions"`
	SupervisionLevel coordinator.Level     `json:"supervisionLevel"`
	Tasks            []taskView            `json:"tasks"`
}

// lost replaces events that the feed has dropped.
type lost struct {
	Timestamp time.Time `json:"timestamp"`
	Type      string    `json:"type"`
}

type partRequest struct {
	Task      string `json:"task"`
	AgentType string `json:"agentType"`
	Label     string `json:"label"`
	DependsOn []int  `json:"dependsOn"`
}

type createRequest struct {
	Task       string             `json:"task"`
	Title      string             `json:"title"`
	Kind       row.ThreadKind     `json:"kind"`
	AgentType  string             `json:"agentType"`
	Label      string             `json:"label"`
	Agents     []partRequest      `json:"agents"`
	Repo       string             `json:"repo"`
	BaseBranch string             `json:"baseBranch"`
	Workdir    string             `json:"workdir"`
	Brief      string             `json:"brief"`
	Memory     string             `json:"memoryContent"`
	Preset     programs.Preset    `json:"approvalPreset"`
	Mode       sessions.Mode      `json:"mode"`
	Criteria   []string           `json:"acceptanceCriteria"`
	Validator  *validation.Custom `json:"validator"`
	RoomID     string             `json:"roomId"`
	WorldID    string             `json:"worldId"`
	UserID     string             `json:"userId"`
	Metadata   json.RawMessage    `json:"metadata"`

	// Checkout is a folder in a checkout on the server's machine, and CheckoutHead the commit
	// that the caller sees there.
	Checkout     string `json:"checkout"`
	CheckoutHead string `json:"checkoutHead"`
	Uncommitted  bool   `json:"includeUncommitted"`
	Here         bool   `json:"here"`
	Setup        string `json:"setup"` // digest of the setup that the user was shown, or none
}

type controlRequest struct {
	Action      launch.Operation `json:"action"`
	Note        string           `json:"note"`
	Instruction string           `json:"instruction"`
	AgentType   string           `json:"agentType"`
}

// controlled is the answer to an operation on a thread.
type controlled struct {
	Success bool `json:"success"`
	launch.Controlled
}

// countAnswer is a number of threads.
type countAnswer struct {
	Total int `json:"total"`
}

// taskDetail is a session's task with the decisions about it.
type taskDetail struct {
	taskView
	List []row.Decision `json:"decisions"`
}

type confirmRequest struct {
	Approved *bool `json:"approved"`
	Override *struct {
		Response string   `json:"response"`
		UseKeys  bool     `json:"useKeys"`
		Keys     []string `json:"keys"`
	} `json:"override"`
}

// confirmed is the answer to a confirmation.
type confirmed struct {
	Approved  bool   `json:"approved"`
	SessionID string `json:"sessionId"`
	Success   bool   `json:"success"`
}

type superviseRequest struct {
	Level    coordinator.Level `json:"level"`
	ThreadID string            `json:"threadId"`
}

type supervision struct {
	Level coordinator.Level `json:"level"`
}

// supervised is the answer to a change of the supervision.
type supervised struct {
	Level   coordinator.Level `json:"level"`
	Success bool              `json:"success"`
}

func (s *Surface) coordinatorRoutes(mux *http.ServeMux, base string) {
	base += "/coordinator"
	handle := func(pattern, path string, h httpapi.Handler) { mux.Handle(pattern+" "+base+path, s.guard(h)) }
	handle("GET", "/events", s.coordinatorEvents)
	handle("GET", "/status", s.coordinatorStatus)
	handle("GET", "/threads", s.threads)
	handle("GET", "/threads/count", s.count)
	handle("GET", "/threads/{thread}", s.thread)
	handle("GET", "/threads/{thread}/share", s.share)
	handle("GET", "/threads/{thread}/diff", s.review)
	handle("POST", "/threads/{thread}/merge", posted(http.StatusOK, nil, s.merge))
	handle("POST", "/threads/{thread}/pr", posted(http.StatusOK, nil, s.pullTask))
	handle("GET", "/threads/{thread}/pr", s.checks)
	handle("POST", "/threads/{thread}/comment", posted(http.StatusOK, nil, s.reviewComment))
	handle("POST", "/threads/{thread}/discard", posted(http.StatusOK, nil, s.discard))
	handle("GET", "/tasks/{session}", s.task)
	handle("GET", "/pending", s.pending)
	handle("GET", "/supervision", s.supervision)
	handle("POST", "/threads", posted(http.StatusCreated, nil, s.create))
	handle("POST", "/threads/{thread}/control", posted(http.StatusOK, nil, s.control))
	for _, action := range []launch.Operation{"archive", "reopen"} {
		handle("POST", "/threads/{thread}/"+string(action), posted(http.StatusOK, nil,
			func(r *http.Request, by capability.Principal, in controlRequest) (controlled, error) {
				in.Action = action
				return s.control(r, by, in)
			}))
	}
	handle("POST", "/confirm/{session}", posted(http.StatusOK, nil, s.confirm))
	handle("POST", "/supervision", posted(http.StatusOK, nil, s.supervise))
}

// views returns the tasks of threads: the live ones, and the last ones that have ended.
func (s *Surface) views(ctx context.Context, list []threads.Summary) (live, recent []taskView, err error) {
	live, recent = []taskView{}, []taskView{}
	for _, t := range list {
		detail, err := s.Threads.Detail(ctx, t.ID, threads.Selection{Fields: []threads.Field{threads.FieldSessions}})
		if err != nil {
			return nil, nil, err
		}
		for _, one := range detail.Sessions {
			switch {
			case row.Meta(one.Metadata, row.ReplacedBy) != "":
			case one.Status.Live():
				live = append(live, viewOf(one))
			default:
				recent = append(recent, viewOf(one))
			}
		}
	}
	slices.SortStableFunc(recent, func(a, b taskView) int { return int(b.LastActivity - a.LastActivity) })
	return live, recent[:min(len(recent), recentTasks)], nil
}

func (s *Surface) coordinatorStatus(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	ctx := r.Context()
	list, err := s.Threads.List(ctx, threads.Filter{Limit: shownThreads})
	if err != nil {
		return err
	}
	total, err := s.Threads.Count(ctx, threads.Filter{})
	if err != nil {
		return err
	}
	live, recent, err := s.views(ctx, list)
	if err != nil {
		return err
	}
	pending, err := s.Threads.Pending(ctx)
	if err != nil {
		return err
	}
	state := s.Choice.State(ctx, choice.Task{})
	return answer(w, http.StatusOK, coordinatorStatus{
		SupervisionLevel: s.Supervisor.Level(""), TaskCount: len(live), Tasks: live, RecentTasks: recent, TaskThreadCount: total,
		TaskThreads:          list,
		PendingConfirmations: len(pending), PreferredType: state.Preferred.ID, PreferredReason: state.Preferred.Reason,
		Frameworks: state.Frameworks,
	}, nil)
}

func (s *Surface) snapshot(ctx context.Context) (snapshot, error) {
	active := true
	list, err := s.Threads.List(ctx, threads.Filter{Active: &active, Limit: threads.MaxLimit})
	if err != nil {
		return snapshot{}, err
	}
	live, _, err := s.views(ctx, list)
	if err != nil {
		return snapshot{}, err
	}
	pending, err := s.Threads.Pending(ctx)
	if err != nil {
		return snapshot{}, err
	}
	return snapshot{Type: "snapshot", Timestamp: time.Now().UTC(), Data: snapshotData{
		Tasks: live, PendingDecisions: append([]row.PendingDecision{}, pending...), SupervisionLevel: s.Supervisor.Level(""),
	}}, nil
}

func (s *Surface) create(r *http.Request, by capability.Principal, in createRequest) (launch.Created, error) {
	t := launch.Task{
		Title: in.Title, Request: in.Task, Kind: in.Kind, Repo: in.Repo, BaseBranch: in.BaseBranch, Workdir: in.Workdir, Brief: in.Brief,
		Memory: in.Memory, Preset: in.Preset, Mode: in.Mode,
		Criteria: in.Criteria, Validator: in.Validator, RoomID: in.RoomID, WorldID: in.WorldID, UserID: in.UserID, Metadata: in.Metadata,
	}
	if in.Checkout != "" {
		if !local(r) {
			return launch.Created{}, capability.Errorf(capability.CodeInvalidInput, "tasks.create",
				"the server is on another machine than the checkout %.300q", in.Checkout).
				With("remote_checkout", "name the repository by its URL with --repo")
		}
		t.Checkout = &launch.Checkout{Path: in.Checkout, Head: in.CheckoutHead, Uncommitted: in.Uncommitted, Here: in.Here, Setup: in.Setup}
	}
	for _, p := range in.Agents {
		t.Parts = append(t.Parts, launch.Part(p))
	}
	if len(in.Agents) == 0 && strings.TrimSpace(in.Task) != "" {
		t.Parts = []launch.Part{{Task: in.Task, AgentType: in.AgentType, Label: in.Label}}
	}
	return s.Launcher.Create(r.Context(), by, t)
}

// filter parses the query parameters that select threads.
func filter(r *http.Request) (f threads.Filter, err error) {
	q := r.URL.Query()
	f = threads.Filter{
		Kind: row.ThreadKind(q.Get("kind")), RoomID: q.Get("roomId"), WorldID: q.Get("worldId"), OwnerUserID: q.Get("ownerUserId"),
		ScenarioID: q.Get("scenarioId"), BatchID: q.Get("batchId"), Search: q.Get("search"), Archived: q.Get("includeArchived") == "true",
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
		ms, err := httpapi.Number(r, name, int64(-1), 0, math.MaxInt64) // milliseconds since 1970
		if err != nil {
			return f, err
		}
		if ms >= 0 {
			*at = time.UnixMilli(ms)
		}
	}
	if active, err := httpapi.Flag(r, "hasActiveSession"); err != nil {
		return f, err
	} else if q.Get("hasActiveSession") != "" {
		f.Active = &active
	}
	f.Limit, err = httpapi.Number(r, "limit", 0, 1, math.MaxInt32)
	f.Limit = min(f.Limit, threads.MaxLimit)
	return f, err
}

func (s *Surface) threads(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	f, err := filter(r)
	if err != nil {
		return err
	}
	list, err := s.Threads.List(r.Context(), f)
	return answer(w, http.StatusOK, list, err)
}

func (s *Surface) count(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	f, err := filter(r)
	if err != nil {
		return err
	}
	n, err := s.Threads.Count(r.Context(), f)
	return answer(w, http.StatusOK, countAnswer{n}, err)
}

// selection parses the query parameters that select the lists of a thread.
func selection(q url.Values) (sel threads.Selection, err error) {
	if q.Has("fields") {
		sel.Fields = []threads.Field{}
		for name := range strings.SplitSeq(q.Get("fields"), ",") {
			f := threads.Field(strings.TrimSpace(name))
			if !slices.Contains(threads.Fields(), f) {
				return sel, capability.Errorf(capability.CodeInvalidInput, "coordinator.thread", "a thread has no field %.40q",
					f).With("unknown_field", "")
			}
			sel.Fields = append(sel.Fields, f)
		}
	}
	if text := q.Get("transcriptLimit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return sel, capability.Errorf(capability.CodeInvalidInput, "coordinator.thread", "transcriptLimit is a number from 1 to %d",
				threads.MaxTranscript)
		}
		sel.Transcripts = min(n, threads.MaxTranscript)
	}
	return sel, nil
}

func (s *Surface) thread(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	sel, err := selection(r.URL.Query())
	if err != nil {
		return err
	}
	detail, err := s.Threads.Detail(r.Context(), r.PathValue("thread"), sel)
	return answer(w, http.StatusOK, detail, err)
}

func (s *Surface) share(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	shared, err := s.Threads.Share(r.Context(), r.PathValue("thread"), threads.ShareRoots{Allowed: s.Roots, Resolve: filepath.EvalSymlinks})
	return answer(w, http.StatusOK, shared, err)
}

func (s *Surface) control(r *http.Request, by capability.Principal, in controlRequest) (controlled, error) {
	out, err := s.Launcher.Control(r.Context(), by, launch.Control{
		ThreadID: r.PathValue("thread"), Operation: in.Action, Note: in.Note, Instruction: in.Instruction, AgentType: in.AgentType,
	})
	return controlled{true, out}, err
}

func (s *Surface) task(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	ctx, session := r.Context(), r.PathValue("session")
	one, err := s.Threads.Session(ctx, session)
	if err != nil {
		return err
	}
	detail, err := s.Threads.Detail(ctx, one.ThreadID, threads.Selection{Fields: []threads.Field{threads.FieldDecisions}})
	if err != nil {
		return err
	}
	mine := slices.DeleteFunc(slices.Clone(detail.Decisions), func(d row.Decision) bool { return d.SessionID != session })
	return answer(w, http.StatusOK, taskDetail{viewOf(one), mine}, nil)
}

func (s *Surface) pending(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	list, err := s.Threads.Pending(r.Context())
	return answer(w, http.StatusOK, list, err)
}

func (s *Surface) confirm(r *http.Request, _ capability.Principal, in confirmRequest) (confirmed, error) {
	session, approved := r.PathValue("session"), in.Approved == nil || *in.Approved
	var instead *directive.Answer
	if o := in.Override; o != nil {
		instead = &directive.Answer{Action: "respond", Response: o.Response, UseKeys: o.UseKeys, Keys: o.Keys}
	}
	err := s.Supervisor.Confirm(r.Context(), session, approved, instead)
	return confirmed{approved, session, true}, err
}

func (s *Surface) supervision(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	return answer(w, http.StatusOK, supervision{s.Supervisor.Level(r.URL.Query().Get("threadId"))}, nil)
}

func (s *Surface) supervise(r *http.Request, _ capability.Principal, in superviseRequest) (supervised, error) {
	err := s.Supervisor.SetLevel(r.Context(), in.ThreadID, in.Level)
	return supervised{s.Supervisor.Level(in.ThreadID), true}, err
}

// coordinatorEvents streams the coordinator's events. It starts with a snapshot, unless
// Last-Event-ID names an event after which the stream continues.
func (s *Surface) coordinatorEvents(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	after := uint64(0)
	if text := r.Header.Get("Last-Event-ID"); text != "" {
		var err error
		if after, err = strconv.ParseUint(text, 10, 64); err != nil {
			return capability.Errorf(capability.CodeInvalidInput, "coordinator.events", "Last-Event-ID: %.40q is not a number", text)
		}
	}
	shot, err := s.snapshot(r.Context())
	if err != nil {
		return err
	}
	first, err := json.Marshal(shot)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	w.Header().Set("Connection", "keep-alive")
	out := httpapi.NewStream(w, r)
	if out.Comment("ok") != nil || out.Send("", "", first) != nil {
		return nil
	}
	if after == 0 {
		after = s.Feed.Latest()
	}
	feed := make(chan bus.Event)
	go func() {
		defer close(feed)
		for e, err := range s.Feed.Subscribe(ctx, after) {
			if err != nil {
				return
			}
			select {
			case feed <- e:
			case <-ctx.Done():
				return
			}
		}
	}()
	ping := time.NewTicker(pingInterval)
	defer ping.Stop()
	for {
		select {
		case e, ok := <-feed:
			if !ok {
				return nil
			}
			data := []byte(e.Data)
			if len(data) == 0 { // events were lost
				data, _ = json.Marshal(lost{e.At, e.Type})
			}
			if out.Send(strconv.FormatUint(e.ID, 10), "", data) != nil {
				return nil
			}
		case <-ping.C:
			if out.Comment("ping") != nil {
				return nil
			}
		}
	}
}
