package console

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/big"
	"slices"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/ids"
	"github.com/junctor-run/junctor/internal/console/passkey"
	"github.com/junctor-run/junctor/secret"
)

// The bounds of verifications.
const (
	verifyTTL   = 2 * time.Minute
	maxTries    = 3
	maxVerifies = 32 // open at once; the oldest ends
)

// verification asks the person at a terminal for one decision of a browser. An agent with a
// browser can press buttons; it does not see the terminal of the server.
type verification struct {
	ID        string    `json:"id"` // "ver_" + 16 hex
	Principal string    `json:"principal"`
	What      string    `json:"what"`
	Code      string    `json:"code"` // six digits
	Expires   time.Time `json:"expires"`
	digest    string    // of the method, path and body that it verifies
	tries     int
	challenge passkey.Challenge
	options   any  // for the browser; nil: the code verifies
	shared    bool // every admin may read the code
}

type verifications struct {
	now  func() time.Time
	mu   sync.Mutex
	list []*verification
}

func requestDigest(method, path string, body []byte) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s %s\n", method, path)
	h.Write(body)
	return hex.EncodeToString(h.Sum(nil))
}

func (v *verifications) drop() {
	now := v.now()
	v.list = slices.DeleteFunc(v.list, func(one *verification) bool { return !now.Before(one.Expires) || one.tries >= maxTries })
}

// ask returns the open verification of a request, or a new one and created = true.
func (v *verifications) ask(principal, what, digest string, shared bool) (one verification, created bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.drop()
	for _, old := range v.list {
		if old.Principal == principal && old.digest == digest && old.options == nil {
			return *old, false
		}
	}
	n, err := rand.Int(rand.Reader, big.NewInt(1_000_000))
	if err != nil {
		panic(err) // crypto/rand never fails on the systems we support
	}
	made := &verification{
		ID: ids.Hex("ver_", 8), Principal: principal, What: what, Code: fmt.Sprintf("%06d", n), Expires: v.now().Add(verifyTTL), digest: digest,
		shared: shared,
	}
	v.add(made)
	return *made, true
}

// askKey returns the open verification of a request by passkey, or a new one.
func (v *verifications) askKey(principal, what, digest string, c passkey.Challenge, options any) verification {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.drop()
	for _, old := range v.list {
		if old.Principal == principal && old.digest == digest && old.options != nil {
			return *old
		}
	}
	made := &verification{
		ID: ids.Hex("ver_", 8), Principal: principal, What: what, Expires: v.now().Add(verifyTTL), digest: digest,
		challenge: c, options: options,
	}
	v.add(made)
	return *made
}

// add is called with the lock.
func (v *verifications) add(one *verification) {
	if len(v.list) >= maxVerifies {
		v.list = slices.Delete(v.list, 0, 1)
	}
	v.list = append(v.list, one)
}

// check uses up a verification if proof, the code or the signature of a passkey, holds. The error is
// denied: reason console_code_wrong if the code is wrong, or the verification is of another request
// or has ended; that of signed for a passkey.
func (v *verifications) check(principal, id, proof, digest string,
	signed func(principal string, c passkey.Challenge, proof string) error,
) error {
	v.mu.Lock()
	v.drop()
	i := slices.IndexFunc(v.list, func(one *verification) bool {
		return one.ID == id && one.Principal == principal && one.digest == digest
	})
	if i < 0 {
		v.mu.Unlock()
		return capability.Errorf(capability.CodeDenied, "console.verify", "the confirmation has expired or belongs to another decision").
			With("console_code_wrong", "decide again")
	}
	one := v.list[i]
	v.list = slices.Delete(v.list, i, i+1) // not in use twice
	v.mu.Unlock()
	var err error
	switch {
	case one.options != nil:
		err = signed(principal, one.challenge, proof)
	case !same(secret.Hash(one.Code), secret.Hash(proof)):
		err = capability.Errorf(capability.CodeDenied, "console.verify", "the code is wrong; %d tries are left", maxTries-one.tries-1).
			With("console_code_wrong", "read it on the terminal of junctor serve, or run junctor console code")
	}
	if one.tries++; err != nil && one.tries < maxTries {
		v.mu.Lock()
		v.add(one)
		v.mu.Unlock()
	}
	return err
}

// of returns the open verifications of a principal, and for an admin those of people in chat services.
func (v *verifications) of(who capability.Principal) []verification {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.drop()
	out := []verification{}
	for _, one := range v.list {
		if one.options == nil && (one.Principal == who.ID || one.shared && who.Role == capability.RoleAdmin) {
			out = append(out, *one)
		}
	}
	return out
}

// Ask shows a code on the terminal for a decision of a principal in a chat service, unless one is
// open.
func (s *Service) Ask(principal, what string) { s.askShared(principal, what) }

func (s *Service) askShared(principal, what string) (one verification, created bool) {
	one, created = s.verify.ask(principal, what, requestDigest("channel", what, nil), true)
	if created && s.cfg.Print != nil {
		s.cfg.Print("Code " + one.Code + " confirms in a chat service, for " + principal + ": " + what + " (two minutes)")
	}
	return one, created
}

// Check uses up the code of such a decision. The error is denied, reason console_code_wrong.
func (s *Service) Check(principal, what, code string) error {
	one, _ := s.askShared(principal, what)
	return s.verify.check(principal, one.ID, code, requestDigest("channel", what, nil), nil)
}
