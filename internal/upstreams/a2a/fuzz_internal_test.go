package a2a

import (
	"bytes"
	"net/url"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// FuzzAnswers feeds streams of a hostile agent to a call: whatever comes, the result is
// JSON or an error.
func FuzzAnswers(f *testing.F) {
	f.Add([]byte("data: {\"result\":{\"task\":{\"id\":\"t\",\"status\":{\"state\":\"TASK_STATE_COMPLETED\"},\"artifacts\":[{\"artifactId\":\"a\",\"parts\":[{\"data\":[1]},{\"raw\":\"AA==\"},{\"url\":\"x\"}]}]}}}\n\n"))
	f.Add([]byte("data: {\"error\":{\"code\":-1,\"message\":\"no\"}}\n\ndata: x"))
	f.Add([]byte("data:{\"result\":{\"artifactUpdate\":{\"append\":true,\"artifact\":{\"artifactId\":\"a\",\"parts\":[{\"text\":\"x\"}]}}}}\n\n: beat\n\ndata: {\"result\":{\"message\":{\"parts\":[{\"data\":{}}]}}}"))
	f.Add([]byte("data: {\"result\":{\"kind\":\"task\",\"id\":\"t\",\"status\":{\"state\":\"completed\"},\"artifacts\":[{\"parts\":[{\"kind\":\"file\",\"file\":{}}]}]}}"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		a, err := New(Config{Name: "x", Card: "https://a.example/"})
		if err != nil {
			t.Fatal(err)
		}
		for _, protocol := range []string{version10, version03} {
			w := &work{link: &link{agent: a}, r: &Request{Progress: func(capability.Chunk) {}}}
			for data, err := range events(bytes.NewReader(stream)) {
				if err != nil {
					return
				}
				raw, err := decodeReply(data)
				if err != nil {
					break
				}
				e, err := decodeEvent(protocol, raw)
				if err != nil || w.handleEvent(e) != nil {
					break
				}
			}
			if value, err := w.result(); err == nil && !jsonx.Valid(value) {
				t.Errorf("%s %v; want not (err == nil && !jsonx.Valid(value))", value, err)
			}
		}
	})
}

// FuzzCards reads hostile cards: what is taken has an address that may be reached, and
// names that can be published.
func FuzzCards(f *testing.F) {
	f.Add([]byte(`{"name":"x","supportedInterfaces":[{"url":"https://a.example/","protocolBinding":"JSONRPC","protocolVersion":"1.0"}],"skills":[{"id":"a b","description":"x"}]}`))
	f.Add([]byte(`{"supportedInterfaces":[null,{}],"skills":null}`))
	f.Add([]byte(`{"url":"https://a.example/","protocolVersion":"0.3.0","skills":[{"id":"a","description":7},{"id":"b"}],"additionalInterfaces":[{}]}`))
	a, err := New(Config{Name: "x", Card: "https://a.example/"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		card, err := a.read(body, true)
		if err != nil {
			return
		}
		for _, raw := range card.Definitions {
			var d definition
			if err := jsonx.Unmarshal(raw, &d); err != nil {
				t.Fatal(err)
			}
			u, err := url.Parse(d.Meta.A2A.Interface.URL)
			if err != nil || !a.own(u) || d.Name != slug(d.Name) {
				t.Errorf("%s; want no error, a.own(u), d.Name = slug(d.Name)", raw)
			}
		}
	})
}

// FuzzSignatures: only what the key signed comes through, and these are unsigned.
func FuzzSignatures(f *testing.F) {
	f.Add([]byte(`{"name":"x","signatures":[{"protected":"eyJhbGciOiJub25lIn0","signature":""},{"protected":"eyJhbGciOiJFUzI1NiJ9","signature":"AA"}]}`))
	key := []byte(`{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}`)
	f.Fuzz(func(t *testing.T, body []byte) {
		if out, err := verified(body, [][]byte{key}); err == nil {
			t.Errorf("%s; want an error", out)
		}
	})
}
