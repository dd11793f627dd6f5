// Package passkey keeps the passkeys with which people confirm dangerous decisions in the console
// (WebAuthn), and checks their signatures. An agent that controls a browser can press buttons; it
// cannot touch the person's key.
package passkey

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"net"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/ids"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/platform/hostfs"
)

const (
	maxOfOne    = 10 // passkeys of one principal
	maxAll      = 1000
	maxAdding   = 64 // registrations that have begun; the oldest ends
	maxResponse = 64 << 10
	maxName     = 60 // bytes
	addTTL      = 5 * time.Minute
)

// Passkey is a key of a person.
type Passkey struct {
	ID        string    `json:"id"` // "psk_" + 16 hex
	Name      string    `json:"name"`
	Principal string    `json:"principal"`
	Created   time.Time `json:"created"`
	Used      time.Time `json:"used,omitzero"`
}

// kept is a passkey in the file.
type kept struct {
	Passkey
	RP         string              `json:"rp"` // the host that it is for
	Credential webauthn.Credential `json:"credential"`
}

// Challenge is what one decision is to be signed with.
type Challenge struct{ data webauthn.SessionData }

// adding is a registration that has begun.
type adding struct {
	id, principal string
	data          webauthn.SessionData
	expires       time.Time
}

// Store holds passkeys, also in a file.
type Store struct {
	file  string
	now   func() time.Time
	mu    sync.Mutex
	list  []kept
	begun []adding
}

// Open reads the file.
func Open(file string, now func() time.Time) (*Store, error) {
	s := &Store{file: file, now: now}
	if err := hostfs.ReadJSON(file, &s.list); err != nil {
		return nil, capability.Wrap(capability.CodeFailed, "console", "the file "+file+" cannot be read", err).
			With("passkeys_unreadable", "remove it; everyone adds their passkeys again, with the code from the terminal")
	}
	return s, nil
}

func (s *Store) save() error {
	if err := hostfs.WriteJSON(s.file, s.list); err != nil {
		return capability.Wrap(capability.CodeFailed, "console", "the passkeys cannot be saved", err)
	}
	return nil
}

// user is a webauthn.User.
type user struct {
	principal string
	list      []webauthn.Credential
}

// WebAuthnID returns a digest, because an id has at most 64 bytes.
func (u user) WebAuthnID() []byte {
	sum := sha256.Sum256([]byte(u.principal))
	return sum[:]
}
func (u user) WebAuthnName() string                       { return u.principal }
func (u user) WebAuthnDisplayName() string                { return u.principal }
func (u user) WebAuthnCredentials() []webauthn.Credential { return u.list }

// party returns the configuration for a console at an address, and its host. The error is
// unavailable, reason passkey_address, for an address without a name.
func party(address string) (*webauthn.WebAuthn, string, error) {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" || net.ParseIP(u.Hostname()) != nil || u.Scheme != "https" && u.Hostname() != "localhost" {
		return nil, "", capability.Errorf(capability.CodeUnavailable, "passkey",
			"passkeys need https and a name, or localhost; this console is %s", address).
			With("passkey_address", "set public_url to the https address of the proxy in front")
	}
	w, err := webauthn.New(&webauthn.Config{RPID: u.Hostname(), RPDisplayName: "junctor", RPOrigins: []string{u.Scheme + "://" + u.Host}})
	return w, u.Hostname(), err
}

// of is called with the lock.
func (s *Store) of(principal, host string) user {
	u := user{principal: principal}
	for _, k := range s.list {
		if k.Principal == principal && k.RP == host {
			u.list = append(u.list, k.Credential)
		}
	}
	return u
}

// List returns the passkeys of a principal, or all if it is "".
func (s *Store) List(principal string) []Passkey {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []Passkey{}
	for _, k := range s.list {
		if principal == "" || k.Principal == principal {
			out = append(out, k.Passkey)
		}
	}
	return out
}

// Begin begins the registration of a passkey. It returns its id and the options for the browser.
func (s *Store) Begin(address, principal string) (id string, options any, err error) {
	w, host, err := party(address)
	if err != nil {
		return "", nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.of(principal, host)
	if len(u.list) >= maxOfOne || len(s.list) >= maxAll {
		return "", nil, capability.Errorf(capability.CodeOverloaded, "passkey",
			"%s has %d passkeys already, or all together have %d", principal, maxOfOne, maxAll)
	}
	var exclude []protocol.CredentialDescriptor
	for _, c := range u.list {
		exclude = append(exclude, c.Descriptor())
	}
	creation, data, err := w.BeginRegistration(u, webauthn.WithExclusions(exclude),
		webauthn.WithResidentKeyRequirement(protocol.ResidentKeyRequirementDiscouraged))
	if err != nil {
		return "", nil, refused(err)
	}
	s.begun = slices.DeleteFunc(s.begun, func(a adding) bool { return !s.now().Before(a.expires) })
	if len(s.begun) >= maxAdding {
		s.begun = slices.Delete(s.begun, 0, 1)
	}
	id = ids.Hex("psk_", 8)
	s.begun = append(s.begun, adding{id, principal, *data, s.now().Add(addTTL)})
	return id, creation.Response, nil
}

// Add adds the passkey of a registration. The error is denied, reason passkey_refused, if the
// browser's response is not one to it.
func (s *Store) Add(address, principal, id, name string, response []byte) (Passkey, error) {
	w, host, err := party(address)
	if err != nil {
		return Passkey{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.begun, func(a adding) bool { return a.id == id && a.principal == principal && s.now().Before(a.expires) })
	if i < 0 || len(response) > maxResponse {
		return Passkey{}, refused(errors.New("the registration was not begun, or has expired"))
	}
	data := s.begun[i].data
	s.begun = slices.Delete(s.begun, i, i+1)
	parsed, err := protocol.ParseCredentialCreationResponseBytes(response)
	if err != nil {
		return Passkey{}, refused(err)
	}
	credential, err := w.CreateCredential(s.of(principal, host), data, parsed)
	if err != nil {
		return Passkey{}, refused(err)
	}
	if slices.ContainsFunc(s.list, func(k kept) bool { return bytes.Equal(k.Credential.ID, credential.ID) }) {
		return Passkey{}, refused(errors.New("the passkey is registered already"))
	}
	credential.Attestation = webauthn.CredentialAttestation{} // who made the key is not checked
	one := Passkey{ID: id, Name: text.CutBytes(text.Visible(name), maxName), Principal: principal, Created: s.now().UTC()}
	s.list = append(s.list, kept{one, host, *credential})
	return one, s.save()
}

// Challenge returns a challenge for a decision, with the options for the browser. ok is false if
// the principal has no passkey for this address.
func (s *Store) Challenge(address, principal string) (c Challenge, options any, ok bool) {
	w, host, err := party(address)
	if err != nil {
		return Challenge{}, nil, false
	}
	s.mu.Lock()
	u := s.of(principal, host)
	s.mu.Unlock()
	if len(u.list) == 0 {
		return Challenge{}, nil, false
	}
	assertion, data, err := w.BeginLogin(u)
	if err != nil {
		return Challenge{}, nil, false
	}
	return Challenge{*data}, assertion.Response, true
}

// Verify checks that a passkey of the principal signed the challenge. The error is denied, reason
// passkey_refused.
func (s *Store) Verify(address, principal string, c Challenge, response []byte) error {
	w, host, err := party(address)
	if err != nil {
		return err
	}
	if len(response) > maxResponse {
		return refused(errors.New("the response is too long"))
	}
	parsed, err := protocol.ParseCredentialRequestResponseBytes(response)
	if err != nil {
		return refused(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	credential, err := w.ValidateLogin(s.of(principal, host), c.data, parsed)
	if err != nil {
		return refused(err)
	}
	if credential.Authenticator.CloneWarning {
		return refused(errors.New("its counter has gone back, as that of a copy does"))
	}
	i := slices.IndexFunc(s.list, func(k kept) bool { return k.Principal == principal && bytes.Equal(k.Credential.ID, credential.ID) })
	if i < 0 {
		return refused(errors.New("the passkey was removed"))
	}
	s.list[i].Credential, s.list[i].Used = *credential, s.now().UTC()
	return s.save()
}

func refused(cause error) error {
	return capability.Wrap(capability.CodeDenied, "passkey", "the passkey does not confirm this", cause).
		With("passkey_refused", "try again; if the passkey is lost, remove it with: junctor console passkeys --remove ID")
}

// Remove removes a passkey, of the principal unless that is "". The error is not_found.
func (s *Store) Remove(principal, id string) (Passkey, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.list, func(k kept) bool { return k.ID == id && (principal == "" || k.Principal == principal) })
	if i < 0 {
		return Passkey{}, capability.Errorf(capability.CodeNotFound, "passkey", "no passkey has the id %s", id).
			With("", "list them with: junctor console passkeys")
	}
	one := s.list[i].Passkey
	s.list = slices.Delete(s.list, i, i+1)
	return one, s.save()
}
