package main

import (
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
)

const (
	boardHead = 1 // lines above the rows
	boardFoot = 2 // lines below them: the status and the keys
)

// rows returns the number of rows of tasks on the screen, at least 1.
func (b *board) rows() int { return max(1, b.height-boardHead-boardFoot-b.previewRows()) }

// previewRows returns the number of lines about the selected task, with the rule above them.
func (b *board) previewRows() int {
	if b.height < minPreviewAt {
		return 0
	}
	return min(maxPreview, b.height/3) + 1
}

func (b *board) pageRows() int { return max(1, b.height-boardHead-boardFoot) }

// broken returns the lines of a text, broken at a width. Nothing is left out.
func broken(body string, width int) []string {
	return strings.Split(ansi.Hardwrap(strings.TrimRight(body, "\n"), max(1, width), true), "\n")
}

// hinted returns the message of an error, with its hint.
func hinted(err error) string {
	e := capability.AsError(err)
	if e.Hint == "" {
		return e.Message
	}
	return e.Message + " (" + typedHint(e.Hint) + ")"
}

// styled returns a line with a style, cut to the width of the screen. The style is of the whole line, so
// that what is cut away cannot be its end.
func (b *board) styled(style, line string) string {
	line = ansi.Truncate(line, b.width, "…")
	if style == "" || line == "" {
		return line
	}
	return "\x1b[" + style + "m" + line + "\x1b[0m"
}

const (
	bold, dim, inverse = "1", "2", "7"
	yellow, green, red = "33", "32", "31"
)

// View implements [tea.Model].
func (b *board) View() tea.View {
	v := tea.View{AltScreen: true}
	if b.width > 0 && b.height > 0 {
		lines := b.drawn()
		v.Content = strings.Join(lines[:min(len(lines), b.height)], "\n")
	}
	return v
}

// drawn returns the lines of the screen.
func (b *board) drawn() []string {
	lines := make([]string, 0, b.height)
	if b.page != nil {
		lines = append(lines, b.styled(bold, b.page.task.Title))
		p := b.page
		for _, line := range p.lines[min(p.top, len(p.lines)):min(p.top+b.pageRows(), len(p.lines))] {
			lines = append(lines, b.styled("", line))
		}
		lines = filled(lines, boardHead+b.pageRows())
	} else {
		lines = append(lines, b.styled(bold, b.headline()))
		for i := b.top; i < min(b.top+b.rows(), len(b.tasks)); i++ {
			lines = append(lines, b.row(&b.tasks[i]))
		}
		if len(b.tasks) == 0 {
			lines = append(lines, b.styled(dim, "you have no task; give one with: junctor tasks create TASK"))
		}
		lines = filled(lines, boardHead+b.rows())
		lines = append(lines, b.preview()...)
	}
	return append(lines, b.styled("", b.statusLine()), b.styled(dim, b.keyLine()))
}

func filled(lines []string, to int) []string {
	for len(lines) < to {
		lines = append(lines, "")
	}
	return lines
}

func (b *board) headline() string {
	var counts [3]int
	for i := range b.tasks {
		counts[b.tasks[i].rank]++
	}
	line := fmt.Sprintf("junctor tasks   %d wait for you   %d at work   %d over", counts[0], counts[1], counts[2])
	if b.lost != "" {
		line += "   not connected: " + b.lost
	}
	return line
}

func (b *board) row(t *boardTask) string {
	mark := "  "
	style := []string{yellow, "", ""}[t.rank]
	switch t.State {
	case "failed", "rejected":
		style = red
	case "completed":
		style = green
	}
	if t.ID == b.selected {
		mark, style = "> ", strings.TrimSuffix(inverse+";"+style, ";")
	}
	_, word := boardState(t.State)
	line := mark + fmt.Sprintf("%-11s ", word) + t.Title
	at := t.Updated.Local().Format("15:04")
	if room := b.width - len(at) - 1; room > 20 {
		line = ansi.Truncate(line, room, "…")
		line += strings.Repeat(" ", max(0, room-ansi.StringWidth(line))+1) + at
	}
	return b.styled(style, line)
}

// preview returns the beginning of what the selected task waits for, or of its state.
func (b *board) preview() []string {
	rows := b.previewRows()
	if rows == 0 {
		return nil
	}
	lines := []string{b.styled(dim, strings.Repeat("─", b.width))}
	if at := b.at(); at >= 0 {
		t := &b.tasks[at]
		body := t.Status
		if len(t.Requests) > 0 {
			if body = t.Requests[0].Params.Message; body == "" {
				body = "it waits for the approval " + t.Requests[0].Approval
			}
			if more := len(t.Requests) - 1; more > 0 {
				body += fmt.Sprintf("\nand %d more", more)
			}
		}
		all := strings.Split(text.VisibleLines(body), "\n")
		if t.usage != nil {
			all = append([]string{"usage: " + t.usage.String()}, all...)
		}
		if len(all) > rows-1 {
			all = append(all[:max(0, rows-2)], "… (enter shows all of it)")
		}
		for _, line := range all {
			lines = append(lines, b.styled("", line))
		}
	}
	return filled(lines, rows)
}

func (b *board) statusLine() string {
	p := b.prompt
	if p == nil {
		return b.said
	}
	said := string(p.typed)
	if p.secret {
		said = strings.Repeat("•", len(p.typed))
	}
	line := p.label + text.Visible(said)
	if !p.key {
		line += "_"
	}
	if over := ansi.StringWidth(line) - b.width; over > 0 { // the end is where the user types
		return "…" + ansi.TruncateLeft(line, over+1, "")
	}
	return line
}

func (b *board) keyLine() string {
	switch {
	case b.prompt != nil && b.prompt.key:
		return "one key"
	case b.prompt != nil:
		return "enter sends it, esc leaves it"
	case b.page == nil:
		return "enter open  d diff  m merge  c comment  x discard  t attach  q quit"
	}
	p := b.page
	keys := "esc back  space more"
	if p.whole() {
		keys = "esc back"
	}
	switch q := p.question; {
	case p.review != nil:
		keys += "  m merge  c comment"
	case q != nil:
		if len(q.choices) > 0 && len(q.choices) <= 9 {
			keys += "  " + fmt.Sprintf("%d-%d answer", q.choices[0].n, q.choices[len(q.choices)-1].n)
		}
		if q.typed != nil {
			keys += "  i type an answer"
		}
		keys += "  n no"
		if q.hint != "" {
			keys += "  " + text.Visible(q.hint)
		}
	}
	return fmt.Sprintf("%s  (%d of %d lines)", keys, min(p.top+b.pageRows(), len(p.lines)), len(p.lines))
}
