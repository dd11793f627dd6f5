package operator

import (
	"regexp"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/internal/extensions/declaration"
)

// Dock is what a channel tells of itself as data. Its methods work while the
// adapter is not loaded, or does not exist.
type Dock struct{ *declaration.Dock }

// Dock finds the hints of an adapter by its id, case aside.
func (c *StaticCatalogs) Dock(adapter string) (Dock, bool) {
	d, ok := c.docks[strings.ToLower(strings.TrimSpace(adapter))]
	return Dock{d}, ok
}

// PromptHints are the sentences a planner is given about messages of this
// channel.
func (d Dock) PromptHints() []string {
	return slices.Clone(d.AgentPrompt.MessageToolHints)
}

// AllowFrom formats the entries of an allow-list as the adapter compares them:
// trimmed, without the channel's prefixes, in lower case where it says so. "*"
// stays; what is empty afterwards or said twice is dropped.
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

// maxPattern bounds one pattern of a dock; they are matched in linear time.
const maxPattern = 512

// StripMentions takes the channel's spelling of mentions out of a text. A pattern
// that is invalid is skipped.
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
