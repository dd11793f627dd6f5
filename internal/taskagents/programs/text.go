package programs

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/junctor-run/junctor/internal/platform/overlay"
	"github.com/junctor-run/junctor/internal/taskagents/skills"
)

// tasksFolder is where long tasks and skills are, in the workspace: a program's sandbox may
// let it read nothing else.
const tasksFolder = ".task-agents"

// memory is the text of the memory file: the manual, what only this program must know,
// and the caller's own text.
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
	if own := strings.TrimSpace(b.Memory); own != "" {
		text += "\n---\n\n" + own + "\n"
	}
	return text
}

func (b *build) skillsFile() string { return "SKILLS-" + b.Session + ".md" }

// skills puts the manifest where the program finds it: beside long tasks, since others
// may work in the same folder, and the folder may have a file of any other name.
func (b *build) skills() {
	if b.Skills == "" || b.Framework == Shell {
		return
	}
	b.env[skills.ManifestEnv] = b.beside(b.skillsFile(), b.Skills)
}

// beside writes a file into the folder of ours in the workspace, which git ignores.
func (b *build) beside(name, text string) (path string) {
	path = b.Workdir + "/" + tasksFolder + "/" + name
	b.plan.Changes = append(b.plan.Changes, overlay.Change{Kind: overlay.Private, Root: b.Workdir, Path: path, Text: text})
	if line := tasksFolder + "/\n"; !strings.Contains(b.ignored, line) {
		b.ignored += line
	}
	return path
}

// firstTask is the task as the program is told it: with the line that names the
// workspace, nothing in it that the program takes for a command of its own, and short
// enough; a longer one is in a file.
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

// escape keeps a text from being taken for a command: of the program's input box, or of
// its command line.
func escape(text string) string {
	if strings.ContainsRune("/!#@-", rune(text[0])) {
		return " " + text
	}
	return text
}
