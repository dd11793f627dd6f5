// Package utterance reads what a person means out of what they said to the agent that
// hands it on: how many tasks there are, which repository, what is to be done with a
// task or an issue, which days are meant, and whether it is work for a task agent at
// all.
//
// It is words and lists, no model: the same text always means the same, and what is not
// understood is said to be nothing, so that the caller asks or takes its default. A
// parameter that somebody gave always goes before what is read here.
package utterance

import (
	"regexp"
	"strings"
	"unicode"

	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/workspace/forge"
)

// MaxRead is how many bytes of a text are looked at for words.
const MaxRead = 16 << 10

// Tasks are the tasks that a text is a list of: its numbered lines, else its bullets,
// two at least; nil where it is one task. What is indented beneath an entry belongs to it.
func Tasks(text string) []string {
	var out []string
	for _, item := range forge.Items(text) {
		out = append(out, strings.TrimSpace(item.Title+"\n"+item.Body))
	}
	return out
}

// Listed are the tasks of the form "a | b | c".
func Listed(text string) []string {
	var out []string
	for part := range strings.SplitSeq(text, "|") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

// Agent takes the program off the beginning of a part of a list: "codex: fix it". name is
// "" where none that is known stands there, in less than 20 characters.
func Agent(part string) (name programs.Name, task string) {
	before, after, ok := strings.Cut(part, ":")
	if !ok || len(before) >= 20 {
		return "", part
	}
	name, ok = programs.Normalise(before)
	if task = strings.TrimSpace(after); !ok || task == "" {
		return "", part
	}
	return name, task
}

var (
	ofShell = regexp.MustCompile("[|&;<>$`]|(?:^|\\s)--?[A-Za-z]|^[\\w./-]+=")
	ofProse = regexp.MustCompile(`(?i)\b(?:an?|the|i|you|we|it|they|he|she|me|us|them|my|your|our|their|its|this|that|these|those)\b`)
	asked   = regexp.MustCompile(`[\pL)"'][?!]`)
	ended   = regexp.MustCompile(`\pL{2,}[.!?]["')]*\s*$`)
)

// Prose says that a text is meant for somebody who understands it, and not for a shell:
// it has more than five words, an article or a pronoun, a question or exclamation mark,
// or the end of a sentence. What also looks like a command line needs three of them.
func Prose(s string) bool {
	s = text.ClipBytes(s, MaxRead)
	signs := 0
	if len(strings.Fields(s)) > 5 {
		signs++
	}
	for _, sign := range []*regexp.Regexp{ofProse, asked, ended} {
		if sign.MatchString(s) {
			signs++
		}
	}
	if ofShell.MatchString(s) {
		return signs > 2
	}
	return signs > 0
}

var (
	repository = regexp.MustCompile(`(?i)(?:\bhttps://|\bssh://(?:git@)?|\bgit@|\b)(?:www\.)?(?:github\.com|gitlab\.com|bitbucket\.org)[/:][A-Za-z0-9][\w.-]*(?:/[\w.-]+)+`)
	same       = regexp.MustCompile(`(?i)\b(?:same|last|previous|that) (?:repo|repository|codebase|project)\b|\b(?:continue|carry on|keep going|pick up) (?:with|on|in|where|from|working)\b|^\s*continue\b`)
)

// Repo is the repository that a text names by an address of one of the three forges, as
// it stands there; "" where there is none. Of several it is the first.
func Repo(s string) string {
	found := strings.TrimRight(repository.FindString(text.ClipBytes(s, MaxRead)), ".-_")
	if found == "" {
		return ""
	}
	// What people copy is often a page of the repository.
	for _, page := range []string{"/tree/", "/blob/", "/issues", "/pull", "/-/", "/commit", "/merge_requests", "/src/", "/wiki", "/actions", "/releases"} {
		if i := strings.Index(found, page); i > 0 {
			found = found[:i]
		}
	}
	if strings.Contains(found, "://") || strings.HasPrefix(found, "git@") {
		return found
	}
	return "https://" + found
}

// SameRepo says that a text means the repository that was worked in last.
func SameRepo(s string) bool { return same.MatchString(text.ClipBytes(s, MaxRead)) }

var (
	// Nobody gives an errand to a coding agent, so either list may be short: what is
	// on neither is work.
	errands = regexp.MustCompile(`(?i)\bremind me\b|\bset (?:an? )?(?:alarm|timer|reminder)|\bwake me\b|\bmy (?:calendar|schedule|dentist|doctor|landlord|mom|mother|dad|father|wife|husband|kids?|rent|bills?|taxes|birthday|prescription)\b|\b(?:dentist|doctor'?s?|haircut|vet) appointment|\bgrocer(?:y|ies)\b|\bshopping list\b|\bbuy (?:me )?(?:some )?(?:milk|bread|eggs|flowers|food|tickets?)\b|\bbook (?:me )?(?:an? |the )?(?:flight|table|hotel|restaurant|taxi|train)|\b(?:dinner|lunch|restaurant|hotel) reservation|\b(?:laundry|dry cleaning)\b|\bpick up (?:the|my) (?:kids?|parcel|package|car)\b|\bwater (?:the|my) plants\b|\bpay (?:the|my) (?:rent|bills?|phone)\b`)
	work    = regexp.MustCompile(`(?i)\b(?:code|coding|repo|repository|bugs?|debug|implement|refactor|functions?|scripts?|apis?|apps?|web ?sites?|tests?|deploy|commits?|branch|pull request|servers?|database|components?|endpoints?|build|program|library|cli|bot)\b`)
)

// Errand says that a text is about the person's own life and not about work: the agent
// that was told answers it itself.
func Errand(s string) bool {
	s = text.ClipBytes(s, MaxRead)
	return errands.MatchString(s) && !work.MatchString(s)
}

// first returns the value of the entry that is mentioned first; entries that are forbidden
// ("don't stop") do not count.
func first[V any](s string, entries []mention[V]) (value V, ok bool) {
	s = negated.ReplaceAllString(text.ClipBytes(s, MaxRead), " ")
	at := len(s)
	for _, e := range entries {
		if loc := e.words.FindStringIndex(s); loc != nil && loc[0] < at {
			value, ok, at = e.means, true, loc[0]
		}
	}
	return value, ok
}

type mention[V any] struct {
	means V
	words *regexp.Regexp
}

func meaning[V any](means V, words string) mention[V] {
	return mention[V]{means, regexp.MustCompile(`(?i)\b(?:` + words + `)\b`)}
}

var negated = regexp.MustCompile(`(?i)\b(?:do ?n['’]?t|do not|never|not) (?:you )?[\pL]+`)

// blank says that there is nothing to read.
func blank(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) < 0
}
