package threads

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
)

// Priorities of the nodes of a plan.
const (
	goalPriority = 100
	partPriority = 10
)

// Sender and subject of the brief in the mailbox.
const (
	briefSender  = "planner"
	briefSubject = "task-brief"
)

// Plan describes a thread to create. Thread.Title is required. An empty Kind means
// coding. The registry sets id, status and times.
type Plan struct {
	Thread row.Thread
	Parts  []Part // 1 to MaxNodes-1
	Brief  string // put into the mailbox of every part; or ""
}

// Part is the work of one agent, one execution node of the plan.
type Part struct {
	Title        string
	Instructions string
	AgentType    string
	Label        string
	Workdir      string
	Repo         string
	Criteria     []string
	Capabilities []string
	Artifacts    []string
	DependsOn    []int // indexes of the parts that must be completed first
}

// Created is a thread with its plan. Nodes[0] is the goal, Nodes[i+1] is part i.
type Created struct {
	Thread       row.Thread
	Nodes        []row.Node
	Dependencies []row.Dependency
}

// Create stores a thread with its plan: a goal that depends on all parts, a node for each part,
// and the brief in the parts' mailboxes. Parts without dependencies are ready. A plan with a cycle
// of dependencies is invalid_input.
func (r *Registry) Create(ctx context.Context, p Plan) (Created, error) {
	if len(p.Parts) == 0 || len(p.Parts) >= MaxNodes {
		return Created{}, badPlan("a plan has 1 to %d parts, and this one has %d", MaxNodes-1, len(p.Parts))
	}
	if circular(p.Parts) {
		return Created{}, badPlan("the parts of the plan wait for each other in a circle, or for parts that are not there")
	}
	now := r.now().UTC().Truncate(time.Millisecond)
	t := p.Thread
	t.ID, t.Status, t.CreatedAt, t.UpdatedAt = row.NewID("thr"), row.ThreadOpen, now, now
	t.ClosedAt, t.ArchivedAt = time.Time{}, time.Time{}
	t.Metadata = row.WithMeta(t.Metadata, row.ControlState, "")
	t.Kind = cmp.Or(t.Kind, row.Coding)
	g := Graph{Thread: t, Nodes: []row.Node{{
		ID: row.NewID("nod"), ThreadID: t.ID, Kind: row.GoalNode, Status: row.NodePlanned, Title: t.Title, Instructions: t.OriginalRequest,
		AcceptanceCriteria: t.AcceptanceCriteria, Repo: p.Parts[0].Repo, Priority: goalPriority, CreatedFrom: briefSender, CreatedAt: now,
		UpdatedAt: now,
	}}}
	for i, part := range p.Parts {
		n := row.Node{
			ID: row.NewID("nod"), ThreadID: t.ID, ParentNodeID: g.Nodes[0].ID, Kind: row.ExecutionNode, Status: row.NodePlanned, Title: part.Title,
			Instructions: part.Instructions, AcceptanceCriteria: words(part.Criteria), RequiredCapabilities: words(part.Capabilities),
			ExpectedArtifacts: words(part.Artifacts), AssignedLabel: part.Label, AgentType: part.AgentType, Workdir: part.Workdir, Repo: part.Repo,
			Priority: partPriority, Depth: 1, Sequence: i + 1, CreatedFrom: briefSender, CreatedAt: now, UpdatedAt: now,
		}
		g.Nodes = append(g.Nodes, n)
	}
	depend := func(from, to row.Node, kind row.DependencyKind) {
		g.Dependencies = append(g.Dependencies, row.Dependency{
			ID: row.NewID("dep"), ThreadID: t.ID, FromNodeID: from.ID, ToNodeID: to.ID, DependencyKind: kind, RequiredStatus: row.NodeCompleted,
			CreatedAt: now,
		})
	}
	for i, part := range p.Parts {
		depend(g.Nodes[i+1], g.Nodes[0], row.ParentChild)
		for _, on := range slices.Compact(slices.Sorted(slices.Values(part.DependsOn))) {
			depend(g.Nodes[on+1], g.Nodes[i+1], row.Blocks)
		}
	}
	settleNodes(&g)
	err := r.store.Change(ctx, t.ID, func(tx Tx) error { return create(ctx, tx, &g, p.Brief, now) })
	return Created{Thread: g.Thread, Nodes: g.Nodes, Dependencies: g.Dependencies}, err
}

// create inserts the rows of a new thread, with the event task_created.
func create(ctx context.Context, tx Tx, g *Graph, brief string, now time.Time) error {
	w := &work{Tx: tx, ctx: ctx, now: now, was: Graph{Thread: g.Thread}, g: *g}
	w.event(row.TaskCreated, "", g.Thread.Title, nil)
	g.Thread.SearchText = searchText(g.Thread)
	rows := []row.Row{&g.Thread}
	for i := range g.Nodes {
		rows = append(rows, &g.Nodes[i])
	}
	for i := range g.Dependencies {
		rows = append(rows, &g.Dependencies[i])
	}
	for i := range g.Nodes[1:] {
		if n := g.Nodes[i+1]; brief != "" {
			rows = append(rows, &row.MailboxItem{
				ID: row.NewID("msg"), ThreadID: g.Thread.ID, NodeID: n.ID, Sender: briefSender, Recipient: n.AssignedLabel, Subject: briefSubject,
				Body:          brief,
				DeliveryState: row.MailPending, CreatedAt: now,
			})
		}
	}
	for _, e := range w.events {
		rows = append(rows, e)
	}
	for _, one := range rows {
		if err := w.put(one, false); err != nil {
			return err
		}
	}
	return nil
}

// circular reports whether the dependencies of parts have a cycle.
func circular(parts []Part) bool {
	state := make([]int, len(parts)) // 1: being visited, 2: without cycle
	var visit func(i int) bool
	visit = func(i int) bool {
		if i < 0 || i >= len(parts) || state[i] == 1 {
			return true
		}
		if state[i] == 2 {
			return false
		}
		state[i] = 1
		if slices.ContainsFunc(parts[i].DependsOn, visit) {
			return true
		}
		state[i] = 2
		return false
	}
	for i := range parts {
		if visit(i) {
			return true
		}
	}
	return false
}

func badPlan(format string, args ...any) error {
	return capability.Errorf(capability.CodeInvalidInput, "threads", format, args...).With("invalid_plan", "")
}
