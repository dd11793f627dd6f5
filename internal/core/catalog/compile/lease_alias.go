package compile

import (
	"slices"
	"sync"

	"github.com/junctor-run/junctor/internal/core/catalog/ordered"
)

// aliases finds tools by their other names. The names read from a piece of a catalog are
// cached, so that an unknown name costs one look-up in each piece.
type aliases struct {
	mu     sync.Mutex
	pieces map[ordered.Sum]map[string][]uint32 // alias → positions; nil for pieces without aliases
}

// find returns the listed actions with that alias.
func (l *aliases) find(a *Agent, name string) (out []*Action) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for sum, list := range a.Chunks() {
		piece, known := l.pieces[sum]
		if !known {
			piece = readAliases(list)
			if l.pieces == nil || len(l.pieces) >= maxAliasPieces {
				l.pieces = make(map[ordered.Sum]map[string][]uint32)
			}
			l.pieces[sum] = piece
		}
		for _, at := range piece[name] {
			out = append(out, list[at])
		}
	}
	return out
}

// readAliases returns the positions of the actions by alias, or nil if they have none.
func readAliases(list []*Action) (out map[string][]uint32) {
	for i, x := range list {
		for _, e := range x.Entries {
			for _, alias := range e.Contribution.Aliases {
				if slices.Contains(out[alias], uint32(i)) {
					continue
				}
				if out == nil {
					out = make(map[string][]uint32)
				}
				out[alias] = append(out[alias], uint32(i))
			}
		}
	}
	return out
}
