package sealed

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// cursorKind begins every cursor, so that one of an older layout is told apart.
const cursorKind = "list/2"

const cursorMAC = 16

// Cursor says where the next page begins: after the tool called last. It
// holds everything itself, so that it survives changes of the catalog and needs
// no memory here, and it is authenticated for this viewer.
func Cursor(key []byte, viewer, method string, generation uint64, last string) string {
	body := binary.BigEndian.AppendUint64([]byte(cursorKind), generation)
	body = append(body, last...)
	return base64.RawURLEncoding.EncodeToString(append(macOf(key, viewer, method, body), body...))
}

// OpenCursor returns the name after which to go on; ok is false for anything
// that Cursor did not make for this viewer.
func OpenCursor(key []byte, viewer, method string, raw json.RawMessage) (last string, ok bool) {
	text, isText := jsonx.Text(raw)
	data, err := base64.RawURLEncoding.DecodeString(text)
	const fixed = cursorMAC + len(cursorKind) + 8
	if !isText || err != nil || len(data) < fixed {
		return "", false
	}
	if !hmac.Equal(data[:cursorMAC], macOf(key, viewer, method, data[cursorMAC:])) || string(data[cursorMAC:cursorMAC+len(cursorKind)]) != cursorKind {
		return "", false
	}
	return string(data[fixed:]), true
}

func macOf(key []byte, viewer, method string, body []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(viewer))))
	h.Write([]byte(viewer))
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(method))))
	h.Write([]byte(method)) // one made for another list is no cursor of this
	h.Write(body)
	return h.Sum(nil)[:cursorMAC]
}
