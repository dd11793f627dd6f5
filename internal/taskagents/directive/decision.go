package directive

import (
	"crypto/sha256"
	"strings"

	"github.com/junctor-run/junctor/internal/base/text"
)

// Decision is a decision that an agent reported.
type Decision struct {
	Text   string // at most MaxStored characters
	Shared string // at most MaxShared characters
	// Screen reports that it was read from a screen, where an example in a fence cannot be
	// distinguished from a real decision.
	Screen bool
	// CannotContinue reports that the agent gave up, so that the turn counts as failed.
	CannotContinue bool
}

// Ledger stores which decisions a session has made, to return each only once. The zero value is
// for a new session. It is not safe for concurrent use.
type Ledger struct {
	seen   map[[sha256.Size]byte]struct{}
	posted int
}

// Take returns the new decisions of a turn, in their order, at most MaxTurn. ours are the texts
// that the agent got, its task and its memory: a decision in them is an example or an echo and
// is left out.
func (l *Ledger) Take(t Text, ours ...string) (list []Decision) {
	var told []string
	for _, s := range ours {
		told = append(told, normal(s))
	}
	all := t.lines()
	for i, ln := range all {
		m := decisionLine.FindStringSubmatch(ln.body)
		if ln.hidden || m == nil || normal(m[1]) == "" {
			continue
		}
		first := normal(m[1])
		text := normal(t.joined(all, i, m[1]))
		if echoed(told, first) || echoed(told, text) {
			continue
		}
		if d, isNew := l.enter(text); isNew {
			d.Screen = t.Columns > 0
			if list = append(list, d); len(list) == MaxTurn {
				break
			}
		}
	}
	return list
}

func echoed(told []string, text string) bool {
	for _, s := range told {
		for _, form := range []string{"DECISION: ", "DECISION:", "DECISION : ", "DECISION :"} {
			if strings.Contains(s, form+text) {
				return true
			}
		}
	}
	return false
}

// Post adds a decision that an agent reported by its helper. ok is false if it is empty or
// known, or the session has posted MaxPosted.
func (l *Ledger) Post(s string) (d Decision, ok bool) {
	if l.posted >= MaxPosted {
		return Decision{}, false
	}
	if d, ok = l.enter(normal(text.CutRunes(s, MaxText))); ok {
		l.posted++
	}
	return d, ok
}

func (l *Ledger) enter(s string) (Decision, bool) {
	s = strings.TrimSpace(text.CutRunes(s, MaxStored))
	key := sha256.Sum256([]byte(s))
	if _, known := l.seen[key]; s == "" || known || len(l.seen) >= maxSeen {
		return Decision{}, false
	}
	if l.seen == nil {
		l.seen = make(map[[sha256.Size]byte]struct{})
	}
	l.seen[key] = struct{}{}
	return Decision{Text: s, Shared: strings.TrimSpace(text.CutRunes(s, MaxShared)), CannotContinue: givesUp(s)}, true
}

func givesUp(text string) bool {
	lower := strings.ToLower(text)
	for _, begin := range []string{"cannot continue", "blocked because", "unable to"} {
		if strings.HasPrefix(lower, begin) {
			return true
		}
	}
	return false
}
