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

// verification asks a person to confirm one decision of a browser or of a chat service: by a code on
// the server's terminal, which an agent that presses buttons does not see, or by a passkey.
type verification struct {
	ID        string    `json:"id"` // "ver_" + 16 hex
	Principal string    `json:"principal"`
	What      string    `json:"what"`
	Code      string    `json:"code"` // six digits; "" for a passkey
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
	// The times of wrong codes and of new verifications, by principal.
	wrong, asked map[string][]time.Time
}

// recent removes times that are older than lockTTL. It is called with the lock.
func (v *verifications) recent(of map[string][]time.Time, principal string) []time.Time {
	since := v.now().Add(-lockTTL)
	list := slices.DeleteFunc(of[principal], func(t time.Time) bool { return !t.After(since) })
	if len(list) == 0 {
		delete(of, principal)
		return nil
	}
	of[principal] = list
	return list
}

// locked returns denied, reason console_code_locked, for a principal with too many wrong codes or
// too many verifications.
func (v *verifications) locked(principal string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.recent(v.wrong, principal)) < maxWrong && len(v.recent(v.asked, principal)) < maxAsked {
		return nil
	}
	return capability.Errorf(capability.CodeDenied, "console.verify",
		"too many codes were wrong or asked for; decisions in the console are locked").
		With("console_code_locked", fmt.Sprintf("wait %.0f minutes, or decide with the command line; something may be driving your browser", lockTTL.Minutes()))
}

// note adds a time to one of the lists, which keep those of lockTTL. It is called with the lock.
func (v *verifications) note(of map[string][]time.Time, principal string) {
	of[principal] = append(v.recent(of, principal), v.now())
}

func newVerifications(now func() time.Time) *verifications {
	return &verifications{now: now, wrong: make(map[string][]time.Time), asked: make(map[string][]time.Time)}
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

// ask returns the open verification of an act of a request, or a new one and created = true. made has
// everything but its id, its code and its end.
func (v *verifications) ask(made verification) (one verification, created bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.drop()
	for _, old := range v.list {
		if old.Principal == made.Principal && old.digest == made.digest && old.What == made.What &&
			(old.options == nil) == (made.options == nil) {
			return *old, false
		}
	}
	made.ID, made.Expires = ids.Hex("ver_", 8), v.now().Add(verifyTTL)
	if made.options == nil {
		n, err := rand.Int(rand.Reader, big.NewInt(1_000_000))
		if err != nil {
			panic(err) // crypto/rand never fails on the systems we support
		}
		made.Code = fmt.Sprintf("%06d", n)
	}
	v.note(v.asked, made.Principal)
	v.add(&made)
	return made, true
}

// add is called with the lock.
func (v *verifications) add(one *verification) {
	n := 0
	for _, old := range v.list {
		if old.Principal == one.Principal {
			n++
		}
	}
	if n >= maxVerifies {
		i := slices.IndexFunc(v.list, func(old *verification) bool { return old.Principal == one.Principal })
		v.list = slices.Delete(v.list, i, i+1)
	}
	v.list = append(v.list, one)
}

// check uses up a verification if proof, the code or the signature of a passkey, holds. It returns
// what the person was shown. The error is denied: reason console_code_wrong if the code is wrong, or
// the verification is of another request or has ended; console_code_locked after too many wrong ones;
// that of signed for a passkey.
func (v *verifications) check(principal, id, proof, digest string,
	signed func(principal string, c passkey.Challenge, proof string) error,
) (what string, err error) {
	if err := v.locked(principal); err != nil {
		return "", err
	}
	v.mu.Lock()
	v.drop()
	i := slices.IndexFunc(v.list, func(one *verification) bool {
		return one.ID == id && one.Principal == principal && one.digest == digest
	})
	if i < 0 {
		v.mu.Unlock()
		return "", capability.Errorf(capability.CodeDenied, "console.verify", "the confirmation has expired or belongs to another decision").
			With("console_code_wrong", "decide again")
	}
	one := v.list[i]
	v.list = slices.Delete(v.list, i, i+1) // not in use twice
	v.mu.Unlock()
	switch {
	case one.options != nil:
		err = signed(principal, one.challenge, proof)
	case !same(secret.Hash(one.Code), secret.Hash(proof)):
		err = capability.Errorf(capability.CodeDenied, "console.verify", "the code is wrong; %d tries are left", maxTries-one.tries-1).
			With("console_code_wrong", "read it on the terminal of junctor serve, or run junctor console code")
	}
	if err == nil {
		return one.What, nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.note(v.wrong, principal)
	if one.tries++; one.tries < maxTries {
		v.add(one)
	}
	return "", err
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
// open or the principal's codes are locked.
func (s *Service) Ask(principal, what string) {
	if s.verify.locked(principal) == nil {
		s.askShared(principal, what)
	}
}

func (s *Service) askShared(principal, what string) (one verification, created bool) {
	one, created = s.verify.ask(verification{Principal: principal, What: what, digest: requestDigest("channel", what, nil), shared: true})
	if created && s.cfg.Print != nil {
		s.cfg.Print("Code " + one.Code + " confirms in a chat service, for " + principal + ": " + what + " (two minutes)")
	}
	return one, created
}

// Check uses up the code of such a decision. The error is denied, reason console_code_wrong.
func (s *Service) Check(principal, what, code string) error {
	one, _ := s.askShared(principal, what)
	_, err := s.verify.check(principal, one.ID, code, requestDigest("channel", what, nil), nil)
	return err
}
