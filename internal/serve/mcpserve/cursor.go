package mcpserve

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// cursorKind is the prefix of every cursor. It changes with the layout.
const cursorKind = "list/2"

const cursorMAC = 16

// sealCursor returns the cursor of the page that begins after the name last. It is
// authenticated for this viewer and holds the whole position, so that it outlives changes
// of the catalog and needs no memory in the server.
func sealCursor(key []byte, viewer, method string, generation uint64, last string) string {
	body := binary.BigEndian.AppendUint64([]byte(cursorKind), generation)
	body = append(body, last...)
	return base64.RawURLEncoding.EncodeToString(append(macOf(key, viewer, method, body), body...))
}

// openCursor returns the name after which the page begins. ok is false unless
// sealCursor made the cursor for this viewer.
func openCursor(key []byte, viewer, method string, raw json.RawMessage) (last string, ok bool) {
	text, isText := jsonx.Text(raw)
	data, err := base64.RawURLEncoding.DecodeString(text)
	const fixed = cursorMAC + len(cursorKind) + 8
	if !isText || err != nil || len(data) < fixed {
		return "", false
	}
	if !hmac.Equal(data[:cursorMAC], macOf(key, viewer, method, data[cursorMAC:])) ||
		string(data[cursorMAC:cursorMAC+len(cursorKind)]) != cursorKind {
		return "", false
	}
	return string(data[fixed:]), true
}

func macOf(key []byte, viewer, method string, body []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(viewer))))
	h.Write([]byte(viewer))
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(method))))
	h.Write([]byte(method)) // a cursor of another list is refused
	h.Write(body)
	return h.Sum(nil)[:cursorMAC]
}
