package cmp

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// Asset is a reference to bytes that the gateway stores. Digest is sha256:<lower-case hex>.
type Asset struct {
	Digest    string `json:"digest"`
	Size      int64  `json:"size"`
	MediaType string `json:"media_type,omitzero"`
	URL       string `json:"url,omitzero"`
}

var digestGrammar = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// Check returns bad_encoding or payload_too_large if the reference is invalid.
func (a Asset) Check() error {
	switch {
	case !digestGrammar.MatchString(a.Digest):
		return Errorf(ReasonEncoding, "the digest of an asset must be sha256: and 64 hexadecimal digits in lower case, not %.90q", a.Digest)
	case a.Size < 0:
		return Errorf(ReasonEncoding, "the size of an asset must not be negative")
	case a.Size > MaxAsset:
		return Errorf(ReasonTooLarge, "the asset has %d bytes; the limit is %d", a.Size, MaxAsset)
	case len(a.MediaType) > MaxName || len(a.URL) > 2048:
		return Errorf(ReasonEncoding, "the media type of an asset has at most %d bytes, its address 2048", MaxName)
	}
	return nil
}

// BytesValue returns the JSON form of bytes.
func BytesValue(b []byte) json.RawMessage {
	return json.RawMessage(`{"$bytes":"` + base64.StdEncoding.EncodeToString(b) + `"}`)
}

// AssetValue returns the JSON form of a reference to an asset.
func AssetValue(a Asset) json.RawMessage {
	data, err := jsonx.Marshal(map[string]Asset{"$asset": a})
	if err != nil {
		return nil // only for text that is not UTF-8, which Check rejects
	}
	return data
}

// ReadBytes returns the bytes that a value represents. ok is false for any other value. An object with
// only $bytes whose value is not base64 is bad_encoding.
func ReadBytes(v json.RawMessage) (b []byte, ok bool, err error) {
	inner, ok := only(v, "$bytes")
	if !ok {
		return nil, false, nil
	}
	var s string
	if err := jsonx.Unmarshal(inner, &s); err != nil {
		return nil, true, Errorf(ReasonEncoding, "$bytes must be text")
	}
	if b, err = base64.StdEncoding.Strict().DecodeString(s); err != nil {
		return nil, true, Errorf(ReasonEncoding, "$bytes must be standard base64 with padding")
	}
	return b, true, nil
}

// ReadAsset is like ReadBytes for references to assets.
func ReadAsset(v json.RawMessage) (a Asset, ok bool, err error) {
	inner, ok := only(v, "$asset")
	if !ok {
		return Asset{}, false, nil
	}
	if err := jsonx.Unmarshal(inner, &a); err != nil {
		return Asset{}, true, Errorf(ReasonEncoding, "$asset: %w", err)
	}
	return a, true, a.Check()
}

// only returns the value of the member name of an object that has no other member.
func only(v json.RawMessage, name string) (json.RawMessage, bool) {
	v = bytes.TrimSpace(v)
	if len(v) == 0 || v[0] != '{' || !bytes.Contains(v[:min(len(v), 64)], []byte(name)) {
		return nil, false
	}
	var members map[string]json.RawMessage
	if err := jsonx.Unmarshal(v, &members); err != nil || len(members) != 1 || members[name] == nil {
		return nil, false
	}
	return members[name], true
}

// Words returns the words trimmed and sorted, without empty and repeated ones. It never returns nil.
func Words(in []string) []string {
	out := make([]string, 0, len(in))
	for _, s := range in {
		if s = strings.TrimSpace(s); s != "" {
			out = append(out, s)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
