package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/junctor-run/junctor/internal/base/text"
)

// board is the model of the live board: rows of tasks, or one page about a task above them.
type board struct {
	*app
	ctx  context.Context
	do   func(ctx context.Context, method, path string, body, out any) error
	news <-chan struct{} // receives a value when something has changed; nil in tests

	width, height  int
	tasks          []boardTask
	selected       string // id of a task
	top            int    // first row shown
	loading, again bool   // a read is under way, and another one is needed after it
	lost           string // why the last read failed
	said           string // result of the last key
	page           *boardPage
	wanted         int // number of the last page that was requested
	prompt         *boardPrompt
}

// boardPage is a text about one task, in place of the rows.
type boardPage struct {
	task     boardTask
	body     string
	question *boardQuestion // what is answered here
	review   *reviewRow     // what is merged here

	lines   []string // body in the width of the terminal
	width   int
	top     int
	shownTo int // lines that were on the screen, without a gap from the first one
}

// boardPrompt is a line that the user types, or one key.
type boardPrompt struct {
	label  string
	key    bool // one key
	secret bool
	typed  []rune
	then   func(said string) tea.Cmd
}

// Init implements [tea.Model].
func (b *board) Init() tea.Cmd { return b.wait() }

// wait returns the command that ends when something has changed.
func (b *board) wait() tea.Cmd {
	return func() tea.Msg {
		select {
		case <-b.news:
			return newsMsg{}
		case <-b.ctx.Done():
			return nil
		}
	}
}

// reload starts a read, or has one follow that is under way.
func (b *board) reload() tea.Cmd {
	if b.loading {
		b.again = true
		return nil
	}
	b.loading = true
	return func() tea.Msg { return b.load() }
}

// Update implements [tea.Model].
func (b *board) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	cmd := b.update(msg)
	b.place()
	return b, cmd
}

func (b *board) update(msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		b.width, b.height = msg.Width, msg.Height
	case newsMsg:
		return tea.Batch(b.reload(), b.wait())
	case reloadMsg:
		return b.reload()
	case loadedMsg:
		b.loading, b.lost = false, ""
		if msg.err != nil {
			b.lost = plainText(msg.err.Error())
		} else {
			b.show(msg.tasks)
		}
		if b.again {
			b.again = false
			return tea.Tick(boardReloadDelay, func(time.Time) tea.Msg { return reloadMsg{} })
		}
	case pageMsg:
		if msg.wanted != b.wanted || b.prompt != nil { // the user has gone on to something else
			break
		}
		b.said = ""
		if msg.err != nil {
			b.said = failure(msg.err)
		} else {
			b.page = msg.page
		}
	case doneMsg:
		b.said = text.Visible(msg.said)
		if msg.err != nil {
			b.said = failure(msg.err)
		}
		if msg.over != nil && msg.over == b.page {
			b.page = nil
		}
		return b.reload()
	case tea.PasteMsg:
		if b.prompt != nil && !b.prompt.key {
			b.prompt.add(msg.Content)
		}
	case tea.KeyPressMsg:
		return b.press(msg.String(), msg.Text)
	}
	return nil
}

// failure returns an error and its hint for the status line.
func failure(err error) string { return "! " + text.Visible(hinted(err)) }

// place keeps the selected row on the screen, and notes how much of a page was on it.
func (b *board) place() {
	rows := b.rows()
	if at := b.at(); at >= 0 {
		b.top = min(b.top, at)
		b.top = max(b.top, at-rows+1)
	}
	b.top = max(0, min(b.top, len(b.tasks)-rows))
	if p := b.page; p != nil && b.width > 0 {
		p.fit(b.width, b.pageRows())
	}
}

// fit breaks the lines of a page for a width. What was on the screen counts again from the first line
// after the width has changed, unless all of it was.
func (p *boardPage) fit(width, rows int) {
	if p.width != width {
		whole := p.whole()
		p.lines, p.width, p.shownTo = broken(p.body, width), width, 0
		if whole {
			p.shownTo = len(p.lines)
		} else {
			p.top = 0
		}
	}
	p.top = max(0, min(p.top, len(p.lines)-rows))
	if p.top <= p.shownTo {
		p.shownTo = max(p.shownTo, min(p.top+rows, len(p.lines)))
	}
}

// whole reports whether all of the page was on the screen.
func (p *boardPage) whole() bool { return p.width > 0 && p.shownTo >= len(p.lines) }

func (p *boardPrompt) add(said string) {
	for _, r := range said {
		if r >= ' ' && r != 0x7f && len(p.typed) < maxBoardLine {
			p.typed = append(p.typed, r)
		}
	}
}

// press handles a key: its name, and the text that it types.
func (b *board) press(key, typed string) tea.Cmd {
	if key == "ctrl+c" {
		return tea.Quit
	}
	switch {
	case b.prompt != nil:
		return b.pressPrompt(key, typed)
	case b.page != nil:
		return b.pressPage(key)
	}
	return b.pressRow(key)
}

func (b *board) pressPrompt(key, typed string) tea.Cmd {
	p := b.prompt
	switch {
	case key == "esc":
		b.prompt, b.said = nil, ""
	case p.key:
		b.prompt, b.said = nil, ""
		return p.then(typed)
	case key == "enter":
		b.prompt = nil
		if said := strings.TrimSpace(string(p.typed)); said != "" {
			return p.then(said)
		}
	case key == "backspace":
		p.typed = p.typed[:max(0, len(p.typed)-1)]
	case key == "ctrl+u":
		p.typed = nil
	default:
		p.add(typed)
	}
	return nil
}

// scrolled returns an index after a key that moves, among count with rows on the screen.
func scrolled(key string, at, count, rows int) (int, bool) {
	switch key {
	case "up", "k":
		at--
	case "down", "j":
		at++
	case "pgup", "b":
		at -= rows
	case "pgdown", "space", " ", "f":
		at += rows
	case "home", "g":
		at = 0
	case "end", "G":
		at = count - 1
	default:
		return at, false
	}
	return max(0, min(at, count-1)), true
}

func (b *board) pressRow(key string) tea.Cmd {
	if key == "q" || key == "esc" {
		return tea.Quit
	}
	at := b.at()
	if at < 0 {
		return nil
	}
	if to, ok := scrolled(key, at, len(b.tasks), b.rows()); ok {
		b.selected = b.tasks[to].ID
		return nil
	}
	t := b.tasks[at]
	switch key {
	case "enter", "a":
		b.said = ""
		return b.open(t)
	case "d", "m", "t", "c", "x":
		if t.Thread == "" {
			b.said = "it is a call: no agent's program works on it"
			return nil
		}
		b.said = ""
	}
	switch key {
	case "d", "m": // what is merged is shown first
		b.said = "reading the work…"
		return b.review(t)
	case "t":
		return b.attachTo(t)
	case "c":
		b.comment(t, nil)
	case "x":
		b.discard(t)
	}
	return nil
}

func (b *board) pressPage(key string) tea.Cmd {
	p := b.page
	if to, ok := scrolled(key, p.top, len(p.lines), b.pageRows()); ok {
		p.top = to
		return nil
	}
	switch key {
	case "q", "esc", "left":
		b.page, b.said = nil, ""
		b.wanted++
		return nil
	case "c", "m":
		if p.review != nil {
			if key == "c" {
				b.comment(p.task, p.review)
			} else {
				b.merge(p)
			}
			return nil
		}
	}
	if p.question != nil {
		return b.pressQuestion(key)
	}
	return nil
}

const unread = "there is more below (space): you answer what you have seen whole"

func (b *board) pressQuestion(key string) tea.Cmd {
	p, q := b.page, b.page.question
	switch choice, ok := q.pressed(key); {
	case ok && !choice.deny && !p.whole():
		b.said = unread
	case ok:
		return b.answer(p, choice.body)
	case key == "n":
		return b.answer(p, q.decline)
	case key == "i" && q.typed != nil && !p.whole():
		b.said = unread
	case key == "i" && q.typed != nil:
		b.said = ""
		b.prompt = &boardPrompt{label: "Answer: ", secret: q.secret, then: func(said string) tea.Cmd { return b.answer(p, q.typed(said)) }}
	}
	return nil
}

// merge asks how the shown work is merged. The server refuses it if it has moved since.
func (b *board) merge(p *boardPage) {
	if !p.whole() {
		b.said = "there is more below (space): you merge what you have seen whole"
		return
	}
	const label = "Merge what is shown? [f]ast-forward, [s]quash, [r]ebase, or another key for no "
	b.prompt = &boardPrompt{key: true, label: label, then: func(key string) tea.Cmd {
		method := map[string]string{"f": "fast-forward", "s": "squash", "r": "rebase"}[key]
		if method == "" {
			return nil
		}
		body := map[string]any{"commit": p.review.Head, "method": method}
		return b.post(threadPath(p.task.Thread, "/merge"), body, p, func(raw json.RawMessage) string {
			var out struct{ Branch, From, Commit string }
			if json.Unmarshal(raw, &out) != nil || out.From == out.Commit {
				return out.Branch + " has all of it already"
			}
			return fmt.Sprintf("%s is at %.12s, before at %.12s", out.Branch, out.Commit, out.From)
		})
	}}
}

// comment asks for a review of a task's work, and for its part if the review shows several.
func (b *board) comment(t boardTask, r *reviewRow) {
	ask := func(part string) {
		b.prompt = &boardPrompt{label: "To the agent: ", then: func(said string) tea.Cmd {
			body := map[string]any{"text": said, "comments": []any{}}
			setText(body, "part", part)
			return b.post(threadPath(t.Thread, "/comment"), body, b.page, func(json.RawMessage) string {
				return "the agent has the review, and goes on"
			})
		}}
	}
	if r == nil || r.Parts < 2 {
		ask("")
		return
	}
	labels := make([]string, len(r.Commits))
	for i, c := range r.Commits {
		labels[i] = text.Visible(c.Part)
	}
	b.prompt = &boardPrompt{label: "Part (" + strings.Join(labels, ", ") + "): ", then: func(said string) tea.Cmd {
		ask(said)
		return nil
	}}
}

// discard asks before the work of a task is removed.
func (b *board) discard(t boardTask) {
	label := "Remove all work of " + ansi.Truncate(t.Title, 30, "…") + " that was not merged? [y/N] "
	b.prompt = &boardPrompt{
		key: true, label: label, then: func(key string) tea.Cmd {
			if key != "y" && key != "Y" {
				return nil
			}
			return b.post(threadPath(t.Thread, "/discard"), map[string]any{}, nil, func(raw json.RawMessage) string {
				var out struct{ Branches []string }
				_ = json.Unmarshal(raw, &out) // without it only the names are missing
				return "removed: " + dash(strings.Join(out.Branches, ", "))
			})
		},
	}
}

var _ tea.Model = (*board)(nil)
