package console

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
)

// clock is a time that tests move.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func openTest(t *testing.T) (*sessions, *clock, string) {
	t.Helper()
	c := &clock{time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)}
	file := filepath.Join(t.TempDir(), "sessions.json")
	s, err := openSessions(file, c.Now)
	if err != nil {
		t.Fatal(err)
	}
	return s, c, file
}

func reason(err error) string {
	if err == nil {
		return ""
	}
	return capability.AsError(err).Reason
}

func TestACodeSignsInOnce(t *testing.T) {
	t.Parallel()
	s, c, _ := openTest(t)
	value, expires := s.newCode("tok_1", "admin:ann")
	if want := c.now.Add(5 * time.Minute); len(value) != 32 || !expires.Equal(want) {
		t.Errorf("code %q until %v, want 32 hexadecimal digits until %v", value, expires, want)
	}
	one, cookie, half, err := s.signIn(value)
	if err != nil || one.Principal != "admin:ann" || one.Token != "tok_1" {
		t.Fatalf("got %+v, %v, want a session of admin:ann", one, err)
	}
	if got, err := s.use(cookie, half, true); err != nil || got.ID != one.ID {
		t.Errorf("got %+v, %v, want session %s", got, err, one.ID)
	}
	if _, _, _, err := s.signIn(value); reason(err) != "sign_in_code" {
		t.Errorf("the second sign-in: %v, want reason sign_in_code", err)
	}
	late, _ := s.newCode("tok_1", "admin:ann")
	c.now = c.now.Add(5 * time.Minute)
	if _, _, _, err := s.signIn(late); reason(err) != "sign_in_code" {
		t.Errorf("after five minutes: %v, want reason sign_in_code", err)
	}
	if _, _, _, err := s.signIn(""); reason(err) != "sign_in_code" {
		t.Errorf("an empty code: %v, want reason sign_in_code", err)
	}
}

func TestBothHalvesAreNeeded(t *testing.T) {
	t.Parallel()
	s, _, _ := openTest(t)
	a, _ := s.newCode("tok_1", "admin:ann")
	b, _ := s.newCode("tok_2", "operator:bob")
	_, cookie, half, _ := s.signIn(a)
	_, otherCookie, otherHalf, _ := s.signIn(b)
	for _, tt := range []struct{ name, cookie, half string }{
		{"no secret", cookie, ""},
		{"no cookie", "", half},
		{"the cookie of one session and the secret of another", cookie, otherHalf},
		{"and the other way round", otherCookie, half},
		{"the halves exchanged", half, cookie},
	} {
		if got, err := s.use(tt.cookie, tt.half, true); reason(err) != "console_session_ended" {
			t.Errorf("%s: got %+v, %v, want reason console_session_ended", tt.name, got, err)
		}
	}
}

func TestSessionsEndByTimeAndByUse(t *testing.T) {
	t.Parallel()
	s, c, _ := openTest(t)
	value, _ := s.newCode("tok_1", "admin:ann")
	_, cookie, half, _ := s.signIn(value)
	for c.now.Before(time.Date(2026, 11, 25, 19, 55, 0, 0, time.UTC)) { // used every 29 minutes
		c.now = c.now.Add(29 * time.Minute)
		if c.now.Sub(time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)) >= sessionTTL {
			break
		}
		if _, err := s.use(cookie, half, true); err != nil {
			t.Fatalf("at %v: got %v, want the session", c.now, err)
		}
	}
	c.now = time.Date(2026, 11, 25, 20, 0, 0, 0, time.UTC)
	if _, err := s.use(cookie, half, true); reason(err) != "console_session_ended" {
		t.Errorf("after eight hours: got %v, want reason console_session_ended", err)
	}
	value, _ = s.newCode("tok_1", "admin:ann")
	_, cookie, half, _ = s.signIn(value)
	c.now = c.now.Add(idleTimeout - time.Second)
	if _, err := s.use(cookie, half, false); err != nil {
		t.Errorf("what the page fetches by itself: got %v, want the session", err)
	}
	c.now = c.now.Add(time.Second)
	if _, err := s.use(cookie, half, true); reason(err) != "console_session_ended" {
		t.Errorf("after half an hour without use: got %v, want reason console_session_ended", err)
	}
}

func TestSessionsSurviveARestartAsHashes(t *testing.T) {
	t.Parallel()
	s, c, file := openTest(t)
	value, _ := s.newCode("tok_1", "admin:ann")
	one, cookie, half, _ := s.signIn(value)
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{cookie, half, value} {
		if contains(data, word) {
			t.Errorf("the file holds %q, want hashes only", word)
		}
	}
	again, err := openSessions(file, c.Now)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := again.use(cookie, half, true); err != nil || got.ID != one.ID {
		t.Errorf("after a restart: got %+v, %v, want session %s", got, err, one.ID)
	}
	if _, err := again.end(one.ID); err != nil {
		t.Fatal(err)
	}
	if third, err := openSessions(file, c.Now); err != nil || len(third.all()) != 0 {
		t.Errorf("after it was ended: got %+v, %v, want no session", third, err)
	}
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openSessions(file, c.Now); reason(err) != "sessions_unreadable" {
		t.Errorf("a broken file: got %v, want reason sessions_unreadable", err)
	}
}

func contains(data []byte, word string) bool {
	for i := 0; i+len(word) <= len(data); i++ {
		if string(data[i:i+len(word)]) == word {
			return true
		}
	}
	return false
}

func TestSessionsAndCodesAreBounded(t *testing.T) {
	t.Parallel()
	s, c, _ := openTest(t)
	first, _ := s.newCode("tok_1", "admin:ann")
	for range maxCodes {
		s.newCode("tok_1", "admin:ann")
	}
	if _, _, _, err := s.signIn(first); reason(err) != "sign_in_code" {
		t.Errorf("the oldest code: got %v, want reason sign_in_code", err)
	}
	var cookie, half string
	for i := range maxSessions + 1 {
		c.now = c.now.Add(time.Second)
		value, _ := s.newCode("tok_1", "admin:ann")
		_, a, b, err := s.signIn(value)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			cookie, half = a, b
		}
	}
	if got := len(s.all()); got != maxSessions {
		t.Errorf("got %d sessions, want %d", got, maxSessions)
	}
	if _, err := s.use(cookie, half, true); reason(err) != "console_session_ended" {
		t.Errorf("the session that was used least recently: got %v, want reason console_session_ended", err)
	}
}

func TestAVerificationIsOfOneDecision(t *testing.T) {
	t.Parallel()
	c := &clock{time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)}
	v := newVerifications(c.Now)
	digest := requestDigest("POST", "/api/v1/approvals/a", []byte(`{"decision":"once"}`))
	one, created := v.ask(verification{Principal: "admin:ann", What: "approve", digest: digest})
	if again, twice := v.ask(verification{Principal: "admin:ann", What: "approve", digest: digest}); !created || twice || again.ID != one.ID {
		t.Errorf("asked twice: got %+v, created %v, want the open one %s", again, twice, one.ID)
	}
	other := requestDigest("POST", "/api/v1/approvals/a", []byte(`{"decision":"always"}`))
	for _, tt := range []struct{ name, who, id, digest string }{
		{"another decision", "admin:ann", one.ID, other},
		{"another person", "operator:bob", one.ID, digest},
		{"another id", "admin:ann", "ver_0", digest},
	} {
		if _, err := v.check(tt.who, tt.id, one.Code, tt.digest, nil); reason(err) != "console_code_wrong" {
			t.Errorf("%s: got %v, want reason console_code_wrong", tt.name, err)
		}
	}
	if _, err := v.check("admin:ann", one.ID, one.Code, digest, nil); err != nil {
		t.Errorf("got %v, want no error", err)
	}
	if _, err := v.check("admin:ann", one.ID, one.Code, digest, nil); reason(err) != "console_code_wrong" {
		t.Errorf("used twice: got %v, want reason console_code_wrong", err)
	}
	guessed, _ := v.ask(verification{Principal: "admin:ann", What: "approve", digest: digest})
	for range maxTries {
		if _, err := v.check("admin:ann", guessed.ID, "x", digest, nil); reason(err) != "console_code_wrong" {
			t.Errorf("a wrong code: got %v, want reason console_code_wrong", err)
		}
	}
	if _, err := v.check("admin:ann", guessed.ID, guessed.Code, digest, nil); reason(err) != "console_code_wrong" {
		t.Errorf("after three tries: got %v, want reason console_code_wrong", err)
	}
	late, _ := v.ask(verification{Principal: "admin:ann", What: "approve", digest: digest})
	c.now = c.now.Add(verifyTTL)
	if _, err := v.check("admin:ann", late.ID, late.Code, digest, nil); reason(err) != "console_code_wrong" {
		t.Errorf("after two minutes: got %v, want reason console_code_wrong", err)
	}
}

func TestCodesCannotBeGuessed(t *testing.T) {
	t.Parallel()
	c := &clock{time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)}
	v := newVerifications(c.Now)
	kept, _ := v.ask(verification{Principal: "operator:bob", What: "approve", digest: "bob"})
	guesses := 0
	for n := range 1000 {
		digest := requestDigest("POST", "/api/v1/tokens", fmt.Appendf(nil, "%d", n))
		one, _ := v.ask(verification{Principal: "admin:ann", What: "create a token", digest: digest})
		_, err := v.check("admin:ann", one.ID, "x", digest, nil)
		if reason(err) == "console_code_locked" {
			break
		}
		guesses++
	}
	if guesses != maxWrong {
		t.Errorf("got %d guesses before the lock, want %d", guesses, maxWrong)
	}
	one, _ := v.ask(verification{Principal: "admin:ann", What: "approve", digest: "other"})
	if _, err := v.check("admin:ann", one.ID, one.Code, "other", nil); reason(err) != "console_code_locked" {
		t.Errorf("the right code while locked: got %v, want reason console_code_locked", err)
	}
	if what, err := v.check("operator:bob", kept.ID, kept.Code, "bob", nil); err != nil || what != "approve" {
		t.Errorf("another person meanwhile: got %q, %v, want what was asked", what, err)
	}
	c.now = c.now.Add(lockTTL + time.Second)
	one, _ = v.ask(verification{Principal: "admin:ann", What: "approve", digest: "other"})
	if _, err := v.check("admin:ann", one.ID, one.Code, "other", nil); err != nil {
		t.Errorf("after the lock: got %v, want nil", err)
	}
	for n := range maxAsked {
		v.ask(verification{Principal: "admin:ann", What: "approve", digest: fmt.Sprint(n)})
	}
	if err := v.locked("admin:ann"); reason(err) != "console_code_locked" {
		t.Errorf("after %d codes: got %v, want reason console_code_locked", maxAsked, err)
	}
}
