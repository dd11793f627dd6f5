package mcpserve

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// Limits of one session, and of all sessions of one client.
const (
	// maxCalls is how many calls run at a time in all sessions of a viewer: they go on
	// when their client has hung up, so connections do not bound them.
	maxCalls = 1_024
	maxBatch = 100 // messages
	// maxInitialize bounds the description of the client that a session stores, here and in
	// the SDK, until it ends.
	maxInitialize = 64 << 10
)

// longBatch reports whether an array has too many elements. It returns false for malformed
// JSON, which the SDK rejects.
func longBatch(body []byte) bool {
	dec := jsontext.NewDecoder(bytes.NewReader(body), jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
	if _, err := dec.ReadToken(); err != nil {
		return false
	}
	for n := 0; dec.PeekKind() != ']'; n++ {
		if n == maxBatch {
			return true
		}
		if dec.SkipValue() != nil {
			return false
		}
	}
	return false
}

// sameScope reports whether both may do the same.
func sameScope(a, b caller) bool { return a.who.Scoped == b.who.Scoped && a.who.Most == b.who.Most }

// begin counts one more running call; false when there are too many.
func (s *Surface) begin(v *viewer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v.calls >= maxCalls {
		return false
	}
	v.calls++
	return true
}

func (s *Surface) done(v *viewer) {
	s.mu.Lock()
	v.calls--
	s.mu.Unlock()
}
