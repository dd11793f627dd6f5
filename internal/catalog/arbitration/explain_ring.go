package arbitration

import (
	"crypto/rand"
	"encoding/hex"
	"sync"
)

// maxExplanations is how many records are kept; the oldest makes room.
const maxExplanations = 1024

// Explanations keeps the last 1,024 records by id, in memory. The zero value is
// empty and ready; it is safe for concurrent use.
type Explanations struct {
	mu   sync.Mutex
	byID map[string]*Explanation
	ring [maxExplanations]string
	next int
}

// Put keeps a record under a new id ("exp_" and 24 hex), which it returns and
// writes into the record; the record must be the caller's own.
func (k *Explanations) Put(x *Explanation) string {
	var raw [12]byte
	_, _ = rand.Read(raw[:]) // never fails
	x.ID = "exp_" + hex.EncodeToString(raw[:])
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.byID == nil {
		k.byID = make(map[string]*Explanation, maxExplanations)
	}
	if old := k.ring[k.next]; old != "" {
		delete(k.byID, old)
	}
	k.ring[k.next], k.byID[x.ID] = x.ID, x
	k.next = (k.next + 1) % maxExplanations
	return x.ID
}

// Get returns the record of an id; it must not be changed.
func (k *Explanations) Get(id string) (*Explanation, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	x, ok := k.byID[id]
	return x, ok
}
