package mcpserve

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"sync"
	"time"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// Kinds of a requestState.
const (
	stateConsent = "consent" // an approval that waits for an answer
	stateParked  = "parked"  // a call that goes on here
	stateRelayed = "relayed" // a provider's own state
)

// requestState is the state that a modern client returns unchanged with the next request
// of a call. The client cannot read it, and it is accepted once, for the same caller and call.
type requestState struct {
	Kind  string    `json:"k"`
	Who   string    `json:"w"` // digest of the viewer
	Call  string    `json:"c"` // digest of method, name and arguments
	Until int64     `json:"u"` // Unix seconds
	Of    string    `json:"o"` // approval, parked call, or capability
	Inner jsonx.Raw `json:"s,omitempty"`
}

// stateSealer encrypts states and opens them.
type stateSealer struct {
	aead cipher.AEAD
	now  func() time.Time

	mu     sync.Mutex
	used   map[string]map[string]int64 // caller → nonce → until when it has to be remembered
	latest int64                       // the latest time that was seen, in Unix seconds
}

// clock returns the time in Unix seconds. It does not go back with the clock of the machine, because a
// state would be valid again whose nonce was forgotten after it had expired.
func (s *stateSealer) clock() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latest = max(s.latest, s.now().Unix())
	return s.latest
}

// newStateSealer returns a sealer. Any sealer with the same key opens its states.
func newStateSealer(key []byte, now func() time.Time) *stateSealer {
	sum := sha256.Sum256(append([]byte("junctor request state\x00"), key...))
	block, _ := aes.NewCipher(sum[:]) // 32 bytes are a key
	aead, _ := cipher.NewGCM(block)
	return &stateSealer{aead: aead, now: now, used: make(map[string]map[string]int64)}
}

// Seal returns the state as a JSON string.
func (s *stateSealer) Seal(st requestState) []byte {
	if st.Until == 0 {
		st.Until = s.clock() + int64(stateTTL/time.Second)
	}
	plain, err := jsonx.Marshal(st)
	if err != nil {
		return []byte(`""`) // never: its one raw member was JSON when it came
	}
	nonce := make([]byte, s.aead.NonceSize())
	_, _ = rand.Read(nonce)
	return jsonx.AppendString(nil, base64.RawURLEncoding.EncodeToString(s.aead.Seal(nonce, nonce, plain, nil)))
}

// Open returns a state sealed for this caller and this call. ok is false if it was made
// elsewhere, was changed, has expired, or was opened before.
func (s *stateSealer) Open(raw json.RawMessage, who, call string) (st requestState, ok bool) {
	text, isText := jsonx.Text(raw)
	data, err := base64.RawURLEncoding.DecodeString(text)
	n := s.aead.NonceSize()
	if !isText || err != nil || len(data) < n {
		return requestState{}, false
	}
	plain, err := s.aead.Open(nil, data[:n], data[n:], nil)
	if err != nil || jsonx.Unmarshal(plain, &st) != nil {
		return requestState{}, false
	}
	if st.Who != who || st.Call != call || s.clock() > st.Until {
		return requestState{}, false
	}
	if st.Kind == stateParked {
		return st, true // the table of parked calls holds those that wait, and each is used once
	}
	return st, s.first(who, string(data[:n]), st.Until)
}

// first records the caller's nonce. It returns false if the nonce was recorded before, or
// if the tables are full.
func (s *stateSealer) first(who, nonce string, until int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.used[who]
	if _, again := own[nonce]; again {
		return false
	}
	if len(own) >= maxStates {
		s.prune(who)
		if len(s.used[who]) >= maxStates {
			return false // refused, because a used nonce must not be dropped before it expires
		}
	}
	if own = s.used[who]; own == nil {
		if len(s.used) >= maxCallers {
			for other := range s.used {
				s.prune(other)
			}
			if len(s.used) >= maxCallers {
				return false
			}
		}
		own = make(map[string]int64)
		s.used[who] = own
	}
	own[nonce] = until
	return true
}

// prune drops the caller's expired nonces. It requires mu to be held.
func (s *stateSealer) prune(who string) {
	own, now := s.used[who], s.latest
	for nonce, end := range own {
		if end < now {
			delete(own, nonce)
		}
	}
	if len(own) == 0 {
		delete(s.used, who)
	}
}

// digest returns the hash that binds a state to its caller and its request.
func digest(parts ...[]byte) string {
	h := sha256.New()
	for _, p := range parts {
		sum := sha256.Sum256(p)
		h.Write(sum[:])
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
