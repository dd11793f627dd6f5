// Package skills lets task agents use this server's skills. A manifest file lists them for the
// agent's program, recommended ones first. An agent requests a skill by a line at the end of
// its turn, and the result is typed to it. A [Source] provides the skills; an agent may use
// only those that its session was granted.
package skills

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/taskagents/directive"
)

// ManifestEnv is the environment variable with the path of the manifest.
const ManifestEnv = "ELIZA_SKILLS_MANIFEST"

// Skill is one enabled skill.
type Skill struct {
	Slug        string `json:"slug"` // lower-case letters, digits, hyphens between them
	Name        string `json:"name"`
	Description string `json:"description"`
}

// Source provides the skills. The agent sees its errors.
type Source interface {
	// List returns the enabled skills that the principal may use.
	List(ctx context.Context, by capability.Principal) ([]Skill, error)
	// Use runs a skill with the rights of by and returns the text of its result. input is a
	// JSON object or list, or nil if the agent wrote words.
	Use(ctx context.Context, by capability.Principal, slug string, input json.RawMessage, words string) (text string, err error)
}

// ValidSlug reports whether a directive can contain s as the name of a skill: lower-case
// letters and digits, with single hyphens between them.
func ValidSlug(s string) bool {
	if s == "" || len(s) > maxSlug || strings.HasPrefix(s, "-") || strings.HasSuffix(s, "-") || strings.Contains(s, "--") {
		return false
	}
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// Manifest returns the text of the manifest: instructions, the recommended skills, then the
// others in the order of their slugs, at most MaxListed in all. Skills with an invalid slug are
// left out. The result is "" if no skill is left.
func Manifest(recommended, all []Skill) string {
	usable := func(list []Skill) []Skill {
		return slices.DeleteFunc(slices.Clone(list), func(s Skill) bool { return !ValidSlug(s.Slug) })
	}
	recommended, rest := usable(recommended), usable(all)
	rest = slices.DeleteFunc(rest, func(s Skill) bool {
		return slices.ContainsFunc(recommended, func(r Skill) bool { return r.Slug == s.Slug })
	})
	slices.SortStableFunc(rest, func(a, b Skill) int { return strings.Compare(a.Slug, b.Slug) })
	rest = slices.CompactFunc(rest, func(a, b Skill) bool { return a.Slug == b.Slug })
	if len(recommended)+len(rest) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, `# Skills

What another program can do for you. To have a skill used, end an answer with one line of its own:

    USE_SKILL <slug> {"some": "input"}

The input is a JSON object or list, or plain words. The result is typed to you as your next message. The first such line of
an answer counts; a task has %d of them.
`, directive.MaxSkillCalls)
	left := MaxListed
	section := func(title string, list []Skill) {
		if len(list) == 0 {
			return
		}
		fmt.Fprintf(&b, "\n## %s\n\n", title)
		for i, s := range list {
			if left == 0 {
				fmt.Fprintf(&b, "- and %d more, which are not listed\n", len(list)-i)
				return
			}
			left--
			name := ""
			if s.Name = text.Line(s.Name, maxName); s.Name != "" && s.Name != s.Slug {
				name = " (" + s.Name + ")"
			}
			fmt.Fprintf(&b, "- `%s`%s: %s\n", s.Slug, name, text.Line(s.Description, MaxDescription))
		}
	}
	section("Recommended for your task", recommended)
	if len(recommended) > 0 {
		section("All others", rest)
	} else {
		section("All", rest)
	}
	return b.String()
}

// Situation holds the facts that an agent's manual depends on.
type Situation struct {
	Workdir  string
	Repo     bool   // the working directory is a repository
	Bridge   string // URL of the API for parent context, without trailing slash
	Self     string // path of the command that calls that API
	Server   bool   // the program is configured with the MCP server junctor
	Manifest string // name of the manifest file; "" if the agent has no skills
}

// Essentials returns the manual of every agent, which is written into the program's memory
// file.
func Essentials(s Situation) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, "- "+format+"\n", args...) }
	b.WriteString("# How you work here\n\n")
	line("You work for another agent and nobody is watching: do not wait for a person. Where something is not said, choose what is most sensible and say that you did.")
	tools := "your own"
	if s.Server {
		tools += ", those of the MCP server `junctor`"
	}
	if s.Manifest != "" {
		tools += ", the skills in " + s.Manifest
	}
	line("Before you say that something cannot be done, look which tools you have: %s.", tools)
	if s.Manifest != "" {
		line("To have a skill used, end an answer with a line of its own: USE_SKILL <slug> <JSON object, or words>. The result is your next message.")
	}
	line("When you decide something that others have to know, write a line of its own: DECISION: <what and why>")
	line("If you cannot go on, write DECISION: cannot continue because <reason>, and stop.")
	line("What your parent knows can be read, and nothing written: `%s child parent context` says who asked and for what, `memory WORDS` what was said about something, `peers` who works beside you; so do GET %s/parent-context, /memory?q=WORDS&limit=10 and /active-workspaces, with the variable ELIZA_HOOK_TOKEN as the header X-Parallax-Hook-Token.", s.Self, s.Bridge)
	line("Stay in %s: read and write nothing outside of it.", s.Workdir)
	if s.Repo {
		line("Commit if you like; do not push and open no pull request: that is done for you.")
	} else {
		line("Do not push anything anywhere.")
	}
	line("When you are done, end with a short message of facts: what there is now, where, how you checked it, what is left. No offers and no questions.")
	return b.String()
}
