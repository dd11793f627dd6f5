package wire

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/protocol/cmp"
)

// ProofScheme is the scheme of the Authorization header with which a node authenticates its HTTP
// requests to the gateway.
const ProofScheme = "Node"

// ReasonProof is the reason of every error about a proof.
const ReasonProof = "invalid_proof"

// Proof identifies the node that made one HTTP request, and the time.
type Proof struct {
	Node  string `json:"node"`
	TS    int64  `json:"ts"`    // unix seconds
	Nonce string `json:"nonce"` // random, 16 to 64 bytes

	said string // the base64url text of the fields
	sig  []byte
}

// SigningBytes returns the bytes that a proof signs: a constant line that no other signature of the key
// has, the method, the path as sent, and the first part of the header, each followed by a
// newline.
func SigningBytes(method, path, first string) []byte {
	return []byte("junctor-node-request-v1\n" + method + "\n" + path + "\n" + first + "\n")
}

// SignRequest returns the Authorization header of one request: "Node ", base64url of the JSON of a
// [Proof], a dot, and base64url of the signature of its [SigningBytes], both without padding.
// sign signs with the node's key.
func SignRequest(node, method, path string, now time.Time, sign func([]byte) ([]byte, error)) (string, error) {
	if err := cmp.CheckNode(node); err != nil {
		return "", err
	}
	if sign == nil {
		return "", proofError("the node has no key")
	}
	data, err := jsonx.Marshal(&Proof{Node: node, TS: now.Unix(), Nonce: rand.Text()})
	if err != nil {
		return "", err
	}
	first := base64.RawURLEncoding.EncodeToString(data)
	sig, err := sign(SigningBytes(method, path, first))
	if err != nil {
		return "", capability.Wrap(capability.CodeInternal, "node.sign", "the request cannot be signed with the node's key", err)
	}
	return ProofScheme + " " + first + "." + base64.RawURLEncoding.EncodeToString(sig), nil
}

// ReadProof parses the header without verifying it. Node identifies the key for [Proof.Verify]. Errors
// are unauthenticated, reason invalid_proof.
func ReadProof(header string) (Proof, error) {
	rest, ok := strings.CutPrefix(header, ProofScheme+" ")
	first, last, both := strings.Cut(rest, ".")
	if !ok || !both || len(header) > maxProof {
		return Proof{}, proofError("the header must be Node <proof>.<signature> of at most %d bytes", maxProof)
	}
	strict := base64.RawURLEncoding.Strict()
	data, err := strict.DecodeString(first)
	sig, errSig := strict.DecodeString(last)
	if err != nil || errSig != nil || len(sig) != ed25519.SignatureSize {
		return Proof{}, proofError("the proof or its signature is not base64url")
	}
	p := Proof{said: first, sig: sig}
	if cmp.CheckJSON(data) != nil || json.Unmarshal(data, &p) != nil {
		return Proof{}, proofError("the proof is not a JSON object of node, ts and nonce")
	}
	if cmp.CheckNode(p.Node) != nil || len(p.Nonce) < 16 || len(p.Nonce) > 64 {
		return Proof{}, proofError("the proof needs a node's id and a nonce of 16 to 64 bytes")
	}
	return p, nil
}

// Verify checks that a proof is signed with the key for this method and path, and that its time is at
// most [ProofTTL] from now. It does not detect a repeated proof within that time, so requests
// must be harmless if repeated. Errors are unauthenticated, reason invalid_proof.
func (p *Proof) Verify(key ed25519.PublicKey, method, path string, now time.Time) error {
	if len(key) != ed25519.PublicKeySize || !ed25519.Verify(key, SigningBytes(method, path, p.said), p.sig) {
		return proofError("the signature is not of this node's key, or for another request")
	}
	if p.TS < now.Add(-ProofTTL).Unix() || p.TS > now.Add(ProofTTL).Unix() {
		return proofError("the proof is more than %d minutes from the gateway's time", int(ProofTTL/time.Minute)).
			With(ReasonProof, "take the time from server_time of the answer to the join")
	}
	return nil
}

func proofError(format string, args ...any) *capability.Error {
	return capability.Errorf(capability.CodeUnauthenticated, "node.proof", format, args...).With(ReasonProof, "")
}
