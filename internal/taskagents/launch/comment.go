package launch

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/taskagents/coordinator/decide"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/threads/row"
	"github.com/junctor-run/junctor/internal/taskagents/workspace"
)

// LineComment is a comment on a line of a part's work.
type LineComment struct {
	File string `json:"file"`
	Line int    `json:"line"` // from 1
	Text string `json:"text"`
}

// Comments are a review of a part's work.
type Comments struct {
	ThreadID string
	Part     string // label; "" if the task has only one part
	Lines    []LineComment
	Text     string // about all of it
}

// Comment sends a review to the agent of a part as one message, with the lines that it is about. The
// agent continues in its worktree. Errors: invalid_input, reason no_comments, which_part,
// no_such_line or comments_for_shell; too_large; and those of Review and Control.
func (l *Launcher) Comment(ctx context.Context, by capability.Principal, c Comments) (Controlled, error) {
	const op = "tasks.comment"
	d, from, _, err := l.reviewed(ctx, c.ThreadID)
	if err != nil {
		return Controlled{}, err
	}
	bad := func(reason, hint, format string, args ...any) error {
		return capability.Errorf(capability.CodeInvalidInput, op, format, args...).With(reason, hint)
	}
	if len(c.Lines) == 0 && strings.TrimSpace(c.Text) == "" {
		return Controlled{}, bad("no_comments", "write a text, or --on FILE:LINE:TEXT", "the comment is empty")
	}
	if len(c.Lines) > maxComments {
		return Controlled{}, capability.Errorf(capability.CodeTooLarge, op, "a review has at most %d comments", maxComments)
	}
	var labels []string
	var part workspace.Workspace
	found := false
	for _, w := range from.Parts(c.ThreadID) {
		if w.Role == workspace.ResultRole || w.Role == baseRole {
			continue
		}
		labels = append(labels, w.Label)
		if c.Part == "" || w.Label == c.Part {
			part, found = w, true
		}
	}
	if !found || c.Part == "" && len(labels) > 1 {
		return Controlled{}, bad("which_part", "name one with --part", "the comments are for one of the parts %s",
			text.Visible(strings.Join(labels, ", ")))
	}
	at := slices.IndexFunc(d.Sessions, func(s row.Session) bool {
		return row.Meta(s.Metadata, metaWorkspace) == part.ID && row.Meta(s.Metadata, row.ReplacedBy) == ""
	})
	if at < 0 {
		return Controlled{}, bad("which_part", "name another one with --part", "no agent has worked on %s", text.Visible(part.Label))
	}
	session := d.Sessions[at]
	if programs.Name(session.Framework) == programs.Shell {
		return Controlled{}, bad("comments_for_shell", "send it a command with tasks send", "a shell would run the comments as commands")
	}
	var b strings.Builder
	b.WriteString("This is a review of your work. Change what it asks for.\n")
	for _, one := range c.Lines {
		line, err := from.Line(ctx, part.ID, one.File, one.Line)
		if err != nil {
			return Controlled{}, err
		}
		fmt.Fprintf(&b, "\n%s:%d\n%s\n%s\n", one.File, one.Line, decide.Fence(text.ShortenRunes(line, maxQuoted)),
			text.ShortenRunes(strings.TrimSpace(one.Text), maxComment))
	}
	if c.Text != "" {
		b.WriteString("\n" + text.ShortenRunes(strings.TrimSpace(c.Text), maxComment) + "\n")
	}
	return l.Control(ctx, by, Control{ThreadID: c.ThreadID, Operation: Continue, Instruction: b.String(), Session: session.SessionID})
}
