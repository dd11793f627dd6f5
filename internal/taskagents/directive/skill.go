package directive

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
)

// SkillCall is an agent's request for a skill.
type SkillCall struct {
	Slug string
	// Input is the JSON object or array after the slug. Other text after it is in Words.
	Input json.RawMessage
	Words string
}

var skillLine = regexp.MustCompile(`^USE_SKILL[ \t]+([a-z0-9]+(?:-[a-z0-9]+)*)(?:[ \t]+(.*))?$`)

// ReadSkill returns the first skill call of a turn; ok is false if none exists. It does not
// check whether the skill exists or may be used.
func ReadSkill(t Text) (c SkillCall, ok bool) {
	all := t.lines()
	for i, ln := range all {
		m := skillLine.FindStringSubmatch(ln.body)
		if ln.hidden || m == nil || len(m[1]) > 64 {
			continue
		}
		rest := t.directiveText(all, i, m[2])
		if len(rest) > maxSkillInput {
			continue
		}
		c = SkillCall{Slug: m[1], Words: normal(rest)}
		if strings.HasPrefix(rest, "{") || strings.HasPrefix(rest, "[") {
			if jsonx.Valid([]byte(rest)) {
				c.Input, c.Words = json.RawMessage(rest), ""
			}
		}
		return c, true
	}
	return SkillCall{}, false
}

// directiveText returns the text after a one-line directive. On a screen it may be wrapped to
// several lines.
func (t Text) directiveText(all []line, at int, text string) string {
	if t.Columns > 0 {
		text = t.joined(all, at, text)
	}
	return strings.TrimSpace(text)
}

// SkillResult returns the message with a skill's result for the agent.
func SkillResult(slug string, ok bool, s string) string {
	word := "ok"
	if !ok {
		word = "error"
	}
	s = strings.TrimSpace(strings.ToValidUTF8(s, "\uFFFD"))
	if short := text.CutRunes(s, MaxSkillResult); short != s {
		s = short[:len(text.CutRunes(short, MaxSkillResult-1))] + "…"
	}
	return fmt.Sprintf("[skill %s: %s]\n%s\n[end of skill %s]", slug, word, s, slug)
}
