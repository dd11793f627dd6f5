package arbitration

import (
	"sync"

	"github.com/junctor-run/junctor/internal/base/ids"
)

// Explanations stores the last 1,024 records in memory, or fewer if they have more than
// 262,144 entries together. The zero value is empty and ready to use; it is safe for
// concurrent use.
type Explanations struct {
	mu    sync.Mutex
	byID  map[string]*Explanation
	order []string // oldest first
	held  int      // entries
}

// Put stores a record under a new id ("exp_" and 24 hex digits), which it returns and writes
// into the record. The caller must own the record and must not change it afterwards.
func (k *Explanations) Put(x *Explanation) string {
	x.ID = ids.Hex("exp_", 12)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.byID == nil {
		k.byID = make(map[string]*Explanation, maxExplanations)
	}
	k.byID[x.ID] = x
	k.order = append(k.order, x.ID)
	k.held += x.size()
	drop := 0
	for len(k.order)-drop > maxExplanations || k.held > maxExplained && len(k.order)-drop > 1 {
		old := k.order[drop]
		k.held -= k.byID[old].size()
		delete(k.byID, old)
		drop++
	}
	clear(k.order[:drop])
	k.order = k.order[drop:] // a later append frees the dropped prefix
	return x.ID
}

func (x *Explanation) size() int {
	n := len(x.Composed) + 1
	for i := range x.Steps {
		n += len(x.Steps[i].Rejected)
	}
	return n
}

// Get returns the record of an id; it must not be changed.
func (k *Explanations) Get(id string) (*Explanation, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	x, ok := k.byID[id]
	return x, ok
}
