package mcpserve

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
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

// sameScope reports whether the access tokens of both have the same scope.
func sameScope(a, b caller) bool { return a.who.Scoped == b.who.Scoped && a.who.Most == b.who.Most }

// begin adds one running call, or returns false if maxCalls run.
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
