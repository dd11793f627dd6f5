package adapter

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/junctor-run/junctor/internal/framework"
	"github.com/junctor-run/junctor/internal/task/overlay"
)

// tasksFolder is where long tasks are, in the workspace: a program's sandbox may let it
// read nothing else.
const tasksFolder = ".task-agents"

// memory is the text of the memory file (task-agents, section 5.5).
func (b *build) memory() string {
	parts := []string{
		"# Where you are\n\n" +
			"You work in " + b.Workdir + ". Stay inside this directory: read and write nothing outside of it, and do not push.\n" +
			"Nobody is reading along. Do not wait for an answer to a question; decide, and say what you decided on a line of its own:\n\n" +
			"    DECISION: what you decided, and why\n\n" +
			"When you are stuck, write `DECISION: cannot continue, because` and the reason, and stop. End with a short message of facts.",
		b.findTools(),
		"# Who gave you this task\n\n" +
			"What your parent knows can be read, and nothing written, with the variable ELIZA_HOOK_TOKEN as the header X-Parallax-Hook-Token:\n\n" +
			"- " + b.bridge("parent-context") + ": who asked, for what, in which room\n" +
			"- " + b.bridge("memory?q=words&limit=10") + ": what was said about something\n" +
			"- " + b.bridge("active-workspaces") + ": who else is at work\n\n" +
			"The command " + quote(b.Self) + " child parent context|memory|peers says the same.",
	}
	if text := strings.TrimSpace(b.Memory); text != "" {
		parts = append(parts, text)
	}
	return strings.Join(parts, "\n\n---\n\n") + "\n"
}

func (b *build) bridge(what string) string {
	return b.Server + "/api/coding-agents/" + b.Session + "/" + what
}

// findTools says how the program's model finds what it can use.
func (b *build) findTools() string {
	const head = "# What you can use\n\n"
	switch b.Framework {
	case framework.Aider:
		return head + "You change files that are in the chat; ask for those that you need by their names."
	case framework.Pi:
		return head + "Look at your own tools before you say that something cannot be done."
	}
	return head + "Look at your own tools, and at those of the MCP server `junctor`, before you say that something cannot be done."
}

// firstTask is the task as the program is told it: with the line that names the
// workspace, nothing in it that the program takes for a command of its own, and short
// enough; a longer one is in a file (task-agents, section 5.4).
func (b *build) firstTask(most int, inBytes bool) string {
	text := b.Task
	if strings.TrimSpace(text) == "" {
		return ""
	}
	if b.Framework == framework.Shell {
		return text
	}
	if b.Memory == "" {
		text = "Work in " + b.Workdir + " and nowhere else.\n" + text
	}
	if inBytes && len(text) <= most || !inBytes && utf8.RuneCountInString(text) <= most {
		return escape(text)
	}
	name := "TASK-" + b.Session + ".md"
	b.plan.Changes = append(b.plan.Changes, overlay.Change{Kind: overlay.Private, Root: b.Workdir, Path: b.Workdir + "/" + tasksFolder + "/" + name, Text: text})
	b.ignored += tasksFolder + "/\n"
	return fmt.Sprintf("Read the file %s/%s: it is your task. Do what it says.", tasksFolder, name)
}

// escape keeps a text from being taken for a command: of the program's input box, or of
// its command line.
func escape(text string) string {
	if strings.ContainsRune("/!#@-", rune(text[0])) {
		return " " + text
	}
	return text
}
