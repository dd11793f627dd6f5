package decide

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

var (
	pullRequest = regexp.MustCompile(`(?i)https?://[^\s/]+/\S*/(pull|pulls|merge_requests|pull-requests)/\d+\b`)
	madeRequest = regexp.MustCompile(`(?i)\b(created|opened) (a )?pull request #\d+|\bpull request [^.\n]{0,200}\balready exists`)
)

// Proposed reports whether a turn's text shows that its pull request was created, which ends
// a task with a repository.
func Proposed(text string) bool {
	text = tail(text, maxRead)
	return pullRequest.MatchString(text) || madeRequest.MatchString(text)
}

var spinning = regexp.MustCompile(`^[\s✢✳✶✻✽✺·∗*•●○◐◓◑◒◴◷◶◵|/\\\-\x{2800}-\x{28FF}]*\s*(\p{Lu}[\p{L}'-]*( [\p{L}'-]+){0,3}(…|\.\.\.))?\s*(\([^()]{0,120}\))?$`)

// Animated reports whether a text consists only of a program's animated status lines, or is
// empty.
func Animated(text string) bool {
	for line := range strings.Lines(tail(text, 2000)) {
		if line = strings.TrimSpace(line); line != "" && !spinning.MatchString(line) {
			return false
		}
	}
	return true
}

var (
	asking  = regexp.MustCompile(`(?i)\bI need you to\b|\bplease (choose|provide|paste|select|specify|tell me|let me know)\b|\b(can|could) you (please )?(confirm|clarify)\b|\bwhich (one )?(would|do) you (like|prefer|want)\b|\bwhich would you\b`)
	options = regexp.MustCompile(`(?m)^\s*(\d{1,2}[.)]|[A-Da-d][.)]|\([a-d1-9]\))\s+\S`)
)

// AsksUser reports whether a response for the agent is really a question to the user, by its
// phrases or because it lists options.
func AsksUser(response string) bool {
	if asking.MatchString(response) {
		return true
	}
	return strings.Contains(response, "?") && len(options.FindAllString(response, 2)) == 2
}

var (
	//nolint:lll // one expression
	path    = regexp.MustCompile("(?:^|[\\s\"'`(=:\\[<>])(~/?[^\\s\"'`),;:\\]<>]*|/[^\\s\"'`),;:\\]<>]*|\\$HOME[^\\s\"'`),;:\\]<>]*|(?:[^\\s\"'`(=:\\[<>]+/)?\\.\\.(?:/[^\\s\"'`),;:\\]<>]*)?)")
	refusal = regexp.MustCompile(`(?i)^\W*(\d+[.)]\s*)?(no\b|n$|deny|den(ied|ies)|reject|refuse|cancel|don.?t|do not|never|abort|exit|esc(ape)?$|stop\b|stay inside)`)
)

// Refuses reports whether an answer, a choice's label or a key refuses a request.
func Refuses(answer string) bool { return refusal.MatchString(strings.TrimSpace(answer)) }

// Outside returns the first path in a text that is outside of all roots, or "". Roots are
// absolute; relative paths are below the first root, the working directory. Paths that begin
// with ~ or $HOME always count as outside. Symbolic links are not resolved; package permit
// does that.
func Outside(text string, roots []string) string {
	for _, m := range path.FindAllStringSubmatch(tail(text, maxRead), 1000) {
		found := strings.TrimRight(m[1], ".?!")
		if strings.HasSuffix(m[1], "..") {
			found = m[1]
		}
		switch {
		case strings.HasPrefix(m[0], "://"): // a URL
			continue
		case found == "" || found == "/dev/null" || found == "/dev/stdout" || found == "/dev/stderr" || strings.Trim(found, ".") == "" &&
			len(found) > 2:
			continue
		case found[0] == '~' || found[0] == '$':
			return found
		}
		full := filepath.Clean(found)
		if !filepath.IsAbs(full) {
			if len(roots) == 0 {
				return found
			}
			full = filepath.Join(roots[0], full)
		}
		within := func(root string) bool {
			rel, err := filepath.Rel(root, full)
			return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
		}
		if !slices.ContainsFunc(roots, within) {
			return found
		}
	}
	return ""
}

// Guarded returns a replacement for an answer that would let an agent out of its folders: the
// dialog's first choice that refuses, otherwise a sentence. ok is false if the answer may be
// sent: it refuses, or neither it nor the dialog names a path outside of roots.
func Guarded(dialog, answer string, choices, roots []string) (instead string, ok bool) {
	if Refuses(answer) || Outside(dialog, roots) == "" && Outside(answer, roots) == "" {
		return "", false
	}
	if i := slices.IndexFunc(choices, Refuses); i >= 0 {
		return choices[i], true
	}
	dir := "your working directory"
	if len(roots) > 0 {
		dir = roots[0]
	}
	return "No: stay inside " + dir + ", and find a way that needs nothing outside of it.", true
}
