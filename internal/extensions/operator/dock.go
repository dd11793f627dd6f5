package operator

import (
	"regexp"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/internal/extensions/declaration"
)

// Dock is static data about a channel. Its methods work without the adapter.
type Dock struct{ *declaration.Dock }

// Dock returns the static data of an adapter by its id, ignoring case.
func (c *StaticCatalogs) Dock(adapter string) (Dock, bool) {
	d, ok := c.docks[strings.ToLower(strings.TrimSpace(adapter))]
	return Dock{d}, ok
}

// PromptHints returns the sentences about messages of this channel for a planner's prompt.
func (d Dock) PromptHints() []string {
	return slices.Clone(d.AgentPrompt.MessageToolHints)
}

// AllowFrom normalises the entries of an allow-list as the adapter compares them:
// trimmed, without the channel's prefixes, in lower case if the dock requests it. "*" is
// unchanged; empty entries and duplicates are dropped.
func (d Dock) AllowFrom(entries []string) []string {
	out := make([]string, 0, len(entries))
	for _, e := range entries {
		e = strings.TrimSpace(e)
		for again := true; again && e != "*"; {
			again = false
			for _, p := range d.Dock.AllowFrom.StripPrefixes {
				if p != "" && len(e) >= len(p) && strings.EqualFold(e[:len(p)], p) {
					e, again = strings.TrimSpace(e[len(p):]), true
				}
			}
		}
		if d.Dock.AllowFrom.LowerCase {
			e = strings.ToLower(e)
		}
		if e != "" && !slices.Contains(out, e) {
			out = append(out, e)
		}
	}
	return out
}

// maxPattern is the longest pattern of a dock in bytes. Matching takes linear time.
const maxPattern = 512

// StripMentions removes the channel's mentions from a text. An invalid pattern is skipped.
func (d Dock) StripMentions(text string) string {
	for _, p := range d.Mentions.StripPatterns {
		if len(p) > maxPattern {
			continue
		}
		if re, err := regexp.Compile(p); err == nil {
			text = re.ReplaceAllString(text, "")
		}
	}
	return strings.TrimSpace(text)
}
