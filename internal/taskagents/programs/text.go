package programs

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/junctor-run/junctor/internal/platform/overlay"
	"github.com/junctor-run/junctor/internal/taskagents/skills"
)

// tasksFolder is the folder of long tasks and skills. It is in the workspace, because a
// program's sandbox may not allow other folders.
const tasksFolder = ".task-agents"

// memory returns the text of the memory file: the manual, the program's Advice, and the text of
// the caller.
func (b *build) memory() string {
	situation := skills.Situation{
		Workdir: b.Workdir, Repo: b.Repo, Bridge: b.Server + "/api/coding-agents/" + b.Session, Self: quote(b.Self),
		Server: !b.program.NoServer,
	}
	if b.Skills != "" {
		situation.Manifest = tasksFolder + "/" + b.skillsFile()
	}
	text := skills.Essentials(situation)
	text += b.program.Advice
	if b.distrusts() && (b.Framework == Claude || b.Framework == OpenCode) {
		text += fmt.Sprintf("- %s does not load %s of the repository by itself: read it, if there is one.\n", b.program.Title,
			b.program.Files[0].RelativePath)
	}
	if own := strings.TrimSpace(b.Memory); own != "" {
		text += "\n---\n\n" + own + "\n"
	}
	return text
}

func (b *build) skillsFile() string { return "SKILLS-" + b.Session + ".md" }

// skills adds the manifest of skills to the plan and sets its variable. The file's name contains
// the session's id, because several sessions may work in the folder.
func (b *build) skills() {
	if b.Skills == "" || b.Framework == Shell {
		return
	}
	b.env[skills.ManifestEnv] = b.beside(b.skillsFile(), b.Skills)
}

// beside adds a file in tasksFolder, which git ignores, to the plan and returns its path.
func (b *build) beside(name, text string) (path string) {
	path = b.Workdir + "/" + tasksFolder + "/" + name
	b.plan.Changes = append(b.plan.Changes, overlay.Change{Kind: overlay.Private, Root: b.Workdir, Path: path, Text: text})
	if line := tasksFolder + "/\n"; !strings.Contains(b.ignored, line) {
		b.ignored += line
	}
	return path
}

// firstTask returns the task as the program receives it: with a line that names the workspace,
// and escaped so that the program does not interpret it as a command. A task longer than most
// is written to a file, and the result refers to it. A shell gets the task unchanged.
func (b *build) firstTask(most int, inBytes bool) string {
	text := b.Task
	if strings.TrimSpace(text) == "" {
		return ""
	}
	if b.Framework == Shell {
		return text
	}
	if b.Memory == "" {
		text = "Work in " + b.Workdir + " and nowhere else.\n" + text
	}
	if inBytes && len(text) <= most || !inBytes && utf8.RuneCountInString(text) <= most {
		return escape(text)
	}
	name := "TASK-" + b.Session + ".md"
	b.beside(name, text)
	return fmt.Sprintf("Read the file %s/%s: it is your task. Do what it says.", tasksFolder, name)
}

// escape adds a blank before a text whose first character would mark a command or a flag.
func escape(text string) string {
	if strings.ContainsRune("/!#@-", rune(text[0])) {
		return " " + text
	}
	return text
}
