package verbs

import (
	"regexp"
	"strconv"
	"time"

	"github.com/junctor-run/junctor/internal/base/text"
)

var taskOperations = []mention[string]{
	meaning("pause", `pause|hold (?:it|that|on|off)|on hold|suspend`),
	meaning("stop", `stop|cancel|kill|abort|halt|terminate|give up`),
	meaning("resume", `resume|unpause|restart|start (?:it |that )?again|pick (?:it |that )?up`),
	meaning("continue", `continue|carry on|keep going|go on|proceed`),
	meaning("reopen", `re-?open|unarchive`),
	meaning("archive", `archive|put (?:it |that )?away`),
}

// taskOperation is what a text wants done with a task: the operation that it mentions
// firstMention, of those that it does not forbid.
func taskOperation(text string) (string, bool) { return firstMention(text, taskOperations) }

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

// issueOperation is what a text wants done with issues; "list" where it says nothing.
func issueOperation(text string) string {
	op, ok := firstMention(text, issueOperations)
	_, numbered := issueNumber(text)
	switch {
	case !ok && numbered, op == "list" && numbered:
		return "get"
	case !ok:
		return "list"
	}
	return op
}

var issueNumbers = regexp.MustCompile(`(?i)#(\d{1,9})\b|\b(?:issue|ticket|bug)(?: number| no\.?)? (\d{1,9})\b`)

// issueNumber is the issue that a text names as #12 or issue 12.
func issueNumber(s string) (int, bool) {
	m := issueNumbers.FindStringSubmatch(text.ClipBytes(s, maxUtterance))
	if m == nil {
		return 0, false
	}
	n, err := strconv.Atoi(m[1] + m[2])
	return n, err == nil && n > 0
}

// timeWindow is a part of the past that people ask about.
type timeWindow string

// The windows.
const (
	windowActive    timeWindow = "active"
	windowToday     timeWindow = "today"
	windowYesterday timeWindow = "yesterday"
	windowLast7     timeWindow = "last_7_days"
	windowLast30    timeWindow = "last_30_days"
)

// Span is when a window begins and ends, both inclusive, for somebody whose clock now is;
// its zone is theirs. A zero end is now, two zero times are always. ok is false for what is
// no window.
func (w timeWindow) span(now time.Time) (from, to time.Time, ok bool) {
	day := func(back int) time.Time {
		y, m, d := now.Date()
		return time.Date(y, m, d-back, 0, 0, 0, 0, now.Location())
	}
	switch w {
	case "", windowActive:
		return from, to, true
	case windowToday:
		return day(0), to, true
	case windowYesterday:
		return day(1), day(0).Add(-time.Millisecond), true
	case windowLast7:
		return now.AddDate(0, 0, -7), to, true
	case windowLast30:
		return now.AddDate(0, 0, -30), to, true
	}
	return from, to, false
}

var timeWindows = []mention[timeWindow]{
	meaning(windowYesterday, `yesterday`),
	meaning(windowToday, `today|this morning|tonight`),
	meaning(windowLast7, `(?:last|past|this) week|(?:last|past) (?:7|seven) days`),
	meaning(windowLast30, `(?:last|past|this) month|(?:last|past) (?:30|thirty) days`),
	meaning(windowActive, `active|running|in progress|right now|currently|at the moment`),
}

// askedWindow is what a text asks about the past: which window and, with "how many", that a
// number is wanted.
func askedWindow(s string) (w timeWindow, count bool) {
	if hasNoWords(s) {
		return "", false
	}
	w, _ = firstMention(s, timeWindows)
	return w, howMany.MatchString(text.ClipBytes(s, maxUtterance))
}

var howMany = regexp.MustCompile(`(?i)\bhow many\b|\bcount\b|\bnumber of\b`)
