package directive

import (
	"crypto/sha256"
	"strings"

	"github.com/junctor-run/junctor/internal/base/text"
)

// Decision is what an agent decided by itself.
type Decision struct {
	Text   string // at most MaxStored characters
	Shared string // at most MaxShared characters
	// Screen reports that it was read off a screen, where an example in a fence looks like one
	// that is meant.
	Screen bool
	// CannotContinue reports that the agent gave up: the turn has failed, and the user must look.
	CannotContinue bool
}

// Limits of a session.
const (
	MaxPosted = 100   // decisions that a session may post by itself
	maxSeen   = 1_000 // decisions of a session in all
)

// Ledger knows which decisions a session has made; the zero value is that of a new
// session. It is not safe for use by several goroutines at once.
type Ledger struct {
	seen   map[[sha256.Size]byte]struct{}
	posted int
}

// Take returns the decisions of a turn that are new, in their order, at most MaxTurn. ours
// is all that we told the agent, its task and its memory: a decision that is in there is an
// example or an echo.
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

// Post enters a decision that an agent's helper sent by itself. ok is false for one that
// is empty or known, and for more than MaxPosted of a session.
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
