package directive

import (
	"strings"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
)

// Answer is the decision of a coordinator's model.
type Answer struct {
	Action      string   `json:"action"` // respond, complete, escalate or ignore
	Response    string   `json:"response"`
	UseKeys     bool     `json:"useKeys"`
	Keys        []string `json:"keys"`
	Reasoning   string   `json:"reasoning"`
	KeyDecision string   `json:"keyDecision"`
}

const noReasoning = "The model gave no reason."

// ReadAnswer parses the last JSON object of the text that has a valid action; braces in prose are
// skipped. ok is false if none exists, or if the action respond has neither a response nor
// keys.
func ReadAnswer(s string) (a Answer, ok bool) {
	if len(s) > MaxText {
		s = s[len(s)-MaxText:]
	}
	work := 0
	for i := 0; i < len(s) && work < maxWork; {
		end, looked := object(s, i)
		work += looked
		if end < 0 {
			i++
			continue
		}
		var one Answer
		if jsonx.Unmarshal([]byte(s[i:end]), &one) == nil && validAction(one.Action) {
			a, ok = one, true
		} else if !jsonx.Valid([]byte(s[i:end])) {
			work += end - i
			i++ // it may contain a valid object
			continue
		}
		i = end
	}
	if !ok {
		return Answer{}, false
	}
	a.Response, a.Reasoning, a.KeyDecision = text.CutRunes(a.Response, MaxResponse), text.CutRunes(normal(a.Reasoning), MaxStored),
		text.CutRunes(normal(a.KeyDecision), MaxShared)
	if a.Reasoning == "" {
		a.Reasoning = noReasoning
	}
	if len(a.Keys) > MaxKeys {
		return Answer{}, false
	}
	if a.Action == "respond" && (a.UseKeys && len(a.Keys) == 0 || !a.UseKeys && strings.TrimSpace(a.Response) == "" && len(a.Keys) == 0) {
		return Answer{}, false
	}
	return a, true
}

func validAction(s string) bool {
	return s == "respond" || s == "complete" || s == "escalate" || s == "ignore"
}

// object returns the end of the object that begins at i, or -1 if none begins there, and the
// number of bytes that it read. An object begins with a brace followed by a quoted name or its
// end, unlike most braces in prose.
func object(text string, i int) (end, looked int) {
	if text[i] != '{' {
		return -1, 0
	}
	if rest := strings.TrimLeft(text[i+1:], " \t\r\n"); rest == "" || rest[0] != '"' && rest[0] != '}' {
		return -1, 1
	}
	depth, inString := 0, false
	for at := i; at < len(text); at++ {
		switch c := text[at]; {
		case inString && c == '\\':
			at++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{':
			depth++
		case c == '}':
			if depth--; depth == 0 {
				return at + 1, at - i
			}
		}
	}
	return -1, len(text) - i
}
