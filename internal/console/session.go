package console

import (
	"crypto/subtle"
	"slices"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/ids"
	"github.com/junctor-run/junctor/internal/platform/hostfs"
	"github.com/junctor-run/junctor/secret"
)

// session is the sign-in of one browser. Both halves are needed: cookies are sent to every port
// of a host, so a cookie alone would be good for a server that an agent starts beside this one.
type session struct {
	ID        string    `json:"id"` // "ses_" + 24 hex
	Cookie    string    `json:"cookie"`
	Secret    string    `json:"secret"` // both are hashes
	Token     string    `json:"token"`  // id of the token whose principal this is
	Principal string    `json:"principal"`
	Created   time.Time `json:"created"`
	Used      time.Time `json:"used"`
	Expires   time.Time `json:"expires"`
	Elsewhere bool      `json:"elsewhere,omitempty"` // the person signed in with a provider
	// hint is the provider's token of that sign-in. It is in memory only.
	hint string
}

func (s *session) live(now time.Time) bool {
	return now.Before(s.Expires) && now.Sub(s.Used) < idleTimeout
}

// code is a sign-in code that was printed and not used yet.
type code struct {
	hash, token, principal string
	expires                time.Time
}

// ticket admits one WebSocket, whose request cannot carry headers.
type ticket struct {
	hash    string
	session session
	expires time.Time
}

// sessions holds the sessions of this server, also in a file, so that they survive a restart.
// Codes are in memory only.
type sessions struct {
	file  string
	now   func() time.Time
	mu    sync.Mutex
	list  []*session
	codes []code
	// tickets holds at most maxCodes.
	tickets []ticket
	saved   time.Time
}

// openSessions reads the file. Sessions that ended are dropped. A file that cannot be read as
// sessions is an error, because it may hold those of a newer version.
func openSessions(file string, now func() time.Time) (*sessions, error) {
	s := &sessions{file: file, now: now}
	if err := hostfs.ReadJSON(file, &s.list); err != nil {
		return nil, capability.Wrap(capability.CodeFailed, "console", "the file "+file+" cannot be read", err).
			With("sessions_unreadable", "remove it; everyone signs in again")
	}
	s.drop()
	return s, nil
}

// drop removes sessions and codes that ended.
func (s *sessions) drop() {
	now := s.now()
	s.list = slices.DeleteFunc(s.list, func(one *session) bool { return !one.live(now) })
	s.tickets = slices.DeleteFunc(s.tickets, func(t ticket) bool { return !now.Before(t.expires) })
	s.codes = slices.DeleteFunc(s.codes, func(c code) bool { return !now.Before(c.expires) })
}

// save writes the file.
func (s *sessions) save() error {
	if err := hostfs.WriteJSON(s.file, s.list); err != nil {
		return capability.Wrap(capability.CodeFailed, "console", "the sessions cannot be saved", err)
	}
	s.saved = s.now()
	return nil
}

// newCode returns a sign-in code for a token's principal: 128 random bits in hexadecimal, good
// once, for five minutes. The oldest of more than 64 open codes ends.
func (s *sessions) newCode(token, principal string) (value string, expires time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop()
	if len(s.codes) >= maxCodes {
		s.codes = slices.Delete(s.codes, 0, 1)
	}
	value, expires = ids.Hex("", 16), s.now().Add(codeTTL)
	s.codes = append(s.codes, code{secret.Hash(value), token, principal, expires})
	return value, expires
}

// signIn exchanges a code for a session and its two halves. The error is unauthenticated, reason
// sign_in_code, for a code that is unknown, used or expired.
func (s *sessions) signIn(value string) (one session, cookie, half string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop()
	hash := secret.Hash(value)
	i := slices.IndexFunc(s.codes, func(c code) bool { return same(c.hash, hash) })
	if i < 0 {
		return session{}, "", "", capability.Errorf(capability.CodeUnauthenticated, "console.sign_in",
			"this sign-in link was used already, or is older than five minutes").With("sign_in_code", "junctor console prints a new one")
	}
	c := s.codes[i]
	s.codes = slices.Delete(s.codes, i, i+1)
	return s.add(c.token, c.principal, sessionTTL, "", false)
}

// newSession returns a session of a token's principal who signed in with a provider, and its two halves.
func (s *sessions) newSession(token, principal string, ttl time.Duration, hint string) (one session, cookie, half string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop()
	return s.add(token, principal, min(ttl, sessionTTL), hint, true)
}

// add is called with the lock.
func (s *sessions) add(token, principal string, ttl time.Duration, hint string, elsewhere bool) (
	one session, cookie, half string, err error,
) {
	if len(s.list) >= maxSessions {
		oldest := slices.MinFunc(s.list, func(a, b *session) int { return a.Used.Compare(b.Used) })
		s.list = slices.DeleteFunc(s.list, func(one *session) bool { return one == oldest })
	}
	now := s.now().UTC()
	cookie, half = ids.Hex("", 16), ids.Hex("", 16)
	made := &session{
		ID: ids.Hex("ses_", 12), Cookie: secret.Hash(cookie), Secret: secret.Hash(half), Token: token, Principal: principal,
		Created: now, Used: now, Expires: now.Add(ttl), hint: hint, Elsewhere: elsewhere,
	}
	s.list = append(s.list, made)
	return *made, cookie, half, s.save()
}

// use returns the session with both halves. With touch it notes that a person used it; what a page
// fetches by itself does not keep a session alive. The error is unauthenticated, reason
// console_session_ended.
func (s *sessions) use(cookie, half string, touch bool) (session, error) {
	cookieHash, halfHash := secret.Hash(cookie), secret.Hash(half)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for _, one := range s.list {
		if same(one.Cookie, cookieHash) && same(one.Secret, halfHash) && one.live(now) {
			if !touch {
				return *one, nil
			}
			one.Used = now.UTC()
			if now.Sub(s.saved) >= saveInterval {
				_ = s.save() // the use is noted in memory; the next minute tries again
			}
			return *one, nil
		}
	}
	return session{}, ended()
}

// stands reports whether a session is live, by its id. With touch it notes that a person used it.
func (s *sessions) stands(id string, touch bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	i := slices.IndexFunc(s.list, func(one *session) bool { return one.ID == id && one.live(now) })
	if i >= 0 && touch {
		s.list[i].Used = now.UTC()
	}
	return i >= 0
}

// newTicket returns a ticket of a session: good once, for 30 seconds.
func (s *sessions) newTicket(one session) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop()
	if len(s.tickets) >= maxCodes {
		s.tickets = slices.Delete(s.tickets, 0, 1)
	}
	value := ids.Hex("", 16)
	s.tickets = append(s.tickets, ticket{secret.Hash(value), one, s.now().Add(ticketTTL)})
	return value
}

// useTicket uses up a ticket and returns its session. The error is unauthenticated, reason
// console_session_ended.
func (s *sessions) useTicket(value string) (session, error) {
	hash := secret.Hash(value)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop()
	i := slices.IndexFunc(s.tickets, func(t ticket) bool { return same(t.hash, hash) })
	if i < 0 {
		return session{}, ended()
	}
	one := s.tickets[i].session
	s.tickets = slices.Delete(s.tickets, i, i+1)
	if !slices.ContainsFunc(s.list, func(live *session) bool { return live.ID == one.ID }) {
		return session{}, ended()
	}
	return one, nil
}

func ended() error {
	return capability.Errorf(capability.CodeUnauthenticated, "console", "this session of the console has ended").
		With("console_session_ended", "run junctor console, and open the link that it prints")
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// all returns the live sessions, newest first.
func (s *sessions) all() []session {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop()
	out := make([]session, 0, len(s.list))
	for _, one := range slices.Backward(s.list) {
		out = append(out, *one)
	}
	return out
}

// end ends a session. The error is not_found.
func (s *sessions) end(id string) (session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop()
	i := slices.IndexFunc(s.list, func(one *session) bool { return one.ID == id })
	if i < 0 {
		return session{}, capability.Errorf(capability.CodeNotFound, "console.sessions", "no browser has the session %s", id)
	}
	one := *s.list[i]
	s.list = slices.Delete(s.list, i, i+1)
	return one, s.save()
}
