package jsonrpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

func TestDecodeKeepsBytesOfMembers(t *testing.T) {
	t.Parallel()
	m, err := Decode([]byte(` {"result" : { "n": 9007199254740993 } ,"id":"a","jsonrpc":"2.\u0030","x":1} `))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(m.Result), `{ "n": 9007199254740993 }`; got != want {
		t.Errorf("Result = %s, want %s", got, want)
	}
	if !m.HasVersion() || string(m.ID) != `"a"` || m.Method != nil || m.Params != nil || m.Error != nil {
		t.Errorf("Decode = %+v, want version 2.0, id \"a\" and a result only", m)
	}
}

func TestDecodeRefusesMalformedEnvelopes(t *testing.T) {
	t.Parallel()
	for _, in := range []string{
		``, `{`, `{"id":1,"id":2}`, `{"params":{"a":1,"a":2}}`, `{"id":1} x`, `{"id":1}{}`,
	} {
		if m, err := Decode([]byte(in)); err == nil || m.ID != nil {
			t.Errorf("Decode(%s) = %+v, %v, want an error and no members", in, m, err)
		}
	}
	for _, in := range []string{`[]`, `1`, `"x"`, `null`, `true`} {
		if _, err := Decode([]byte(in)); !errors.Is(err, jsonx.ErrNotObject) {
			t.Errorf("Decode(%s) = %v, want ErrNotObject", in, err)
		}
	}
}

func TestMethodName(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]bool{`"ping"`: true, `""`: false, `1`: false, `null`: false, ``: false} {
		m := Message{Method: json.RawMessage(in)}
		if _, ok := m.MethodName(); ok != want {
			t.Errorf("MethodName(%s) = %v, want %v", in, ok, want)
		}
	}
}

func TestAppendedMessages(t *testing.T) {
	t.Parallel()
	for want, got := range map[string][]byte{
		`{"jsonrpc":"2.0","id":1,"method":"a","params":{}}`:                            AppendRequest(nil, []byte("1"), "a", []byte("{}")),
		`{"jsonrpc":"2.0","method":"a\"b"}`:                                            AppendRequest(nil, nil, `a"b`, nil),
		`{"jsonrpc":"2.0","id":"x","result":{}}`:                                       AppendResult(nil, []byte(`"x"`), []byte("{}")),
		`{"jsonrpc":"2.0","id":null,"error":{"code":-1}}`:                              AppendError(nil, nil, []byte(`{"code":-1}`)),
		`{"jsonrpc":"2.0","id":7,"error":{"code":-32700,"message":"<x>"}}`:             AppendFault(nil, []byte("7"), CodeParse, "<x>", nil),
		`{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"","data":[1 ]}}`: AppendFault(nil, nil, CodeInternal, "", []byte("[1 ]")),
		`[{"jsonrpc":"2.0","id":1,"result":`:                                           AppendResultHead([]byte{'['}, []byte("1")),
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`: AppendRequest(nil, nil, "notifications/cancelled",
			[]byte(`{"requestId":1}`)),
	} {
		if string(got) != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// FuzzDecode compares Decode with a decoder that builds a map, and checks that members
// survive being written again. The corpus is that of the decoders which use Decode.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"x":"\ud800"},"_meta":{"progressToken":1}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"x","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`,
		`[]`,
		`{"jsonrpc":"2.0","id":1e5,"method":"\u0061","params":{"arguments" : [1 , 2] }}`,
		`{"jsonrpc":"2.0","id":1,"result":{"a":"\ud800"}}`,
		`[{"jsonrpc":"2.0","method":"x","params":{}}]`,
		`{"jsonrpc":"2.0","id":null,"error":{"code":1e9}}`,
		` {"result" : { } ,"id":"a","jsonrpc":"2.\u0030"} `,
		`{"jsonrpc":"2.0","id":1,"error":"odd"}`,
		`{"jsonrpc":"2.0","id":1,"result":{"a":1,"a":2}}`,
		`{"jsonrpc":"2.0","id":1,"result":{}} x`,
		`{"jsonrpc":"2.0","id":"a","method":"tools/call","params":null}`,
		"{\"id\":\"\xff\"}", `null`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Decode(data)
		var all map[string]jsonx.Raw
		strict := jsonx.Unmarshal(data, &all) == nil && all != nil
		if strict && err != nil {
			t.Fatalf("Decode(%q) = %v, want no error", data, err)
		}
		if err != nil {
			return
		}
		for name, member := range map[string][]byte{
			"jsonrpc": m.Version, "id": m.ID, "method": m.Method, "params": m.Params, "result": m.Result, "error": m.Error,
		} {
			if strict && !bytes.Equal(member, all[name]) {
				t.Errorf("member %s of %q = %s, want %s", name, data, member, all[name])
			}
			if member != nil && (!json.Valid(member) || !bytes.Contains(data, member)) {
				t.Errorf("member %s of %q = %q, want a value of it", name, data, member)
			}
		}
		method, _ := m.MethodName()
		for _, again := range [][]byte{
			AppendRequest(nil, m.ID, method, m.Params), AppendResult(nil, m.ID, or(m.Result, "{}")), AppendError(nil, m.ID, or(m.Error, "{}")),
		} {
			if got, err := Decode(again); err != nil || !got.HasVersion() || !bytes.Equal(or(got.ID, "null"), or(m.ID, "null")) {
				t.Errorf("Decode(%q) = %+v, %v, want the id %s", again, got, err, m.ID)
			}
		}
	})
}

func or(member []byte, other string) []byte {
	if member == nil {
		return []byte(other)
	}
	return member
}
