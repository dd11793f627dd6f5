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
		if old.Principal == principal && old.digest == digest {
			return *old, false
		}
	}
	if len(v.list) >= maxVerifies {
		v.list = slices.Delete(v.list, 0, 1)
	}
	n, err := rand.Int(rand.Reader, big.NewInt(1_000_000))
	if err != nil {
		panic(err) // crypto/rand never fails on the systems we support
	}
	made := &verification{
		ID: ids.Hex("ver_", 8), Principal: principal, What: what, Code: fmt.Sprintf("%06d", n), Expires: v.now().Add(verifyTTL), digest: digest,
		shared: shared,
	}
	v.list = append(v.list, made)
	return *made, true
}

// check uses up a verification. The error is denied, reason console_code_wrong, if digits are
// wrong, or the verification is of another request or has ended.
func (v *verifications) check(principal, id, digits, digest string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.drop()
	i := slices.IndexFunc(v.list, func(one *verification) bool {
		return one.ID == id && one.Principal == principal && one.digest == digest
	})
	if i < 0 {
		return capability.Errorf(capability.CodeDenied, "console.verify", "the code has expired or belongs to another decision").
			With("console_code_wrong", "decide again; a new code is printed")
	}
	if !same(secret.Hash(v.list[i].Code), secret.Hash(digits)) {
		v.list[i].tries++
		return capability.Errorf(capability.CodeDenied, "console.verify", "the code is wrong; %d tries are left", maxTries-v.list[i].tries).
			With("console_code_wrong", "read it on the terminal of junctor serve, or run junctor console code")
	}
	v.list = slices.Delete(v.list, i, i+1)
	return nil
}

// of returns the open verifications of a principal, and for an admin those of people in chat services.
func (v *verifications) of(who capability.Principal) []verification {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.drop()
	out := []verification{}
	for _, one := range v.list {
		if one.Principal == who.ID || one.shared && who.Role == capability.RoleAdmin {
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
	return s.verify.check(principal, one.ID, code, requestDigest("channel", what, nil))
}
