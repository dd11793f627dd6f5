package wire

import (
	"crypto/ed25519"
	"encoding/base32"
	"encoding/binary"
	"encoding/json"

	"github.com/junctor-run/junctor/protocol/cmp"
)

// Upward is a call of a node to a capability of its gateway: a request on SubjectUpward, whose reply
// is an [UpwardReply]. The node is the principal.
type Upward struct {
	CallID string `json:"call_id"`
	// Action is a canonical action or the id of one capability.
	Action         string          `json:"action"`
	Input          json.RawMessage `json:"input,omitzero"`  // an object; absent: {}
	Select         string          `json:"select,omitzero"` // selector among several providers
	DeadlineMS     int64           `json:"deadline_ms"`     // remaining time; 0: the gateway's default
	IdempotencyKey string          `json:"idempotency_key,omitzero"`
	Trace          Trace           `json:"trace"`
}

// UpwardReply is the reply to an [Upward].
type UpwardReply struct {
	OK         bool            `json:"ok"`
	Result     json.RawMessage `json:"result,omitzero"` // or an asset
	Error      *cmp.WireError  `json:"error,omitzero"`
	Invocation string          `json:"invocation,omitzero"` // its id in the gateway's audit
}

func (u *Upward) check() error {
	if err := CheckCallID(u.CallID); err != nil {
		return err
	}
	switch {
	case u.Action == "" || len(u.Action) > maxText:
		return wrong("action must be 1 to %d bytes", maxText)
	case len(u.Input) > 0 && u.Input[0] != '{':
		return wrong("input must be an object")
	case u.DeadlineMS < 0 || u.DeadlineMS > maxDeadline:
		return wrong("deadline_ms must be 0 to %d", maxDeadline)
	case len(u.IdempotencyKey) > cmp.MaxName:
		return wrong("idempotency_key has more than %d bytes", cmp.MaxName)
	case u.Trace.Parent != "" && !traceGrammar.MatchString(u.Trace.Parent):
		return wrong("traceparent has not the form of W3C trace context")
	}
	return texts(u.Select)
}

func (u *UpwardReply) check() error {
	if u.OK == (u.Error != nil) || !u.OK && u.Result != nil {
		return wrong("an answer has either a result or an error")
	}
	return texts(u.Invocation)
}

// EnrolPath is the path for an [Enrol] by POST, with the operator's node token as bearer token.
// AssetsPath, followed by a digest in hex, is the path of assets, with a proof of
// [SignRequest].
const (
	EnrolPath  = "/nodes/enroll"
	AssetsPath = "/nodes/assets/"
)

// Enrol registers a node's key with a gateway.
type Enrol struct {
	NodeID    string `json:"node_id"`
	PublicKey string `json:"public_key"` // NKey form, U…
}

// EnrolReply is the reply to an Enrol: the node's id, and the labels that its token grants.
type EnrolReply struct {
	NodeID string   `json:"node_id"`
	Labels []string `json:"labels"`
}

func (e *Enrol) check() error {
	if err := cmp.CheckNode(e.NodeID); err != nil {
		return err
	}
	_, err := PublicKey(e.PublicKey)
	return err
}

func (e *EnrolReply) check() (err error) {
	if err := cmp.CheckNode(e.NodeID); err != nil {
		return err
	}
	e.Labels, err = cmp.Labels(e.Labels)
	return err
}

// nodeKey is the first byte of a node's key in NKey form, which results in the letter U.
const nodeKey = 20 << 3

// PublicKey parses a node's key in NKey form: base32 of one byte for its kind, the Ed25519 key, and a
// checksum. Any other text is bad_encoding.
func PublicKey(text string) (ed25519.PublicKey, error) {
	raw, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(text)
	if len(text) > 64 || err != nil || len(raw) != 1+ed25519.PublicKeySize+2 || raw[0] != nodeKey {
		return nil, wrong("public_key is not the key of a node: it has 56 letters and begins with U")
	}
	body, sum := raw[:len(raw)-2], raw[len(raw)-2:]
	if crc16(body) != binary.LittleEndian.Uint16(sum) {
		return nil, wrong("public_key has a mistake: its checksum does not fit")
	}
	return ed25519.PublicKey(body[1:]), nil
}

// crc16 returns the CRC-16/XMODEM of data.
func crc16(data []byte) (crc uint16) {
	for _, b := range data {
		crc ^= uint16(b) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc
}
