package choice

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/junctor-run/junctor/internal/base/text"
)

var usedUp = regexp.MustCompile(`(?i)insufficient[ _-](credits?|quota|funds|balance)|out of (credits?|quota)|credit balance|(usage|session|weekly|5-hour|rate) limit (was |has been )?(reached|hit|exceeded)|(hit|reached|exceeded) (your|the) ([a-z0-9-]+ )?(usage|session|weekly|rate)? ?limit|(quota|usage) (was |has been )?(exceeded|exhausted)|exceeded (your|the) (current )?quota|payment required|\b(status|http|error|code)[ :=]*402\b`)

// Exhausted reports whether a failure means that an account is used up, and returns the cooldown:
// until the time that the program names, otherwise DefaultCooldownTTL. kind is the failure's
// name, such as billing, or "". s is the program's output. Clock times in it are in the time zone
// of now.
func Exhausted(kind, s string, now time.Time) (CoolDown, bool) {
	s = s[:min(len(s), maxFailure)]
	said := usedUp.FindString(s)
	reason := text.Fold(said)
	switch kind {
	case "billing", "billing_error", "rate_limit": // names of states and of programs
		reason = kind
	}
	if reason == "" {
		return CoolDown{}, false
	}
	until, named := resets(s, now)
	if !named || !until.After(now) || until.After(now.Add(maxCooldownTTL)) {
		until = now.Add(DefaultCooldownTTL)
	}
	return CoolDown{Until: until, Reason: reason}, true
}

var (
	atSecond  = regexp.MustCompile(`(?i)limit reached\|(\d{10})\b`)
	atInstant = regexp.MustCompile(`(?i)\b(?:resets?|again|available)\b[^\n]{0,20}?(\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d+)?(?:Z|[+-]\d{2}:\d{2}))`)
	afterTime = regexp.MustCompile(`(?i)\b(?:resets?|again|retry|available)[ -]?(?:in|after)[ :]+((?:\d+(?:\.\d+)? ?(?:d|days?|h|hrs?|hours?|m|mins?|minutes?|s|secs?|seconds?)\b,? ?(?:and )?|(?:\d+[dhms])+ ?)+)`)
	oneTime   = regexp.MustCompile(`(?i)(\d+(?:\.\d+)?) ?([dhms])`)
	atClock   = regexp.MustCompile(`(?i)\b(?:resets?|again|available)(?: (?:at|on))?:? +(?:(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]* (\d{1,2})(?:st|nd|rd|th)?(?:,? (\d{4}))?,?(?: at)? +)?(\d{1,2})(?::(\d{2}))? ?(am|pm)?\b(?: \(([A-Za-z_+/-]{1,40})\))?`)
)

// resets finds the time in a text at which the program can be used again.
func resets(text string, now time.Time) (time.Time, bool) {
	if m := atSecond.FindStringSubmatch(text); m != nil {
		n, err := strconv.ParseInt(m[1], 10, 64)
		return time.Unix(n, 0), err == nil
	}
	if m := atInstant.FindStringSubmatch(text); m != nil {
		t, err := time.Parse(time.RFC3339, m[1])
		return t, err == nil
	}
	if m := afterTime.FindStringSubmatch(text); m != nil {
		return after(m[1], now)
	}
	if m := atClock.FindStringSubmatch(text); m != nil && (m[5] != "" || m[6] != "") { // "again 5" is not a time
		return clock(m, now)
	}
	return time.Time{}, false
}

func after(text string, now time.Time) (time.Time, bool) {
	var whole float64
	for _, m := range oneTime.FindAllStringSubmatch(text, 8) {
		n, err := strconv.ParseFloat(m[1], 64)
		if err != nil || n > 1e6 {
			return time.Time{}, false
		}
		whole += n * map[string]float64{"d": 86_400, "h": 3_600, "m": 60, "s": 1}[strings.ToLower(m[2])]
	}
	return now.Add(time.Duration(whole * float64(time.Second))), whole > 0 && whole < maxCooldownTTL.Seconds()
}

// clock returns the next time with the matched month, day, year, hour, minute, am or pm, and zone.
func clock(m []string, now time.Time) (time.Time, bool) {
	zone := now.Location()
	if m[7] != "" {
		named, err := time.LoadLocation(m[7])
		if err != nil {
			return time.Time{}, false
		}
		zone = named
	}
	number := func(s string) int { n, _ := strconv.Atoi(s); return n }
	hour, minute := number(m[4]), number(m[5])
	switch strings.ToLower(m[6]) {
	case "am", "pm":
		if hour < 1 || hour > 12 {
			return time.Time{}, false
		}
		if hour %= 12; strings.EqualFold(m[6], "pm") {
			hour += 12
		}
	}
	if hour > 23 || minute > 59 {
		return time.Time{}, false
	}
	here := now.In(zone)
	if m[1] == "" {
		t := time.Date(here.Year(), here.Month(), here.Day(), hour, minute, 0, 0, zone)
		if !t.After(now) {
			t = time.Date(here.Year(), here.Month(), here.Day()+1, hour, minute, 0, 0, zone)
		}
		return t, true
	}
	month := time.Month(strings.Index("janfebmaraprmayjunjulaugsepoctnovdec", strings.ToLower(m[1]))/3 + 1)
	year := here.Year()
	if m[3] != "" {
		year = number(m[3])
	}
	t := time.Date(year, month, number(m[2]), hour, minute, 0, 0, zone)
	if m[3] == "" && !t.After(now) {
		t = time.Date(year+1, month, number(m[2]), hour, minute, 0, 0, zone)
	}
	return t, true
}
