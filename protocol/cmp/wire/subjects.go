// Package wire has the messages between a node and its gateway: their shapes,
// bounds and codec, and the subjects they travel on. Moving them is the business of
// a session on either side; nothing here does I/O.
//
// Messages are JSON; unknown members are ignored. Every decoder bounds what it
// takes, and every encoder refuses what the other side would not take, before it is
// sent.
package wire

import (
	"strings"

	"github.com/junctor-run/junctor/protocol/cmp"
)

// The subjects of messages. node and gateway are unescaped ids; the functions escape
// them.

// SubjectJoin is where a node asks to be let in.
func SubjectJoin(node string) string { return fromNode(node) + ".join" }

// SubjectUpdate is where a node reports that its functions or labels are others.
func SubjectUpdate(node string) string { return fromNode(node) + ".update" }

// SubjectBeat is where a node reports that it lives.
func SubjectBeat(node string) string { return fromNode(node) + ".beat" }

// SubjectLeave is where a node reports that it goes.
func SubjectLeave(node string) string { return fromNode(node) + ".leave" }

// SubjectReply is where a node answers one call, to the gateway instance that made
// it. A call id must be one token; [CheckCallID] states what that is.
func SubjectReply(node, gateway, callID string) string {
	return fromNode(node) + ".reply." + Escape(gateway) + "." + callID
}

// SubjectReplies is the subject on which a gateway instance receives the answers of all nodes.
func SubjectReplies(gateway string) string { return "v1.gw.*.reply." + Escape(gateway) + ".>" }

// SubjectCall is where a gateway calls a node.
func SubjectCall(node string) string { return "v1.host." + Escape(node) + ".call" }

// SubjectControl is where a gateway tells a node what concerns calls and the
// session.
func SubjectControl(node string) string { return "v1.host." + Escape(node) + ".ctl" }

// SubjectUpward is where a node calls what the gateway has.
func SubjectUpward(node string) string { return "v1.node." + Escape(node) + ".call" }

// Permissions are all that a node may subscribe and publish to.
func Permissions(node string) (subscribe, publish []string) {
	n := Escape(node)
	return []string{"v1.host." + n + ".>", "_INBOX." + n + ".>"}, []string{"v1.gw." + n + ".>", "v1.node." + n + ".call"}
}

func fromNode(node string) string { return "v1.gw." + Escape(node) }

const upperHex = "0123456789ABCDEF"

// Escape makes one token of an id: each byte outside [A-Za-z0-9_-] becomes = and
// two upper-case hex digits.
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

// Unescape is the inverse of [Escape]. A token that Escape would not have written
// is bad_encoding, so that no id has two spellings.
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

// NodeOf is the node that a message on a subject is from or for; the server's
// permissions make that true.
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

// CheckCallID states what is wrong with the id of a call: it is 1 to 128 of
// [A-Za-z0-9_-], one token of a subject.
func CheckCallID(id string) error {
	if id == "" || len(id) > cmp.MaxName || Escape(id) != id {
		return cmp.Errorf(cmp.ReasonEncoding, "%.140q is no id of a call: it is 1 to 128 letters, digits, underscores and hyphens", id)
	}
	return nil
}
