package natsbus

import (
	"bytes"
	"encoding/base64"
	"testing"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"
)

// TestSignaturesOfBothAlphabetsAreAccepted verifies that the challenge may be answered in the
// URL alphabet without padding and in standard base64, as by NATS servers.
func TestSignaturesOfBothAlphabetsAreAccepted(t *testing.T) {
	t.Parallel()
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatalf("make a key: got %v, want no error", err)
	}
	public, err := pair.PublicKey()
	if err != nil {
		t.Fatalf("its public part: got %v, want no error", err)
	}
	nonce := []byte("a-challenge")
	sig, err := pair.Sign(nonce)
	if err != nil {
		t.Fatalf("sign: got %v, want no error", err)
	}
	for written, accepted := range map[string]bool{
		base64.RawURLEncoding.EncodeToString(sig): true, base64.StdEncoding.EncodeToString(sig): true,
		base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{1}, len(sig))): false, "?": false, "": false,
	} {
		var ask jwt.AuthorizationRequestClaims
		ask.ConnectOptions.Nkey, ask.ConnectOptions.SignedNonce = public, written
		ask.ClientInformation.Nonce = string(nonce)
		if cred, err := proven(&ask); (err == nil) != accepted || accepted && cred.Key != public {
			t.Errorf("proven(%s) = key %q, %v; want accepted %v", written, cred.Key, err, accepted)
		}
	}
}
