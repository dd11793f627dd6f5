package forge

import (
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/junctor-run/junctor/internal/base/text"
)

// Item is one entry of a list: its first line, and what follows beneath it.
type Item struct{ Title, Body string }

const (
	maxItems = 50
	maxTitle = 256 // characters; what forges take
)

var (
	numbered = regexp.MustCompile(`^( {0,3})\d{1,3}[.)][ \t]+(.*)$`)
	bulleted = regexp.MustCompile(`^( {0,3})[-*+•][ \t]+(?:\[[ xX]\][ \t]+)?(.*)$`)
)

// Items returns the entries of the list in a text: of a numbered one where there are
// at least two numbers, else of one with bullets; nil where there are not two. What
// is indented beneath an entry belongs to it, what comes before the first or after
// an empty line to none. At most 50 are returned.
func Items(text string) []Item {
	for _, form := range []*regexp.Regexp{numbered, bulleted} {
		if items := itemsOf(text, form); len(items) > 1 {
			return items
		}
	}
	return nil
}

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

// item keeps a long first line whole in the body.
func item(line string) Item {
	if utf8.RuneCountInString(line) <= maxTitle {
		return Item{Title: line}
	}
	return Item{Title: text.FitRunes(line, maxTitle), Body: line + "\n"}
}
