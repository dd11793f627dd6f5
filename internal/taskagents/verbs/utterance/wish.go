package utterance

import (
	"regexp"
	"strconv"
	"time"

	"github.com/junctor-run/junctor/internal/base/text"
)

var operations = []mention[string]{
	meaning("pause", `pause|hold (?:it|that|on|off)|on hold|suspend`),
	meaning("stop", `stop|cancel|kill|abort|halt|terminate|give up`),
	meaning("resume", `resume|unpause|restart|start (?:it |that )?again|pick (?:it |that )?up`),
	meaning("continue", `continue|carry on|keep going|go on|proceed`),
	meaning("reopen", `re-?open|unarchive`),
	meaning("archive", `archive|put (?:it |that )?away`),
}

// Operation is what a text wants done with a task: the operation that it mentions
// first, of those that it does not forbid.
func Operation(text string) (string, bool) { return first(text, operations) }

var issueOperations = []mention[string]{
	meaning("create", `create|file|report|raise|submit|new issues?|(?:open|add|write|make) (?:an?|new|some|these|the following) (?:new )?(?:issues?|tickets?|bugs?)`),
	meaning("comment", `comment|reply|respond`),
	meaning("close", `close|resolve`),
	meaning("reopen", `re-?open`),
	meaning("add_labels", `(?:add|put|set) (?:the |an? )?(?:[\w-]+ )?labels?|label|tag`),
	meaning("update", `update|edit|change|rename|retitle`),
	meaning("list", `list|show (?:me )?(?:all|the|open|closed|my)|which|what`),
	meaning("get", `get|read|show|look at|details? of`),
}

// IssueOperation is what a text wants done with issues; "list" where it says nothing.
func IssueOperation(text string) string {
	op, ok := first(text, issueOperations)
	_, numbered := IssueNumber(text)
	switch {
	case !ok && numbered, op == "list" && numbered:
		return "get"
	case !ok:
		return "list"
	}
	return op
}

var numbers = regexp.MustCompile(`(?i)#(\d{1,9})\b|\b(?:issue|ticket|bug)(?: number| no\.?)? (\d{1,9})\b`)

// IssueNumber is the issue that a text names as #12 or issue 12.
func IssueNumber(s string) (int, bool) {
	m := numbers.FindStringSubmatch(text.ClipBytes(s, MaxRead))
	if m == nil {
		return 0, false
	}
	n, err := strconv.Atoi(m[1] + m[2])
	return n, err == nil && n > 0
}

// Window is a part of the past that people ask about.
type Window string

// The windows.
const (
	Active    Window = "active"
	Today     Window = "today"
	Yesterday Window = "yesterday"
	Last7     Window = "last_7_days"
	Last30    Window = "last_30_days"
)

// Span is when a window begins and ends, both inclusive, for somebody whose clock now is;
// its zone is theirs. A zero end is now, two zero times are always. ok is false for what is
// no window.
func (w Window) Span(now time.Time) (from, to time.Time, ok bool) {
	day := func(back int) time.Time {
		y, m, d := now.Date()
		return time.Date(y, m, d-back, 0, 0, 0, 0, now.Location())
	}
	switch w {
	case "", Active:
		return from, to, true
	case Today:
		return day(0), to, true
	case Yesterday:
		return day(1), day(0).Add(-time.Millisecond), true
	case Last7:
		return now.AddDate(0, 0, -7), to, true
	case Last30:
		return now.AddDate(0, 0, -30), to, true
	}
	return from, to, false
}

var windows = []mention[Window]{
	meaning(Yesterday, `yesterday`),
	meaning(Today, `today|this morning|tonight`),
	meaning(Last7, `(?:last|past|this) week|(?:last|past) (?:7|seven) days`),
	meaning(Last30, `(?:last|past|this) month|(?:last|past) (?:30|thirty) days`),
	meaning(Active, `active|running|in progress|right now|currently|at the moment`),
}

// Asked is what a text asks about the past: which window and, with "how many", that a
// number is wanted.
func Asked(s string) (w Window, count bool) {
	if blank(s) {
		return "", false
	}
	w, _ = first(s, windows)
	return w, howMany.MatchString(text.ClipBytes(s, MaxRead))
}

var howMany = regexp.MustCompile(`(?i)\bhow many\b|\bcount\b|\bnumber of\b`)
