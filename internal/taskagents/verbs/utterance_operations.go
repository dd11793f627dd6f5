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

// taskOperation returns the operation on a task that a text mentions first, ignoring negated
// ones.
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

// issueOperation returns the operation on issues that a text mentions; "list" if none.
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

// issueNumber returns the number of an issue named as #12 or issue 12.
func issueNumber(s string) (int, bool) {
	m := issueNumbers.FindStringSubmatch(text.ClipBytes(s, maxUtterance))
	if m == nil {
		return 0, false
	}
	n, err := strconv.Atoi(m[1] + m[2])
	return n, err == nil && n > 0
}

// timeWindow is a period of the past that a text asks about.
type timeWindow string

// Values of timeWindow.
const (
	windowActive    timeWindow = "active"
	windowToday     timeWindow = "today"
	windowYesterday timeWindow = "yesterday"
	windowLast7     timeWindow = "last_7_days"
	windowLast30    timeWindow = "last_30_days"
)

// span returns the inclusive begin and end of the window in the time zone of now. A zero end
// means now, and two zero times mean no limit. ok is false if the window is unknown.
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

// askedWindow returns the window that a text asks about and whether it asks for a count.
func askedWindow(s string) (w timeWindow, count bool) {
	if hasNoWords(s) {
		return "", false
	}
	w, _ = firstMention(s, timeWindows)
	return w, howMany.MatchString(text.ClipBytes(s, maxUtterance))
}

var howMany = regexp.MustCompile(`(?i)\bhow many\b|\bcount\b|\bnumber of\b`)
