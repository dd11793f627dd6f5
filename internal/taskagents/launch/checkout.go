package launch

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/taskagents/agents"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/threads"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
	"github.com/junctor-run/junctor/internal/taskagents/workspace"
	"github.com/junctor-run/junctor/internal/taskagents/workspace/forge"
)

const (
	metaCheckout = "checkout" // of a thread: its checkout
	baseRole     = "base"     // of the worktree that copies uncommitted changes
	nameIDLen    = 6          // characters of the thread's id in the names of branches
)

// Checkouts gives access to users' own repositories.
type Checkouts interface {
	Inspect(ctx context.Context, path string) (workspace.Source, error)
	SetupOf(s workspace.Source) (*workspace.Setup, error)
	Parts(task string) []workspace.Workspace
	ProvisionPart(ctx context.Context, req workspace.PartRequest) (workspace.Workspace, error)
	CommitPart(ctx context.Context, id, message string) (string, error)
	MergePart(ctx context.Context, id, commit string) (workspace.Workspace, error)
	CopyChanges(ctx context.Context, id string) (string, error)
	Line(ctx context.Context, id, file string, line int) (string, error)
	Review(ctx context.Context, id, base string) (workspace.Review, error)
	MergeTask(ctx context.Context, req workspace.MergeRequest) (workspace.Merged, error)
	PublishTask(ctx context.Context, req workspace.PublishRequest) (forge.Pull, error)
	TaskChecks(ctx context.Context, id string) (workspace.Workspace, []forge.Check, error)
	DiscardTask(ctx context.Context, task string) ([]string, error)
}

// Checkout requests that a task works in the repository of a user's checkout, on this machine.
type Checkout struct {
	Path        string // a folder in it
	Head        string // commit that the caller sees there; "" is not compared
	Uncommitted bool   // start from its uncommitted changes too
	Here        bool   // work in the checkout itself
	// Setup is the digest of the setup that the caller was shown whole and agrees to, or NoSetup.
	Setup string
}

// NoSetup is the value of [Checkout.Setup] that leaves the setup of the repository out.
const NoSetup = "none"

// Consents stores to which setups users have agreed, by the repository and the digest.
type Consents interface {
	Given(ctx context.Context, repository, digest string) (bool, error)
	Give(ctx context.Context, by capability.Principal, repository, digest string) error
}

// InCheckout describes the checkout of a task.
type InCheckout struct {
	Source workspace.Source `json:"source"`
	Base   string           `json:"base"`           // commit that the parts start from
	Name   string           `json:"name"`           // the branches are junctor/<name>/<part>
	Here   bool             `json:"here,omitempty"` // the parts work in the checkout itself
	// Setup prepares the worktree of each part. Later changes of its file have no effect on the task.
	Setup     *workspace.Setup `json:"setup,omitempty"`
	Discarded bool             `json:"discarded,omitempty"`
}

func (c InCheckout) branch(part string) string { return workspace.OwnPrefix + c.Name + "/" + part }

// checkoutOf returns the checkout of a thread; ok is false if it has none.
func checkoutOf(t row.Thread) (c InCheckout, ok bool) {
	var meta struct {
		Checkout *InCheckout `json:"checkout"`
	}
	if len(t.Metadata) == 0 || jsonx.Unmarshal(t.Metadata, &meta) != nil || meta.Checkout == nil {
		return c, false
	}
	return *meta.Checkout, true
}

// inspect checks the request for a checkout. Only operators may name one, because agents are
// limited to the configured folders and repositories.
func (l *Launcher) inspect(ctx context.Context, by capability.Principal, t Task) (workspace.Source, error) {
	c := t.Checkout
	if by.Role != capability.RoleAdmin && by.Role != capability.RoleOperator {
		return workspace.Source{}, capability.Errorf(capability.CodeDenied, op, "only operators give a task a checkout").
			With("checkout_denied", "name a repository of agents.repositories with repo")
	}
	if t.Repo != "" || t.Workdir != "" || c.Here && c.Uncommitted {
		return workspace.Source{}, capability.Errorf(capability.CodeInvalidInput, op, "a checkout excludes a repository and a folder").
			With("invalid_checkout", "leave one of them out")
	}
	from, err := l.cfg.Checkouts()
	if err != nil {
		return workspace.Source{}, err
	}
	source, err := from.Inspect(ctx, c.Path)
	if err == nil && c.Head != "" && c.Head != source.Head {
		err = capability.Errorf(capability.CodeInvalidInput, op, "the server sees another commit at %.300q, so it is on another machine or the checkout has moved", c.Path).
			With("remote_checkout", "name the repository by its URL with --repo")
	}
	return source, err
}

// setup returns the setup of a checkout, to which the user has agreed now or before, or nil. Without
// an agreement it fails with approval_required, reason setup_required, with the text of the setup and
// its digest in details.text and details.tree_hash.
func (l *Launcher) setup(ctx context.Context, by capability.Principal, source workspace.Source, c Checkout) (*workspace.Setup, error) {
	if c.Here || c.Setup == NoSetup {
		return nil, nil
	}
	from, err := l.cfg.Checkouts()
	if err != nil {
		return nil, err
	}
	s, err := from.SetupOf(source)
	if err != nil || s == nil {
		return nil, err
	}
	given, err := l.cfg.Consents.Given(ctx, source.GitDir, s.Digest)
	if err == nil && !given && c.Setup == s.Digest {
		given, err = true, l.cfg.Consents.Give(ctx, by, source.GitDir, s.Digest)
	}
	if err == nil && !given {
		err = capability.Errorf(capability.CodeApprovalRequired, op, "the repository has a setup for the worktrees of agents, which you have not agreed to").
			With("setup_required", "read "+workspace.SetupFile+"; then: junctor tasks create --yes, or --no-setup").
			Detail("tree_hash", s.Digest).
			Detail("text", "Before an agent starts, "+workspace.SetupFile+" of "+source.Path+" applies:\n\n"+text.VisibleLines(s.Text))
	}
	return s, err
}

// withChecks adds the checks of a setup to the metadata of a thread that has none.
func withChecks(metadata json.RawMessage, s *workspace.Setup) (json.RawMessage, error) {
	var members map[string]json.RawMessage
	if s == nil || len(s.Checks) == 0 || jsonx.Unmarshal(metadata, &members) == nil && members[metaChecks] != nil {
		return metadata, nil
	}
	var checks [][]string
	for _, line := range s.Checks {
		checks = append(checks, []string{"/bin/sh", "-c", line})
	}
	return row.WithMember(metadata, metaChecks, checks)
}

// noteSetup records the results of the commands that prepared the worktree of a part.
func (l *Launcher) noteSetup(ctx context.Context, thread, label string, w workspace.Workspace, err error) {
	e := row.Event{ThreadID: thread, EventType: row.SetupDone, Summary: label + ": the setup is done"}
	var data any = w.Setup
	if err != nil {
		failed := capability.AsError(err)
		e.EventType, e.Summary, data = row.SetupFailed, label+": "+failed.Message, failed.Details
	}
	if e.Data, err = row.WithMember(nil, "setup", data); err == nil {
		err = l.cfg.Registry.Record(context.WithoutCancel(ctx), e)
	}
	if err != nil {
		l.cfg.Logger.Warn("the output of a setup is not stored", "thread", thread, "part", label, "err", err)
	}
}

// enter stores the checkout of a new thread, after its uncommitted changes were committed on a
// branch of the task if the request includes them.
func (l *Launcher) enter(ctx context.Context, t row.Thread, source workspace.Source, setup *workspace.Setup, req Checkout,
) (InCheckout, error) {
	c := InCheckout{Source: source, Base: source.Head, Here: req.Here, Setup: setup}
	c.Name = workspace.Word(t.Title, maxTaskSlug, "task") + "-" + t.ID[max(0, len(t.ID)-nameIDLen):]
	if req.Uncommitted && source.Dirty {
		from, err := l.cfg.Checkouts()
		if err != nil {
			return c, err
		}
		w, err := from.ProvisionPart(ctx, workspace.PartRequest{
			Source: source, Task: t.ID, Part: baseRole, Branch: c.branch(baseRole), Label: baseRole, Start: source.Head,
		})
		if err == nil {
			c.Base, err = from.CopyChanges(ctx, w.ID)
		}
		if err != nil {
			_, left := from.DiscardTask(context.WithoutCancel(ctx), t.ID)
			if left != nil {
				l.cfg.Logger.Warn("a worktree of a task that was not created is left", "thread", t.ID, "err", left)
			}
			return c, err
		}
	}
	return c, l.keepCheckout(ctx, t.ID, c)
}

func (l *Launcher) keepCheckout(ctx context.Context, thread string, c InCheckout) error {
	var failed error
	_, err := l.cfg.Registry.UpdateThread(ctx, thread, func(t *row.Thread) {
		var meta json.RawMessage
		if meta, failed = row.WithMember(t.Metadata, metaCheckout, c); failed == nil {
			t.Metadata = meta
		}
	})
	return cmp.Or(err, failed)
}

// partPlace returns the worktree of a part. A new one starts from the merge of the parts that it
// depends on.
func (l *Launcher) partPlace(ctx context.Context, d threads.Detail, n row.Node, c InCheckout) (Place, error) {
	if c.Here {
		return Place{Path: c.Source.Path}, nil
	}
	from, err := l.cfg.Checkouts()
	if err == nil && c.Discarded {
		err = discarded(d.ID)
	}
	if err != nil {
		return Place{}, err
	}
	parts := byRole(from.Parts(d.ID))
	if w, ok := parts[n.ID]; ok { // of an earlier start
		return placeOf(w), nil
	}
	var heads []string
	for _, before := range ended(d) {
		w, ok := parts[before.ID]
		on := func(e row.Dependency) bool { return e.FromNodeID == before.ID && e.ToNodeID == n.ID }
		if !ok || !slices.ContainsFunc(d.Dependencies, on) {
			continue
		}
		head, err := from.CommitPart(ctx, w.ID, subject(w.Label, d.Thread))
		if err != nil {
			return Place{}, err
		}
		heads = append(heads, head)
	}
	req := workspace.PartRequest{
		Source: c.Source, Task: d.ID, Part: n.ID, Branch: c.branch(partName(d, n)), Label: n.AssignedLabel, Start: c.Base,
		Setup: c.Setup,
	}
	if len(heads) > 0 {
		req.Start, req.Merge = heads[0], heads[1:]
	}
	w, err := from.ProvisionPart(ctx, req)
	if len(w.Setup) > 0 || err != nil && capability.AsError(err).Reason == workspace.ReasonSetupFailed {
		l.noteSetup(ctx, d.ID, n.AssignedLabel, w, err)
	}
	return placeOf(w), err
}

func placeOf(w workspace.Workspace) Place {
	return Place{ID: w.ID, Path: w.Path, Branch: w.Branch, Conflicts: w.Conflicts}
}

func byRole(list []workspace.Workspace) map[string]workspace.Workspace {
	out := make(map[string]workspace.Workspace, len(list))
	for _, w := range list {
		out[w.Role] = w
	}
	return out
}

// partName returns the last word of a part's branch, which no other part of the thread has.
func partName(d threads.Detail, n row.Node) string {
	name := workspace.Word(n.AssignedLabel, maxPartSlug, "part")
	same := slices.ContainsFunc(d.Nodes, func(o row.Node) bool {
		return o.Kind == row.ExecutionNode && o.ID != n.ID && workspace.Word(o.AssignedLabel, maxPartSlug, "part") == name
	})
	if same || name == workspace.ResultRole || name == baseRole {
		name += fmt.Sprintf("-part-%d", n.Sequence)
	}
	return name
}

// subject returns the message of the commit of a part's work.
func subject(label string, t row.Thread) string {
	return beginning(cmp.Or(label, t.Title)) + "\n\nTask: " + t.Title + "\nThread: " + t.ID + "\n"
}

// conflicted returns the prompt about conflicts that a merge left in the files of a folder.
func conflicted(files []string) string {
	more := ""
	if len(files) > maxConflicts {
		files, more = files[:maxConflicts], "\n…"
	}
	return "The work of the parts before this one was merged in your folder, and these files have conflicts, with git's markers " +
		"(<<<<<<<). Resolve them first, so that the work of all parts is kept:\n" + strings.Join(files, "\n") + more
}

func discarded(thread string) error {
	return capability.Errorf(capability.CodeConflict, "tasks.review", "the work of %s was discarded", thread).
		With("task_discarded", "create the task again")
}

// Reviewed is the work of a task.
type Reviewed struct {
	Done    int          `json:"done"`    // completed parts, which the change holds
	Parts   int          `json:"parts"`   // all parts
	Commits []PartCommit `json:"commits"` // of the parts that the change holds
	workspace.Review
}

// PartCommit is the commit of a part's work.
type PartCommit struct {
	Part   string `json:"part"` // its label
	Branch string `json:"branch"`
	Commit string `json:"commit"`
}

// Review returns the work of a task as one change; if part is not "", that of the part with this
// label. Errors: invalid_input, reason no_checkout, not_found, reason part_not_found, and those
// of [workspace.Manager.Review].
func (l *Launcher) Review(ctx context.Context, thread, part string) (Reviewed, error) {
	r, from, c, err := l.collect(ctx, thread)
	if err != nil {
		return Reviewed{}, err
	}
	out := Reviewed{Done: r.done, Parts: r.parts, Commits: r.commits}
	id := r.result.ID
	if part != "" {
		list := from.Parts(thread)
		at := slices.IndexFunc(list, func(w workspace.Workspace) bool {
			return w.Label == part || w.Branch == c.branch(part)
		})
		if at < 0 {
			return out, capability.Errorf(capability.CodeNotFound, "tasks.review", "the task has no part %.100q that was started", part).
				With("part_not_found", "the labels are those of junctor tasks show "+thread)
		}
		id = list[at].ID
	}
	if out.Review, err = from.Review(ctx, id, c.Base); part != "" {
		out.Commits = []PartCommit{{part, out.Branch, out.Head}}
	}
	return out, err
}

// Merge describes a merge of a task's work.
type Merge struct {
	ThreadID string
	Commit   string // Head of the Review that was shown to the user
	Method   workspace.MergeMethod
	Partial  bool // leave out the parts that have not completed
}

// Merge adds the work of a task to the branch that is checked out in the user's checkout, if it is
// still the reviewed commit. Unless Partial is set, parts that have not completed are a conflict,
// reason task_not_done. It fails with invalid_input, reason not_reviewed, without a commit. Its
// other errors are those of [workspace.Manager.MergeTask].
func (l *Launcher) Merge(ctx context.Context, m Merge) (workspace.Merged, error) {
	r, from, c, err := l.complete(ctx, "tasks.merge", m.ThreadID, m.Commit, m.Partial)
	if err != nil {
		return workspace.Merged{}, err
	}
	return from.MergeTask(ctx, workspace.MergeRequest{
		ID: r.result.ID, Base: c.Base, Commit: m.Commit, Method: m.Method, Message: subject(r.title, r.thread),
	})
}

// complete collects the work of a task to merge or publish it as the user reviewed it, at commit. It
// fails with invalid_input, reason not_reviewed, without a commit, and with conflict, reason
// task_not_done, if a part has not completed, unless partial is set.
func (l *Launcher) complete(ctx context.Context, op, thread, commit string, partial bool) (collected, Checkouts, InCheckout, error) {
	if commit == "" {
		return collected{}, nil, InCheckout{}, capability.Errorf(capability.CodeInvalidInput, op, "the request names no reviewed commit").
			With("not_reviewed", "look at the work with tasks diff, and give its commit (head)")
	}
	r, from, c, err := l.collect(ctx, thread)
	switch {
	case err != nil:
	case r.busy:
		err = capability.Errorf(capability.CodeConflict, op, "an agent resolves the conflicts of the parts").
			With("task_not_done", "wait for it: junctor tasks watch "+thread)
	case r.done < r.parts && !partial || r.done == 0:
		err = capability.Errorf(capability.CodeConflict, op, "%d of %d parts are done", r.done, r.parts).
			With("task_not_done", "wait for the others, or take what is done with --partial")
	}
	return r, from, c, err
}

// Pull describes the pull request for the work of a task. Its empty texts have defaults.
type Pull struct {
	ThreadID          string
	Commit            string // Head of the Review that was shown to the user
	Title, Body, Base string
	Draft, Partial    bool
}

// Pull publishes the work of a task as a pull request at the forge of the checkout's origin. Its errors
// are those of Merge about the work, and those of [workspace.Manager.PublishTask].
func (l *Launcher) Pull(ctx context.Context, p Pull) (forge.Pull, error) {
	r, from, c, err := l.complete(ctx, "tasks.pr", p.ThreadID, p.Commit, p.Partial)
	if err != nil {
		return forge.Pull{}, err
	}
	if p.Body == "" {
		for _, c := range r.commits {
			p.Body += "- " + c.Part + "\n"
		}
	}
	pull, err := from.PublishTask(ctx, workspace.PublishRequest{
		ID: r.result.ID, Base: c.Base, Commit: p.Commit, Title: cmp.Or(p.Title, r.title), Body: p.Body, Into: p.Base, Draft: p.Draft,
	})
	if err == nil && l.cfg.Notify != nil {
		if err := l.cfg.Notify(ctx, r.thread, "", "The pull request is "+pull.URL); err != nil {
			l.cfg.Logger.Warn("the owner of a task has no message about its pull request", "thread", p.ThreadID, "err", err)
		}
	}
	return pull, err
}

// Pulled is the pull request of a task with the checks of its commit.
type Pulled struct {
	forge.Pull
	Commit string        `json:"commit"`
	Checks []forge.Check `json:"checks"`
}

// Checks returns the pull request of a task and what the forge checks about it.
func (l *Launcher) Checks(ctx context.Context, thread string) (Pulled, error) {
	_, from, _, err := l.reviewed(ctx, thread)
	if err != nil {
		return Pulled{}, err
	}
	w, list, err := from.TaskChecks(ctx, byRole(from.Parts(thread))[workspace.ResultRole].ID)
	if err != nil {
		return Pulled{}, err
	}
	return Pulled{*w.Pull, w.Published, list}, nil
}

// Discard removes the worktrees and branches of a task from the user's repository. It fails with
// conflict, reason task_running, while a session of the task is live.
func (l *Launcher) Discard(ctx context.Context, thread string) (branches []string, err error) {
	d, from, c, err := l.reviewed(ctx, thread)
	if err != nil {
		return nil, err
	}
	for _, s := range d.Sessions {
		if s.Status.Live() {
			return nil, capability.Errorf(capability.CodeConflict, "tasks.discard", "an agent still works on %s", thread).
				With("task_running", "stop it with: junctor tasks stop "+thread)
		}
	}
	c.Discarded = true
	if err := l.keepCheckout(ctx, thread, c); err != nil {
		return nil, err
	}
	return from.DiscardTask(ctx, thread)
}

// reviewed returns a thread with its checkout, whose parts have worktrees.
func (l *Launcher) reviewed(ctx context.Context, thread string) (d threads.Detail, from Checkouts, c InCheckout, err error) {
	if d, err = l.cfg.Registry.Detail(ctx, thread, startFields()); err != nil {
		return d, nil, c, err
	}
	c, ok := checkoutOf(d.Thread)
	switch {
	case !ok:
		err = capability.Errorf(capability.CodeInvalidInput, "tasks.review", "%s does not work in a checkout of this machine", thread).
			With("no_checkout", "the work of a cloned repository is published with: junctor workspaces finalize")
	case c.Here:
		err = capability.Errorf(capability.CodeInvalidInput, "tasks.review", "%s works in the checkout itself", thread).
			With("no_checkout", "look at it with git, in "+c.Source.Path)
	case c.Discarded:
		err = discarded(thread)
	default:
		from, err = l.cfg.Checkouts()
	}
	return d, from, c, err
}

type collected struct {
	thread      row.Thread
	title       string
	result      workspace.Workspace
	done, parts int
	commits     []PartCommit
	busy        bool // an agent works in the result's worktree
}

// collect commits the work of the completed parts and merges it into the result's branch, which it
// creates. It may be repeated.
func (l *Launcher) collect(ctx context.Context, thread string) (r collected, from Checkouts, c InCheckout, err error) {
	l.places.Lock()
	defer l.places.Unlock()
	d, from, c, err := l.reviewed(ctx, thread)
	if err != nil {
		return r, from, c, err
	}
	r.thread, r.title, r.commits = d.Thread, d.Title, []PartCommit{}
	parts := byRole(from.Parts(thread))
	result, has := parts[workspace.ResultRole]
	busy := false
	if !has {
		result, err = from.ProvisionPart(ctx, workspace.PartRequest{
			Source: c.Source, Task: thread, Part: workspace.ResultRole, Branch: c.branch(workspace.ResultRole),
			Label: workspace.ResultRole, Start: c.Base,
		})
	} else if works(d, result.ID) { // an agent resolves conflicts in it
		busy = true
	} else {
		_, err = from.CommitPart(ctx, result.ID, subject("Resolve conflicts", d.Thread))
	}
	for _, n := range d.Nodes {
		if n.Kind == row.ExecutionNode {
			r.parts++
		}
	}
	for _, n := range ended(d) {
		r.done++
		w, ok := parts[n.ID]
		if !ok || err != nil {
			continue // without a worktree it was done without a session
		}
		var head string
		head, err = from.CommitPart(ctx, w.ID, subject(w.Label, d.Thread))
		r.commits = append(r.commits, PartCommit{w.Label, w.Branch, head})
		if err == nil && !busy {
			result, err = from.MergePart(ctx, result.ID, head)
		}
	}
	r.result, r.busy = result, busy
	return r, from, c, err
}

// ended returns the completed parts of a plan, first those on which no other completed part depends.
// They contain the others and have resolved their conflicts.
func ended(d threads.Detail) (list []row.Node) {
	completed := func(id string) bool {
		return slices.ContainsFunc(d.Nodes, func(n row.Node) bool {
			return n.ID == id && n.Kind == row.ExecutionNode && n.Status == row.NodeCompleted
		})
	}
	var others []row.Node
	for _, n := range d.Nodes {
		switch {
		case !completed(n.ID):
		case slices.ContainsFunc(d.Dependencies, func(e row.Dependency) bool { return e.FromNodeID == n.ID && completed(e.ToNodeID) }):
			others = append(others, n)
		default:
			list = append(list, n)
		}
	}
	return append(list, others...)
}

// works reports whether a live session of a thread works in a workspace.
func works(d threads.Detail, id string) bool {
	return slices.ContainsFunc(d.Sessions, func(s row.Session) bool {
		return s.Status.Live() && row.Meta(s.Metadata, metaWorkspace) == id
	})
}

// Collect puts the work of a thread that has ended on its result branch. If the parts conflict, an
// agent of the kind that worked last resolves that, once. Threads without checkout are ignored.
func (l *Launcher) Collect(ctx context.Context, thread string) error {
	d, err := l.cfg.Registry.Detail(ctx, thread, startFields())
	if err != nil {
		return err
	}
	if c, ok := checkoutOf(d.Thread); !ok || c.Here || c.Discarded {
		return nil
	}
	r, _, _, err := l.collect(ctx, thread)
	if err != nil || len(r.result.Conflicts) == 0 || len(d.Sessions) == 0 || d.Held() {
		return err
	}
	last := d.Sessions[len(d.Sessions)-1]
	tried := slices.ContainsFunc(d.Sessions, func(s row.Session) bool { return row.Meta(s.Metadata, metaWorkspace) == r.result.ID })
	if tried || programs.Name(last.Framework) == programs.Shell {
		return nil // the conflict is shown by the review, and refused by the merge
	}
	by, err := l.cfg.Standing(d.AgentID)
	if err != nil {
		return err
	}
	defer l.coordinator.Conclude(thread)
	defer l.starts(thread)()
	if _, err := l.cfg.Registry.Control(ctx, thread, threads.Resume, "the parts conflict"); err != nil {
		return err
	}
	n := row.Node{AssignedLabel: "conflicts", Instructions: conflicted(r.result.Conflicts)}
	place := placeOf(r.result)
	i, err := l.spawnWhenFree(ctx, d, true, func() (agents.Info, error) {
		return l.spawn(ctx, by, d.Thread, n, place, programs.Name(last.Framework), agents.Request{Task: n.Instructions})
	})
	if err != nil {
		return err
	}
	return l.register(ctx, threads.Registration{ThreadID: thread, Session: l.session(d.Thread, n, i, place)})
}
