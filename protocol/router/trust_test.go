package router

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"testing"
)

// signed returns a module whose provenance states the given digest, and the
// issuer's public key.
func signed(t *testing.T, doc string, digest func(original, rfc8785 string) string) (Module, string) {
	t.Helper()
	m, err := ParseModule(json.RawMessage(doc))
	if err != nil {
		t.Fatal(err)
	}
	original, rfc8785, err := m.Digests()
	if err != nil {
		t.Fatal(err)
	}
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	m.Provenance = &Provenance{Issuer: "builder", Subject: m.ID, DigestSHA256: digest(original, rfc8785), SignatureAlgorithm: "Ed25519"}
	m.Provenance.Signature = base64.StdEncoding.EncodeToString(ed25519.Sign(private, m.Provenance.SignedBytes()))
	return m, string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

const trustDoc = `{"id":"m","name":"@x/m","config":{"b":1,"B":2,"10":3,"9":4},"metadata":{"é":1,"z":2.50}}`

func TestTrustPolicyDecides(t *testing.T) {
	t.Parallel()
	asRFC := func(_, rfc string) string { return rfc }
	good, key := signed(t, trustDoc, asRFC)
	byOriginal, originalKey := signed(t, trustDoc, func(original, _ string) string { return original })
	wrongDigest, wrongKey := signed(t, trustDoc, func(string, string) string {
		return "0000000000000000000000000000000000000000000000000000000000000000"
	})
	unsigned, _ := ParseModule(json.RawMessage(trustDoc))
	forged := good
	forged.Provenance = &Provenance{
		Issuer: "builder", Subject: "another", DigestSHA256: good.Provenance.DigestSHA256,
		SignatureAlgorithm: "ed25519", Signature: good.Provenance.Signature,
	}
	verified := func(key string) *TrustPolicy {
		return &TrustPolicy{RequireVerifiedProvenance: true, TrustedProvenancePublicKeys: map[string]string{"builder": key}}
	}
	for name, c := range map[string]struct {
		policy   *TrustPolicy
		module   Module
		endpoint string
		want     string
	}{
		"no policy trusts":                     {nil, unsigned, "e", TrustNoPolicy},
		"an empty policy trusts":               {&TrustPolicy{}, unsigned, "e", TrustAllowed},
		"an endpoint id is required":           {&TrustPolicy{RequireEndpointID: true}, unsigned, "", TrustNoEndpoint},
		"another endpoint":                     {&TrustPolicy{AllowedEndpointIDs: []string{"f"}}, unsigned, "e", TrustEndpoint},
		"another module":                       {&TrustPolicy{AllowedModuleIDs: []string{"n"}}, unsigned, "e", TrustModule},
		"an empty list of modules allows none": {&TrustPolicy{AllowedModuleIDs: []string{}}, unsigned, "e", TrustModule},
		"a signature is required":              {&TrustPolicy{RequireSignedProvenance: true}, unsigned, "e", TrustUnsigned},
		"another issuer":                       {&TrustPolicy{AllowedProvenanceIssuers: []string{"somebody"}}, good, "e", TrustIssuer},
		"no key for the issuer":                {&TrustPolicy{RequireVerifiedProvenance: true}, good, "e", TrustNoKey},
		"verified by the RFC 8785 digest":      {verified(key), good, "e", TrustAllowed},
		"verified by the original's digest":    {verified(originalKey), byOriginal, "e", TrustAllowed},
		"a signature by another key":           {verified(originalKey), good, "e", TrustInvalidSignature},
		"a signature of other lines":           {verified(key), forged, "e", TrustInvalidSignature},
		"an unreadable key":                    {verified("nonsense"), good, "e", TrustInvalidSignature},
		"content that was changed":             {verified(wrongKey), wrongDigest, "e", TrustInvalidDigest},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.policy != nil {
				c.policy.Normalise()
			}
			d := c.policy.Decide(&c.module, c.endpoint)
			if d.Reason != c.want || d.Trusted != (c.want == TrustAllowed || c.want == TrustNoPolicy) {
				t.Errorf("got %+v, want %s", d, c.want)
			}
		})
	}
}

func TestDigestOrdersKeysAsTheOriginalDoes(t *testing.T) {
	t.Parallel()
	// Integer-like keys first by value, then ICU order: a before B, punctuation
	// before digits before letters.
	m, err := ParseModule(json.RawMessage(`{"id":"m","name":"n","metadata":{"B":1,"a":2,"10":3,"9":4,"_x":5,"é":6,"f":7}}`))
	if err != nil {
		t.Fatal(err)
	}
	original, rfc8785, err := m.Digests()
	if err != nil {
		t.Fatal(err)
	}
	want := sumHex([]byte(`{"id":"m","metadata":{"9":4,"10":3,"_x":5,"a":2,"B":1,"é":6,"f":7},"name":"n"}`))
	if original != want {
		t.Errorf("original form %s, want %s", original, want)
	}
	if want := sumHex([]byte(`{"id":"m","metadata":{"10":3,"9":4,"B":1,"_x":5,"a":2,"f":7,"é":6},"name":"n"}`)); rfc8785 != want {
		t.Errorf("RFC 8785 form %s, want %s", rfc8785, want)
	}
}

func TestDigestIgnoresWhatTheRouterStamps(t *testing.T) {
	t.Parallel()
	plain, _ := ParseModule(json.RawMessage(`{"id":"m","name":"n"}`))
	stamped, _ := ParseModule(json.RawMessage(`{"id":"m","name":"n","capabilityEndpointId":"e","provenance":{"issuer":"i","subject":"s","digestSha256":"` + sumHex(nil) + `","signatureAlgorithm":"ed25519","signature":"x"}}`))
	a, b, _ := plain.Digests()
	c, d, _ := stamped.Digests()
	if a != c || b != d {
		t.Errorf("the stamp changed the digest; got a = %v, b = %v; want a = %v, b = %v", a, b, c, d)
	}
}
