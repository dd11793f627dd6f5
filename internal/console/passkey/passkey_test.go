package passkey

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
)

const address = "https://junctor.example.org"

// authenticator is a security key.
type authenticator struct {
	t     *testing.T
	id    []byte
	key   *ecdsa.PrivateKey
	count uint32
	// What it does wrongly.
	origin, host string
	absent       bool // the person does not touch it
}

func newAuthenticator(t *testing.T) *authenticator {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatalf("making a key: %v", err)
	}
	id := make([]byte, 16)
	_, _ = rand.Read(id)
	return &authenticator{t: t, id: id, key: key, origin: address, host: "junctor.example.org"}
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func (a *authenticator) clientData(kind, challenge string) []byte {
	data, err := json.Marshal(map[string]any{"type": kind, "challenge": challenge, "origin": a.origin, "crossOrigin": false})
	if err != nil {
		a.t.Fatalf("encoding client data: %v", err)
	}
	return data
}

// data returns authenticator data; attested is the key of a registration.
func (a *authenticator) data(attested []byte) []byte {
	a.count++
	sum := sha256.Sum256([]byte(a.host))
	flags := byte(1) // user present
	if a.absent {
		flags = 0
	}
	if attested != nil {
		flags |= 0x40
	}
	return append(binary.BigEndian.AppendUint32(append(sum[:], flags), a.count), attested...)
}

// challengeOf returns the challenge of the options for a browser.
func challengeOf(t *testing.T, options any) string {
	t.Helper()
	data, err := json.Marshal(options)
	var of struct{ Challenge string }
	if err == nil {
		err = json.Unmarshal(data, &of)
	}
	if err != nil || of.Challenge == "" {
		t.Fatalf("the options are %s, %v, want a challenge", data, err)
	}
	return of.Challenge
}

// create answers a registration, without an attestation.
func (a *authenticator) create(options any) []byte {
	x, y := a.key.X.FillBytes(make([]byte, 32)), a.key.Y.FillBytes(make([]byte, 32))
	// A COSE key: {1: 2, 3: -7, -1: 1, -2: x, -3: y}.
	cose := append([]byte{0xa5, 1, 2, 3, 0x26, 0x20, 1, 0x21, 0x58, 32}, x...)
	cose = append(append(cose, 0x22, 0x58, 32), y...)
	attested := append(make([]byte, 16), 0, byte(len(a.id)))
	data := a.data(append(append(attested, a.id...), cose...))
	// {"fmt": "none", "attStmt": {}, "authData": data}.
	object := append([]byte("\xa3\x63fmt\x64none\x67attStmt\xa0\x68authData\x58"), byte(len(data)))
	return a.response(map[string]string{
		"clientDataJSON": b64(a.clientData("webauthn.create", challengeOf(a.t, options))), "attestationObject": b64(append(object, data...)),
	})
}

// sign answers a challenge.
func (a *authenticator) sign(options any) []byte {
	client, data := a.clientData("webauthn.get", challengeOf(a.t, options)), a.data(nil)
	sum := sha256.Sum256(client)
	digest := sha256.Sum256(append(bytes.Clone(data), sum[:]...))
	signature, err := ecdsa.SignASN1(rand.Reader, a.key, digest[:])
	if err != nil {
		a.t.Fatalf("signing: %v", err)
	}
	return a.response(map[string]string{"clientDataJSON": b64(client), "authenticatorData": b64(data), "signature": b64(signature)})
}

func (a *authenticator) response(of map[string]string) []byte {
	data, err := json.Marshal(map[string]any{
		"id": b64(a.id), "rawId": b64(a.id), "type": "public-key", "response": of, "clientExtensionResults": map[string]any{},
	})
	if err != nil {
		a.t.Fatalf("encoding a response: %v", err)
	}
	return data
}

func open(t *testing.T) (*Store, string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "passkeys.json")
	s, err := Open(file, time.Now)
	if err != nil {
		t.Fatalf("Open: got %v, want no error", err)
	}
	return s, file
}

// add registers an authenticator.
func add(t *testing.T, s *Store, principal string, a *authenticator) Passkey {
	t.Helper()
	id, options, err := s.Begin(address, principal)
	if err != nil {
		t.Fatalf("Begin: got %v, want no error", err)
	}
	one, err := s.Add(address, principal, id, "key\u202e", a.create(options))
	if err != nil {
		t.Fatalf("Add: got %v (%v), want no error", err, capability.AsError(err).Err)
	}
	return one
}

func reason(err error) string {
	if err == nil {
		return ""
	}
	return capability.AsError(err).Reason
}

func TestAPasskeySignsOneDecisionOfItsPrincipal(t *testing.T) {
	t.Parallel()
	s, file := open(t)
	if _, _, ok := s.Challenge(address, "operator:ann"); ok {
		t.Error("a person without a passkey is challenged, want the code")
	}
	ann, ben := newAuthenticator(t), newAuthenticator(t)
	one := add(t, s, "operator:ann", ann)
	add(t, s, "operator:ben", ben)
	if one.Name != `key\u202e` {
		t.Errorf("the name is %q, want invisible characters shown", one.Name)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: got %v, %v, want one that only the server's user reads", info, err)
	}
	if s, err = Open(file, time.Now); err != nil { // as after a restart
		t.Fatalf("opening the file again: got %v, want no error", err)
	}
	if _, _, ok := s.Challenge("https://other.example.org", "operator:ann"); ok {
		t.Error("a passkey is asked for at another address, want it only at its own")
	}
	challenge := func() (Challenge, any) {
		t.Helper()
		c, options, ok := s.Challenge(address, "operator:ann")
		if !ok {
			t.Fatal("a person with a passkey is not challenged")
		}
		return c, options
	}
	c, options := challenge()
	if err := s.Verify(address, "operator:ann", c, ann.sign(options)); err != nil {
		t.Errorf("the person's key: got %v (%v), want no error", err, capability.AsError(err).Err)
	}
	refused := func(what string, do func(options any) []byte) {
		t.Helper()
		c, options := challenge()
		if err := s.Verify(address, "operator:ann", c, do(options)); reason(err) != "passkey_refused" {
			t.Errorf("%s: got %v, want passkey_refused", what, err)
		}
	}
	refused("the key of another", func(options any) []byte { return ben.sign(options) })
	refused("a key that was not added", func(options any) []byte { return newAuthenticator(t).sign(options) })
	refused("the answer to another challenge", func(any) []byte {
		_, other := challenge()
		return ann.sign(other)
	})
	refused("a forged signature", func(options any) []byte {
		forged := *ann
		forged.key = ben.key
		return forged.sign(options)
	})
	refused("the page of another origin", func(options any) []byte {
		phished := *ann
		phished.origin = "https://evil.example"
		return phished.sign(options)
	})
	refused("a key for another host", func(options any) []byte {
		other := *ann
		other.host = "evil.example"
		return other.sign(options)
	})
	refused("a key that was not touched", func(options any) []byte {
		untouched := *ann
		untouched.absent = true
		return untouched.sign(options)
	})
	refused("a copy whose counter is behind", func(options any) []byte {
		copied := *ann
		copied.count = 0
		return copied.sign(options)
	})
	refused("nothing", func(any) []byte { return nil })
	refused("a megabyte", func(any) []byte { return bytes.Repeat([]byte("{"), 1<<20) })
	refused("deep JSON", func(any) []byte { return []byte(strings.Repeat(`{"a":`, 10_000)) })

	ann.count += 10
	if c, options = challenge(); s.Verify(address, "operator:ann", c, ann.sign(options)) != nil {
		t.Error("the person's key after those: want it to confirm")
	}
	if list := s.List("operator:ann"); len(list) != 1 || list[0].Used.IsZero() {
		t.Errorf("got %+v, want one passkey that was used", list)
	}
	if _, err := s.Remove("operator:ben", one.ID); capability.CodeOf(err) != capability.CodeNotFound {
		t.Errorf("removing the passkey of another: got %v, want not_found", err)
	}
	if _, err := s.Remove("", one.ID); err != nil {
		t.Errorf("an admin removes it: got %v, want no error", err)
	}
	if _, _, ok := s.Challenge(address, "operator:ann"); ok {
		t.Error("a person whose passkey was removed is challenged, want the code")
	}
}

func TestRegistrationsThatDoNotHold(t *testing.T) {
	t.Parallel()
	var ahead time.Duration
	s, err := Open(filepath.Join(t.TempDir(), "passkeys.json"), func() time.Time { return time.Now().Add(ahead) })
	if err != nil {
		t.Fatalf("Open: got %v, want no error", err)
	}
	key := newAuthenticator(t)
	try := func(what, principal string, do func(id string, options any) (string, []byte)) {
		t.Helper()
		id, options, err := s.Begin(address, "operator:ann")
		if err != nil {
			t.Fatalf("Begin: got %v, want no error", err)
		}
		id, response := do(id, options)
		if _, err := s.Add(address, principal, id, "", response); reason(err) != "passkey_refused" {
			t.Errorf("%s: got %v, want passkey_refused", what, err)
		}
	}
	try("another person", "operator:ben", func(id string, options any) (string, []byte) { return id, key.create(options) })
	try("another registration", "operator:ann", func(id string, _ any) (string, []byte) {
		_, other, _ := s.Begin(address, "operator:ann")
		return id, key.create(other)
	})
	try("an unknown id", "operator:ann", func(_ string, options any) (string, []byte) { return "psk_0", key.create(options) })
	try("another origin", "operator:ann", func(id string, options any) (string, []byte) {
		phished := *key
		phished.origin = "https://evil.example"
		return id, phished.create(options)
	})
	try("a key that was not touched", "operator:ann", func(id string, options any) (string, []byte) {
		untouched := *key
		untouched.absent = true
		return id, untouched.create(options)
	})
	try("a megabyte", "operator:ann", func(id string, _ any) (string, []byte) { return id, make([]byte, 1<<20) })
	try("after five minutes", "operator:ann", func(id string, options any) (string, []byte) {
		ahead += addTTL
		return id, key.create(options)
	})
	add(t, s, "operator:ann", key)
	try("the same key twice", "operator:ann", func(id string, options any) (string, []byte) { return id, key.create(options) })
	for range maxOfOne - 1 {
		add(t, s, "operator:ann", newAuthenticator(t))
	}
	if _, _, err := s.Begin(address, "operator:ann"); capability.CodeOf(err) != capability.CodeOverloaded {
		t.Errorf("one more than %d: got %v, want overloaded", maxOfOne, err)
	}
	for _, at := range []string{"http://127.0.0.1:7777", "https://[::1]:7777", "http://junctor.example.org", ""} {
		if _, _, err := s.Begin(at, "operator:ben"); reason(err) != "passkey_address" {
			t.Errorf("Begin at %q: got %v, want passkey_address", at, err)
		}
	}
	if _, _, err := s.Begin("http://localhost:7777", "operator:ben"); err != nil {
		t.Errorf("Begin at localhost: got %v, want no error", err)
	}
}

func TestADamagedFileOfPasskeysIsAnError(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "passkeys.json")
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatalf("writing the file: %v", err)
	}
	if _, err := Open(file, time.Now); reason(err) != "passkeys_unreadable" {
		t.Errorf("got %v, want passkeys_unreadable", err)
	}
}
