// Package sealed is what MCP clients carry for the server from one request to the next:
// states of calls that go on, and cursors of lists. Both are good for the caller and the
// request they were made for alone; a state is unreadable to the client and good once.
package sealed

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

// What a requestState of ours stands for.
const (
	Consent = "consent" // an approval that waits for an answer
	Parked  = "parked"  // a call that goes on here
	Relayed = "relayed" // a provider's own state
)

const (
	stateGood = 10 * time.Minute
	// maxStates is how many used states of one caller are remembered, so that one who
	// uses up many stops nobody else; maxCallers bounds the memory of all together.
	maxStates  = 4_096
	maxCallers = 2_048
)

// State is what a modern client carries from one round of a call to the next. It is
// sealed: unreadable to the client, and good once, for the same caller and the same
// call.
type State struct {
	Kind  string    `json:"k"`
	Who   string    `json:"w"` // digest of the viewer
	Call  string    `json:"c"` // digest of method, name and arguments
	Until int64     `json:"u"` // Unix seconds
	Of    string    `json:"o"` // approval, parked call, or capability
	Inner jsonx.Raw `json:"s,omitempty"`
}

// Sealer makes states and opens them.
type Sealer struct {
	aead cipher.AEAD
	now  func() time.Time

	mu   sync.Mutex
	used map[string]map[string]int64 // caller → nonce → until when it has to be remembered
}

// New returns a sealer; who has the same key opens what it sealed.
func New(key []byte, now func() time.Time) *Sealer {
	sum := sha256.Sum256(append([]byte("junctor request state\x00"), key...))
	block, _ := aes.NewCipher(sum[:]) // 32 bytes are a key
	aead, _ := cipher.NewGCM(block)
	return &Sealer{aead: aead, now: now, used: make(map[string]map[string]int64)}
}

// Seal returns the state as a JSON string.
func (s *Sealer) Seal(st State) []byte {
	if st.Until == 0 {
		st.Until = s.now().Add(stateGood).Unix()
	}
	plain, err := jsonx.Marshal(st)
	if err != nil {
		return []byte(`""`) // never: its one raw member was JSON when it came
	}
	nonce := make([]byte, s.aead.NonceSize())
	_, _ = rand.Read(nonce)
	return jsonx.AppendString(nil, base64.RawURLEncoding.EncodeToString(s.aead.Seal(nonce, nonce, plain, nil)))
}

// Open returns what was sealed for this caller and this call; ok is false for
// everything else: made elsewhere, changed, too old, or opened before.
func (s *Sealer) Open(raw json.RawMessage, who, call string) (st State, ok bool) {
	text, isText := jsonx.Text(raw)
	data, err := base64.RawURLEncoding.DecodeString(text)
	n := s.aead.NonceSize()
	if !isText || err != nil || len(data) < n {
		return State{}, false
	}
	plain, err := s.aead.Open(nil, data[:n], data[n:], nil)
	if err != nil || jsonx.Unmarshal(plain, &st) != nil {
		return State{}, false
	}
	if st.Who != who || st.Call != call || s.now().Unix() > st.Until {
		return State{}, false
	}
	if st.Kind == Parked {
		return st, true // the table of parked calls knows which are waiting, and each once
	}
	return st, s.first(who, string(data[:n]), st.Until)
}

// first reports whether the caller's nonce comes for the first time.
func (s *Sealer) first(who, nonce string, until int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := s.used[who]
	if _, again := own[nonce]; again {
		return false
	}
	if len(own) >= maxStates {
		s.prune(who)
		if len(s.used[who]) >= maxStates {
			return false // nobody answers so many questions; what was used must not be forgotten
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

// prune forgets what is too old to be opened again. The caller holds mu.
func (s *Sealer) prune(who string) {
	own, now := s.used[who], s.now().Unix()
	for nonce, end := range own {
		if end < now {
			delete(own, nonce)
		}
	}
	if len(own) == 0 {
		delete(s.used, who)
	}
}

// Digest binds a state to whom and what it was made for.
func Digest(parts ...[]byte) string {
	h := sha256.New()
	for _, p := range parts {
		sum := sha256.Sum256(p)
		h.Write(sum[:])
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
