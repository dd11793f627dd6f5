// Package wire declares the messages between a node and its gateway, with their bounds, codec
// and subjects. It does no I/O; the sessions on both sides send and receive the messages.
//
// Messages are JSON; unknown members are ignored. Every decoder checks bounds, and every
// encoder rejects messages that the other side would not accept.
package wire

import (
	"strings"

	"github.com/junctor-run/junctor/protocol/cmp"
)

// The subjects of messages. The functions escape the ids of nodes and gateways.

// SubjectJoin is the subject of a node's Join.
func SubjectJoin(node string) string { return fromNode(node) + ".join" }

// SubjectUpdate is the subject of a node's Update.
func SubjectUpdate(node string) string { return fromNode(node) + ".update" }

// SubjectBeat is the subject of a node's heartbeats.
func SubjectBeat(node string) string { return fromNode(node) + ".beat" }

// SubjectLeave is the subject of a node's Leave.
func SubjectLeave(node string) string { return fromNode(node) + ".leave" }

// SubjectReply is the subject of a node's frames for one call, to the gateway instance that made the
// call. callID must be one token; see [CheckCallID].
func SubjectReply(node, gateway, callID string) string {
	return fromNode(node) + ".reply." + Escape(gateway) + "." + callID
}

// SubjectReplies is the subject on which a gateway instance receives the frames of all nodes.
func SubjectReplies(gateway string) string { return "v1.gw.*.reply." + Escape(gateway) + ".>" }

// SubjectCall is the subject of calls to a node.
func SubjectCall(node string) string { return "v1.host." + Escape(node) + ".call" }

// SubjectControl is the subject of control messages to a node.
func SubjectControl(node string) string { return "v1.host." + Escape(node) + ".ctl" }

// SubjectUpward is the subject of a node's calls to its gateway.
func SubjectUpward(node string) string { return "v1.node." + Escape(node) + ".call" }

// Permissions returns the subjects that a node may subscribe to and publish to.
func Permissions(node string) (subscribe, publish []string) {
	n := Escape(node)
	return []string{"v1.host." + n + ".>", "_INBOX." + n + ".>"}, []string{"v1.gw." + n + ".>", "v1.node." + n + ".call"}
}

func fromNode(node string) string { return "v1.gw." + Escape(node) }

const upperHex = "0123456789ABCDEF"

// Escape returns an id as one token: each byte outside [A-Za-z0-9_-] becomes = and two upper-case hex
// digits.
func Escape(id string) string {
	odd := 0
	for i := range len(id) {
		if !bare(id[i]) {
			odd++
		}
	}
	if odd == 0 {
		return id
	}
	var b strings.Builder
	b.Grow(len(id) + 2*odd)
	for i := range len(id) {
		if c := id[i]; bare(c) {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'=', upperHex[c>>4], upperHex[c&15]})
		}
	}
	return b.String()
}

func bare(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-'
}

// Unescape is the inverse of [Escape]. A token that Escape does not produce is bad_encoding, so that
// every id has one token.
func Unescape(token string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(token); i++ {
		c := token[i]
		if c != '=' {
			b.WriteByte(c)
			continue
		}
		if i+2 >= len(token) {
			break
		}
		hi, lo := strings.IndexByte(upperHex, token[i+1]), strings.IndexByte(upperHex, token[i+2])
		if hi < 0 || lo < 0 {
			break
		}
		b.WriteByte(byte(hi<<4 | lo))
		i += 2
	}
	if id := b.String(); id != "" && Escape(id) == token {
		return id, nil
	}
	return "", cmp.Errorf(cmp.ReasonEncoding, "%.140q is no token of a subject", token)
}

// NodeOf returns the id of the node that sends or receives on a subject. The permissions of the NATS
// server guarantee that it is genuine.
func NodeOf(subject string) (string, error) {
	parts := strings.Split(subject, ".")
	if len(parts) < 4 || parts[0] != "v1" || parts[1] != "gw" && parts[1] != "host" && parts[1] != "node" {
		return "", cmp.Errorf(cmp.ReasonEncoding, "%.140q is no subject of a node", subject)
	}
	id, err := Unescape(parts[2])
	if err != nil {
		return "", err
	}
	return id, cmp.CheckNode(id)
}

// CheckCallID returns an error unless id is a valid call id: 1 to 128 of [A-Za-z0-9_-], which is one
// token of a subject.
func CheckCallID(id string) error {
	if id == "" || len(id) > cmp.MaxName || Escape(id) != id {
		return cmp.Errorf(cmp.ReasonEncoding, "%.140q is no id of a call: it is 1 to 128 letters, digits, underscores and hyphens", id)
	}
	return nil
}
