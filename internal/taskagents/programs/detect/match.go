package detect

import (
	"regexp"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/internal/base/text"
)

// Verdict is the result of one rule for a screen.
type Verdict struct {
	Rule    *Rule
	Matched bool
	Text    string // the match, at most 200 runes
	Why     string // why it did not match
}

// Match applies all rules of the file to the screen, in the order of priorities. If version is
// "", rules for some versions only apply too.
func (v *View) Match(version string) []Verdict {
	out := make([]Verdict, 0, len(v.file.Rules))
	matched := map[string]bool{}
	for _, r := range v.file.Rules {
		d := v.ask(r, version)
		matched[r.ID] = d.Matched
		out = append(out, d)
	}
	for i := range out {
		if !out[i].Matched {
			continue
		}
		if by := slices.IndexFunc(out[i].Rule.skipWhen, func(id string) bool { return matched[id] }); by >= 0 {
			out[i].Matched, out[i].Why = false, "is skipped because "+out[i].Rule.skipWhen[by]+" matches"
		}
	}
	return out
}

// ask applies one rule to the screen.
func (v *View) ask(r *Rule, version string) Verdict {
	d := Verdict{Rule: r}
	if !covers(r.min, r.max, version) {
		d.Why = "is for other versions"
		return d
	}
	t := v.region(r.Region)
	if len(t.lines) == 0 {
		d.Why = "there is no " + r.Region.String()
		return d
	}
	for _, s := range r.not {
		if t.holds(s) {
			d.Why = "the region holds " + quote(s)
			return d
		}
	}
	for _, s := range r.all {
		if !t.holds(s) {
			d.Why = "the region does not hold " + quote(s)
			return d
		}
		d.Text = s
	}
	if len(r.any) > 0 {
		i := slices.IndexFunc(r.any, t.holds)
		if i < 0 {
			d.Why = "the region holds none of its texts"
			return d
		}
		d.Text = r.any[i]
	}
	if len(r.lines) > 0 {
		line, ok := firstMatch(t.lines, r.lines)
		if !ok {
			d.Why = "no line of the region matches"
			return d
		}
		d.Text = line
	}
	d.Matched, d.Text = true, text.CutRunes(d.Text, 200)
	return d
}

func firstMatch(lines []string, regexes []*regexp.Regexp) (string, bool) {
	for i := len(lines) - 1; i >= 0; i-- { // the lowest line is the latest
		for _, re := range regexes {
			if re.MatchString(lines[i]) {
				return strings.TrimSpace(lines[i]), true
			}
		}
	}
	return "", false
}

func quote(s string) string { return `"` + text.CutRunes(s, 60) + `"` }

// Question returns the prompt and options that a matching rule extracts, otherwise those of the
// open dialog. A URL that was wrapped at the terminal's width is joined.
func (v *View) Question(r *Rule) (question string, options []string, selected int, url string) {
	if v.Dialog != nil {
		question, options, selected = v.Dialog.Prompt, v.Dialog.Options, v.Dialog.Selected
	}
	if r == nil {
		return question, options, selected, ""
	}
	lines := v.region(r.Region).lines
	if found := groups(lines, r.prompt, 1); len(found) > 0 {
		question = found[0]
	}
	if found := groups(lines, r.options, maxOptions); len(found) > 0 {
		options, selected = found, -1
	}
	if r.url != nil {
		url = joinedURL(lines, r.url)
	}
	return question, options, selected, url
}

func groups(lines []string, re *regexp.Regexp, most int) (found []string) {
	if re == nil {
		return nil
	}
	for _, line := range lines {
		for _, m := range re.FindAllStringSubmatch(line, most) {
			if m[1] != "" && len(found) < most {
				found = append(found, text.CutRunes(m[1], maxPrompt))
			}
		}
	}
	return found
}

// joinedURL returns the URL that matches re. If it fills its row and the next row does not begin
// with a blank, the URL continues there.
func joinedURL(lines []string, re *regexp.Regexp) string {
	for i, line := range lines {
		m := re.FindStringSubmatchIndex(line)
		if m == nil {
			continue
		}
		url, end := line[m[2]:m[3]], m[3]
		for next := i + 1; next < len(lines) && end == len(lines[next-1]) && len(url) < 4000; next++ {
			word, _, more := strings.Cut(lines[next], " ")
			if word == "" || strings.HasPrefix(lines[next], " ") || len(lines[next-1]) < 60 {
				break
			}
			url, end = url+word, len(word)
			if more {
				break
			}
		}
		return url
	}
	return ""
}
