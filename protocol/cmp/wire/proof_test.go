package wire_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
)

// testKey is the key of a seed of zeros.
func testKey() (ed25519.PublicKey, func([]byte) ([]byte, error)) {
	private := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	public, _ := private.Public().(ed25519.PublicKey)
	return public, func(b []byte) ([]byte, error) { return ed25519.Sign(private, b), nil }
}

func TestAProofHoldsForOneRequestAndAWhile(t *testing.T) {
	t.Parallel()
	public, sign := testKey()
	at := time.Unix(1_800_000_000, 0)
	path := wire.AssetsPath + strings.Repeat("a", 64)
	header, err := wire.SignRequest("laptop.1", "PUT", path, at, sign)
	if err != nil {
		t.Fatal(err)
	}
	p, err := wire.ReadProof(header)
	if err != nil || p.Node != "laptop.1" || p.TS != at.Unix() {
		t.Fatalf(`%+v %v; want no error, p.Node = "laptop.1", p.TS = at.Unix()`, p, err)
	}
	other := ed25519.NewKeyFromSeed([]byte(strings.Repeat("x", ed25519.SeedSize))).Public().(ed25519.PublicKey)
	for name, tt := range map[string]struct {
		key          ed25519.PublicKey
		method, path string
		now          time.Time
		ok           bool
	}{
		"as it was made":        {public, "PUT", path, at, true},
		"five minutes later":    {public, "PUT", path, at.Add(wire.ProofTTL), true},
		"five minutes before":   {public, "PUT", path, at.Add(-wire.ProofTTL), true},
		"too late":              {public, "PUT", path, at.Add(wire.ProofTTL + time.Second), false},
		"too early":             {public, "PUT", path, at.Add(-wire.ProofTTL - time.Second), false},
		"another method":        {public, "GET", path, at, false},
		"another path":          {public, "PUT", path + "0", at, false},
		"another node's key":    {other, "PUT", path, at, false},
		"no key":                {nil, "PUT", path, at, false},
		"method and path moved": {public, "PUT\n" + path, "", at, false},
	} {
		if err := p.Verify(tt.key, tt.method, tt.path, tt.now); (err == nil) != tt.ok || err != nil &&
			capability.CodeOf(err) != capability.CodeUnauthenticated {
			t.Errorf("%s: %v; want (err == nil) = %v, not (err != nil && capability.CodeOf(err) != capability.CodeUnauthenticated)",
				name, err, tt.ok)
		}
	}
	// Another node's name in the same proof.
	first, sig, _ := strings.Cut(strings.TrimPrefix(header, "Node "), ".")
	data, _ := base64.RawURLEncoding.DecodeString(first)
	forged, err := wire.ReadProof("Node " + base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(string(data), "laptop.1", "laptop.2",
		1))) + "." + sig)
	if err != nil || forged.Node != "laptop.2" || forged.Verify(public, "PUT", path, at) == nil {
		t.Errorf(`%+v %v; want no error, forged.Node = "laptop.2", forged.Verify(public, "PUT", path, at) not nil`, forged, err)
	}
	again, _ := wire.SignRequest("laptop.1", "PUT", path, at, sign)
	if again == header {
		t.Errorf("two proofs are the same; got again = %v; want again other than %v", again, header)
	}
}

func TestWhatIsNoProof(t *testing.T) {
	t.Parallel()
	_, sign := testKey()
	good, err := wire.SignRequest("a", "GET", "/x", time.Unix(1, 0), sign)
	if err != nil {
		t.Fatal(err)
	}
	first, sig, _ := strings.Cut(strings.TrimPrefix(good, "Node "), ".")
	of := func(text string) string {
		return "Node " + base64.RawURLEncoding.EncodeToString([]byte(text)) + "." + sig
	}
	for name, header := range map[string]string{
		"nothing": "", "a token": "Bearer abc", "no signature": "Node " + first, "a short signature": "Node " + first + ".abcd",
		"padding": "Node " + first + "=." + sig,
		"no JSON": of("x"), "no node": of(`{"ts":1,"nonce":"aaaaaaaaaaaaaaaaaaaa"}`), "a short nonce": of(`{"node":"a","ts":1,"nonce":"a"}`),
		"a node twice": of(`{"node":"a","node":"b","ts":1,"nonce":"aaaaaaaaaaaaaaaaaaaa"}`),
		"time as text": of(`{"node":"a","ts":"1","nonce":"aaaaaaaaaaaaaaaaaaaa"}`),
		"too long":     "Node " + strings.Repeat("a", 2000) + "." + sig,
	} {
		if p, err := wire.ReadProof(header); err == nil || capability.AsError(err).Reason != wire.ReasonProof {
			t.Errorf("%s: %+v %v; want an error, capability.AsError(err).Reason = wire.ReasonProof", name, p, err)
		}
	}
	if _, err := wire.SignRequest("a", "GET", "/x", time.Unix(1, 0),
		func([]byte) ([]byte, error) { return nil, errors.New("no") }); err == nil {
		t.Error("signed without a key; want an error")
	}
	if _, err := wire.SignRequest("a>", "GET", "/x", time.Unix(1, 0), sign); err == nil {
		t.Error("signed for no node; want an error")
	}
}

func TestUpwardAndEnrolComeBack(t *testing.T) {
	t.Parallel()
	round(t, "upward", wire.Encode[wire.Upward], wire.Decode[wire.Upward],
		&wire.Upward{CallID: "c", Action: "fs.readText", Input: json.RawMessage(`{"path":"a"}`), DeadlineMS: 1000})
	round(t, "upward reply", wire.Encode[wire.UpwardReply], wire.Decode[wire.UpwardReply],
		&wire.UpwardReply{OK: true, Result: json.RawMessage(`1`), Invocation: "run_1"})
	round(t, "upward error", wire.Encode[wire.UpwardReply], wire.Decode[wire.UpwardReply],
		&wire.UpwardReply{Error: &cmp.WireError{Code: "denied", Message: "no"}})
	round(t, "enrol reply", wire.Encode[wire.EnrolReply], wire.Decode[wire.EnrolReply], &wire.EnrolReply{NodeID: "a", Labels: []string{"gpu"}})
	for name, u := range map[string]wire.Upward{
		"no id": {Action: "a"}, "no action": {CallID: "c"}, "a list": {CallID: "c", Action: "a", Input: json.RawMessage(`[]`)},
		"too long":       {CallID: "c", Action: "a", DeadlineMS: 1 << 40},
		"a key too long": {CallID: "c", Action: "a", IdempotencyKey: strings.Repeat("k", 200)},
	} {
		if _, err := wire.Encode(&u); err == nil {
			t.Errorf("wire.Encode(&u): err = nil, want an error; name = %q", name)
		}
	}
	if _, err := wire.Encode(&wire.UpwardReply{OK: true, Error: &cmp.WireError{}}); err == nil {
		t.Error("both; want an error")
	}
}

func TestAKeyIsReadAsTheBusWritesIt(t *testing.T) {
	t.Parallel()
	const key = "UA5WUJ54Z23KILLCUOUNAKTPBVZWKMQVO4O6EQ5GHLAERIMLLHNCTYM5" // of a seed of zeros, written by the bus's library
	want, _ := testKey()
	if got, err := wire.PublicKey(key); err != nil || !got.Equal(want) {
		t.Errorf("wire.PublicKey(key): err = %v, want nil; got.Equal(want) = %v, want true", err, got.Equal(want))
	}
	round(t, "enrol", wire.Encode[wire.Enrol], wire.Decode[wire.Enrol], &wire.Enrol{NodeID: "a", PublicKey: key})
	for name, bad := range map[string]string{
		"nothing": "", "a letter changed": "UA5WUJ54Z23KILLCUOUNAKTPBVZWKMQVO4O6EQ5GHLAERIMLLHNCTYM6", "another kind": "A" + key[1:],
		"a seed": "S" + key, "short": key[:50], "long": key + key, "not base32": key[:55] + "1",
	} {
		if _, err := wire.PublicKey(bad); capability.AsError(err) == nil {
			t.Errorf("wire.PublicKey(bad): capability.AsError(err) = nil, want a value; name = %q", name)
		}
		if _, err := wire.Encode(&wire.Enrol{NodeID: "a", PublicKey: bad}); err == nil {
			t.Errorf("wire.Encode: err = nil, want an error; name = %q", name)
		}
	}
}

// FuzzReadProof: whatever a header holds, nothing that was not signed is believed.
func FuzzReadProof(f *testing.F) {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	f.Add("")
	f.Add(wire.ProofScheme + " e30." + strings.Repeat("A", 86))
	f.Add(wire.ProofScheme + " eyJub2RlIjoiYSIsInRzIjoxLCJub25jZSI6IjAxMjM0NTY3ODlhYmNkZWYifQ." + strings.Repeat("A", 86))
	f.Fuzz(func(t *testing.T, header string) {
		p, err := wire.ReadProof(header)
		if err != nil {
			return
		}
		if len(header) > 1<<10 || p.Node == "" {
			t.Fatalf(`%+v; want len(header) at most 1 << 10, p.Node other than ""`, p)
		}
		if p.Verify(key.Public().(ed25519.PublicKey), "GET", "/", time.Unix(p.TS, 0)) == nil {
			t.Fatal(`a proof that nobody signed holds; want p.Verify(key.Public().(ed25519.PublicKey), "GET", "/", ` +
				"time.Unix(p.TS, 0)) not nil")
		}
	})
}
