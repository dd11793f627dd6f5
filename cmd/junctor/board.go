package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
)

// boardTask is one row of the board.
type boardTask struct {
	taskRow
	Title string
	usage *usageRow
	rank  int // 0 waits for the user, 1 works, 2 has ended
}

// boardState is what the rows show of a state.
func boardState(state string) (rank int, word string) {
	switch state {
	case "input_required", "auth_required":
		return 0, "needs you"
	case "interrupted":
		return 0, state
	case "completed":
		return 2, "done"
	case "failed", "rejected", "cancelled":
		return 2, state
	case "submitted":
		return 1, "starting"
	}
	return 1, state
}

// board runs the live board until the user leaves it.
func (a *app) board(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c, err := a.client()
	if err != nil {
		return err
	}
	b := &board{app: a, ctx: ctx, do: c.Do}
	first := b.load()
	if first.err != nil {
		return first.err
	}
	b.show(first.tasks)
	if b.news, err = a.feed(ctx, aboutTasks); err != nil {
		return err
	}
	p := tea.NewProgram(b, tea.WithoutSignalHandler(), // the context ends with the signals
		tea.WithInput(a.stdin), tea.WithOutput(a.stdout), tea.WithEnvironment(a.environ))
	defer context.AfterFunc(ctx, p.Quit)()
	_, err = p.Run()
	switch {
	case ctx.Err() != nil:
		return exitStatus(130) // as for all commands that follow a stream
	case err == nil:
		return nil
	}
	return capability.Wrap(capability.CodeFailed, "tasks", "the board cannot be shown", err).With("", "use: junctor tasks list")
}

// aboutTasks reports whether an event of the live feed is about a task, a session or an approval.
func aboutTasks(event string) bool {
	kind, _, _ := strings.Cut(event, ".")
	return kind == "task" || kind == "agent" || kind == "approval"
}

// Messages of the board.
type (
	newsMsg   struct{}
	reloadMsg struct{}
	loadedMsg struct {
		tasks []boardTask
		err   error
	}
	pageMsg struct {
		wanted int
		page   *boardPage
		err    error
	}
	doneMsg struct {
		said string
		err  error
		over *boardPage // the page that is left
	}
)

// load reads the tasks, with the titles and the usage of their threads.
func (b *board) load() loadedMsg {
	ctx, cancel := context.WithTimeout(b.ctx, boardReadTimeout)
	defer cancel()
	var threads []threadRow
	known := make(map[string]threadRow)
	if err := b.do(ctx, http.MethodGet, threadsPath+"?limit=500&includeArchived=true", nil, &threads); err == nil { // else without titles
		for _, t := range threads {
			known[t.ID] = t
		}
	}
	var list []boardTask
	for cursor := ""; len(list) < maxBoardTasks; {
		var page struct {
			Tasks []taskRow
			Next  string
		}
		if err := b.do(ctx, http.MethodGet, tasksPath+"?limit=100&cursor="+url.QueryEscape(cursor), nil, &page); err != nil {
			return loadedMsg{err: err}
		}
		for _, t := range page.Tasks {
			if t.answered() {
				continue
			}
			list = append(list, boardTask{taskRow: t, Title: known[t.Thread].Title, usage: known[t.Thread].Usage})
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	return loadedMsg{tasks: list[:min(len(list), maxBoardTasks)]}
}

// show replaces the rows: what waits for the user first, and the last changed first within a state.
// The selected task stays selected.
func (b *board) show(list []boardTask) {
	for i := range list {
		t := &list[i]
		t.rank, _ = boardState(t.State)
		said, _, _ := strings.Cut(t.Status, "\n")
		t.Title = text.Visible(cmp.Or(t.Title, said, t.Kind+" "+t.ID))
	}
	slices.SortStableFunc(list, func(x, y boardTask) int {
		return cmp.Or(cmp.Compare(x.rank, y.rank), y.Updated.Compare(x.Updated))
	})
	b.tasks = list
	if at := b.at(); at < 0 {
		b.selected = ""
		if len(list) > 0 {
			b.selected = list[0].ID
		}
	}
}

// at returns the index of the selected task, or -1.
func (b *board) at() int {
	return slices.IndexFunc(b.tasks, func(t boardTask) bool { return t.ID == b.selected })
}

// printed returns what a command prints, by lines.
func (b *board) printed(print func(*app) error) (string, error) {
	var out bytes.Buffer
	quiet := *b.app
	quiet.stdout, quiet.stderr, quiet.json, quiet.quiet = &out, &out, false, false
	err := print(&quiet)
	return out.String(), err
}

// open reads what a task waits for, or else its details.
func (b *board) open(t boardTask) tea.Cmd {
	return b.want(func(ctx context.Context, page *boardPage) error {
		var raw json.RawMessage
		if err := b.do(ctx, http.MethodGet, taskPath(t.ID, ""), nil, &raw); err != nil {
			return err
		}
		now, err := decode[struct{ Task taskRow }](raw)
		if err != nil {
			return err
		}
		page.task = t
		page.task.taskRow = now.Task
		if len(now.Task.Requests) > 0 {
			return b.question(ctx, page)
		}
		page.body, err = b.printed(func(a *app) error { return a.printTask(raw) })
		return err
	})
}

// want reads a page, which is shown unless the user requests another one meanwhile.
func (b *board) want(read func(ctx context.Context, page *boardPage) error) tea.Cmd {
	b.wanted++
	wanted := b.wanted
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(b.ctx, boardWriteTimeout)
		defer cancel()
		page := &boardPage{}
		err := read(ctx, page)
		return pageMsg{wanted, page, err}
	}
}

// review reads the work of a task.
func (b *board) review(t boardTask) tea.Cmd {
	return b.want(func(ctx context.Context, page *boardPage) (err error) {
		page.task, page.review = t, &reviewRow{}
		if err := b.do(ctx, http.MethodGet, diffPath(t.Thread, ""), nil, page.review); err != nil {
			return err
		}
		page.body, err = b.printed(func(a *app) error {
			a.printReviewed(page.review)
			a.printf("\n%s\n\n%s", text.VisibleLines(page.review.Stat.Text), strings.ReplaceAll(visibleDiff(string(page.review.Diff)), "\t", "    "))
			return nil
		})
		return err
	})
}

// post sends a request about a task, and reports the result in the status line.
func (b *board) post(path string, body any, over *boardPage, said func(raw json.RawMessage) string) tea.Cmd {
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(b.ctx, boardWriteTimeout)
		defer cancel()
		var raw json.RawMessage
		if err := b.do(ctx, http.MethodPost, path, body, &raw); err != nil {
			return doneMsg{err: err}
		}
		return doneMsg{said: said(raw), over: over}
	}
}

// attachTo shows the terminal of a task's session in place of the board, as junctor tasks attach does. It is
// a process of its own, so that no key that is typed after it reaches it.
func (b *board) attachTo(t boardTask) tea.Cmd {
	self, err := os.Executable()
	if err != nil {
		return func() tea.Msg { return doneMsg{err: err} }
	}
	cmd := exec.CommandContext(b.ctx, self, "tasks", "attach", t.ID)
	cmd.Env = slices.Clone(b.environ)
	for name, value := range map[string]string{"JUNCTOR_HOME": b.home, "JUNCTOR_URL": b.server, "JUNCTOR_TOKEN": b.token} {
		if value != "" {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	var failed bytes.Buffer
	cmd.Stderr = &failed
	return tea.ExecProcess(cmd, func(err error) tea.Msg {
		if err != nil {
			said, _, _ := strings.Cut(strings.TrimSpace(failed.String()), "\n")
			err = capability.Errorf(capability.CodeFailed, "tasks.attach", "%s", strings.TrimPrefix(said, "junctor: "))
		}
		return doneMsg{said: "detached from " + t.ID, err: err}
	})
}
