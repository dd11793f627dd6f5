package verbs

// The functions here recognise what a user means by a text: several tasks, a repository, an
// operation, a time window, or an errand. They match words and use no model, so that the
// same text always has the same result. Explicit parameters take precedence, and for a text
// that is not recognised the caller asks or uses its default.

import (
	"regexp"
	"strings"
	"unicode"

	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/workspace/forge"
)

// maxUtterance is the number of bytes of a text that are searched for words.
const maxUtterance = 16 << 10

// listedTasks returns the tasks of a text that is a list: its numbered lines, otherwise its
// bullets. Indented lines belong to the entry above. The result is nil if there are fewer
// than two entries.
func listedTasks(text string) []string {
	var out []string
	for _, item := range forge.Items(text) {
		out = append(out, strings.TrimSpace(item.Title+"\n"+item.Body))
	}
	return out
}

// splitParts returns the tasks of a text of the form "a | b | c".
func splitParts(text string) []string {
	var out []string
	for part := range strings.SplitSeq(text, "|") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

// cutAgent splits "codex: fix it" into program and task. name is "" unless the text begins
// with a known program of fewer than 20 characters.
func cutAgent(part string) (name programs.Name, task string) {
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
	ofShell    = regexp.MustCompile("[|&;<>$`]|(?:^|\\s)--?[A-Za-z]|^[\\w./-]+=")
	ofProse    = regexp.MustCompile(`(?i)\b(?:an?|the|i|you|we|it|they|he|she|me|us|them|my|your|our|their|its|this|that|these|those)\b`)
	ofQuestion = regexp.MustCompile(`[\pL)"'][?!]`)
	ofSentence = regexp.MustCompile(`\pL{2,}[.!?]["')]*\s*$`)
)

// isProse reports whether a text is natural language and not a shell command: it has more
// than five words, an article or pronoun, a question or exclamation mark, or the end of a
// sentence. A text that also looks like a command line needs three of these signs.
func isProse(s string) bool {
	s = text.ClipBytes(s, maxUtterance)
	signs := 0
	if len(strings.Fields(s)) > 5 {
		signs++
	}
	for _, sign := range []*regexp.Regexp{ofProse, ofQuestion, ofSentence} {
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
	repoAddress   = regexp.MustCompile(`(?i)(?:\bhttps://|\bssh://(?:git@)?|\bgit@|\b)(?:www\.)?(?:github\.com|gitlab\.com|bitbucket\.org)[/:][A-Za-z0-9][\w.-]*(?:/[\w.-]+)+`)
	lastRepoWords = regexp.MustCompile(`(?i)\b(?:same|last|previous|that) (?:repo|repository|codebase|project)\b|\b(?:continue|carry on|keep going|pick up) (?:with|on|in|where|from|working)\b|^\s*continue\b`)
)

// mentionedRepo returns the first repository that a text names by an address at GitHub,
// GitLab or Bitbucket, or "" if it has none.
func mentionedRepo(s string) string {
	found := strings.TrimRight(repoAddress.FindString(text.ClipBytes(s, maxUtterance)), ".-_")
	if found == "" {
		return ""
	}
	// Users often copy the address of a page of the repository.
	for _, page := range []string{
		"/tree/", "/blob/", "/issues", "/pull", "/-/", "/commit", "/merge_requests", "/src/", "/wiki", "/actions",
		"/releases",
	} {
		if i := strings.Index(found, page); i > 0 {
			found = found[:i]
		}
	}
	if strings.Contains(found, "://") || strings.HasPrefix(found, "git@") {
		return found
	}
	return "https://" + found
}

// meansLastRepo reports whether a text refers to the repository of the last task.
func meansLastRepo(s string) bool { return lastRepoWords.MatchString(text.ClipBytes(s, maxUtterance)) }

var (
	// Both lists may be short, because errands are rare and a text on neither list counts as
	// work.
	errandWords = regexp.MustCompile(`(?i)\bremind me\b|\bset (?:an? )?(?:alarm|timer|reminder)|\bwake me\b|\bmy (?:calendar|schedule|dentist|doctor|landlord|mom|mother|dad|father|wife|husband|kids?|rent|bills?|taxes|birthday|prescription)\b|\b(?:dentist|doctor'?s?|haircut|vet) appointment|\bgrocer(?:y|ies)\b|\bshopping list\b|\bbuy (?:me )?(?:some )?(?:milk|bread|eggs|flowers|food|tickets?)\b|\bbook (?:me )?(?:an? |the )?(?:flight|table|hotel|restaurant|taxi|train)|\b(?:dinner|lunch|restaurant|hotel) reservation|\b(?:laundry|dry cleaning)\b|\bpick up (?:the|my) (?:kids?|parcel|package|car)\b|\bwater (?:the|my) plants\b|\bpay (?:the|my) (?:rent|bills?|phone)\b`)
	workWords   = regexp.MustCompile(`(?i)\b(?:code|coding|repo|repository|bugs?|debug|implement|refactor|functions?|scripts?|apis?|apps?|web ?sites?|tests?|deploy|commits?|branch|pull request|servers?|database|components?|endpoints?|build|program|library|cli|bot)\b`)
)

// isErrand reports whether a text is about the user's private life and not about work, so
// that no task agent should get it.
func isErrand(s string) bool {
	s = text.ClipBytes(s, maxUtterance)
	return errandWords.MatchString(s) && !workWords.MatchString(s)
}

// firstMention returns the value of the entry that is mentioned first, ignoring negated ones
// ("don't stop").
func firstMention[V any](s string, entries []mention[V]) (value V, ok bool) {
	s = negated.ReplaceAllString(text.ClipBytes(s, maxUtterance), " ")
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

// hasNoWords reports whether a text has no letter and no digit.
func hasNoWords(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) < 0
}
