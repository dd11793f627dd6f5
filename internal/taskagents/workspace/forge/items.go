package forge

import (
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/junctor-run/junctor/internal/base/text"
)

// Item is one entry of a list: its first line, and the lines beneath it.
type Item struct{ Title, Body string }

var (
	numbered = regexp.MustCompile(`^( {0,3})\d{1,3}[.)][ \t]+(.*)$`)
	bulleted = regexp.MustCompile(`^( {0,3})[-*+•][ \t]+(?:\[[ xX]\][ \t]+)?(.*)$`)
)

// Items returns the entries of the list in a text: of a numbered list with at least two
// entries, otherwise of a list with bullets; nil if that has fewer than two. Indented lines
// beneath an entry belong to it; text before the first entry or after an empty line belongs to
// none. At most 50 are returned.
func Items(text string) []Item {
	for _, form := range []*regexp.Regexp{numbered, bulleted} {
		if items := itemsOf(text, form); len(items) > 1 {
			return items
		}
	}
	return nil
}

// itemsOf returns the entries whose first line matches form. Code fences are kept whole.
func itemsOf(text string, form *regexp.Regexp) []Item {
	var items []Item
	indent, open, fenced := -1, false, false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n \t")
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		m := form.FindStringSubmatch(line)
		switch {
		case m != nil && !fenced && strings.TrimSpace(m[2]) != "" && (indent < 0 || len(m[1]) <= indent):
			if len(items) == maxItems {
				return items
			}
			indent, open = len(m[1]), true
			items = append(items, item(strings.TrimSpace(m[2])))
			continue
		case !open:
		case line == "" || strings.TrimLeft(line, " \t") != line || fence || fenced:
			items[len(items)-1].Body += line + "\n"
		default: // the list is over until its next entry
			last := &items[len(items)-1]
			if open = !strings.HasSuffix(last.Body, "\n\n") && last.Body != "\n"; open {
				last.Body += line + "\n"
			}
		}
		if fence {
			fenced = !fenced
		}
	}
	for i := range items {
		items[i].Body = strings.Trim(items[i].Body, "\n")
	}
	return items
}

// item returns an entry. If the line is too long for a title, the body has all of it.
func item(line string) Item {
	if utf8.RuneCountInString(line) <= maxTitle {
		return Item{Title: line}
	}
	return Item{Title: text.FitRunes(line, maxTitle), Body: line + "\n"}
}
