package mcpclient

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/protocol/jsonrpc"
	"github.com/junctor-run/junctor/protocol/mcpwire"
)

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		in     string
		method string
		result string
		fault  int64
		bad    bool
	}{
		{in: `{"jsonrpc":"2.0","id":1,"result":{"n":9007199254740993}}`, result: `{"n":9007199254740993}`},
		{in: ` {"result" : { } ,"id":"a","jsonrpc":"2.\u0030"} `, result: `{ }`},
		{in: `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}`, fault: -32700},
		{in: `{"jsonrpc":"2.0","id":1,"error":"odd"}`, fault: -32603},
		{in: `{"jsonrpc":"2.0","method":"ping","id":3,"params":null}`, method: "ping"},
		{in: `{"jsonrpc":"2.0","method":"ping","params":[]}`, bad: true},
		{in: `{"jsonrpc":"2.0","id":1,"result":{},"result":{}}`, bad: true},
		{in: `{"jsonrpc":"2.0","id":1,"result":{"a":1,"a":2}}`, bad: true},
		{in: `{"jsonrpc":"2.0","id":1,"result":{},"error":{}}`, bad: true},
		{in: `{"jsonrpc":"2.0","id":1,"method":"x","result":{}}`, bad: true},
		{in: `{"jsonrpc":"1.0","id":1,"result":{}}`, bad: true},
		{in: `{"jsonrpc":"2.0","id":1}`, bad: true},
		{in: `{"jsonrpc":"2.0","id":"` + strings.Repeat("x", 600) + `","method":"x"}`, bad: true},
		{in: `{"jsonrpc":"2.0","id":1,"result":{}} x`, bad: true},
		{in: `[]`, bad: true},
		{in: `[1]`, bad: true},
		{in: ``, bad: true},
	} {
		list, err := parseAll([]byte(tt.in))
		if (err != nil) != tt.bad {
			t.Errorf("%s: %v; want (err != nil) = %v", tt.in, err, tt.bad)
		}
		if tt.bad || err != nil {
			continue
		}
		m := list[0]
		if m.method != tt.method || string(m.result) != tt.result || (m.fault != nil) != (tt.fault != 0) || m.fault != nil &&
			m.fault.code != tt.fault {
			t.Errorf("%s: %+v; want m.method = %v, string(m.result) = %v, (m.fault != nil) = (tt.fault != 0), not (m.fault != "+
				"nil && m.fault.code != tt.fault)", tt.in, m, tt.method, tt.result)
		}
	}
}

func TestEvents(t *testing.T) {
	in := newEvents(strings.NewReader("\xef\xbb\xbf: comment\r\nid: 1\r\nevent: message\r\ndata: a\r\ndata:b\r\n\r\nid: 2\nretry: 40\ndata\n\nid: bad\x00\nretry: x\ndata:  c\n\nretry: 99999999\n\nid: 9\ndata: cut"), 100)
	for _, want := range []struct {
		data, last string
		retry      time.Duration
	}{{"a\nb", "1", 0}, {" c", "2", 40 * time.Millisecond}} {
		ev, err := in.next()
		if err != nil || string(ev.data) != want.data || in.lastID != want.last || in.retry != want.retry || !ev.isMessage() {
			t.Errorf("%q %v %q %v, want %+v", ev.data, err, in.lastID, in.retry, want)
		}
	}
	if _, err := in.next(); !errors.Is(err, io.EOF) || in.lastID != "2" || in.retry != maxRetryDelay {
		t.Errorf(`%v %s %v; want err is io.EOF, in.lastID = "2", in.retry = %v`, err, in.lastID, in.retry, maxRetryDelay)
	}
	for _, long := range []string{
		"data: " + strings.Repeat("x", 1<<20), strings.Repeat("data: x\n", 1000),
		": " + strings.Repeat("x", 1<<20) + "\n\n",
	} {
		if _, err := newEvents(strings.NewReader(long), 1000).next(); !errors.Is(err, errTooLarge) {
			t.Errorf("%d bytes: %v; want err is %v", len(long), err, errTooLarge)
		}
	}
}

func TestHeaderValues(t *testing.T) {
	for in, want := range map[string]string{
		"plain": "plain", "": "", " x": "=?base64?IHg=?=", "a\r\nb": "=?base64?YQ0KYg==?=", "=?base64?eA==?=": "=?base64?PT9iYXNlNjQ/ZUE9PT89?=",
		"ü": "=?base64?w7w=?=",
	} {
		if got := headerValue(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"result":{"a":"\ud800"}}`))
	f.Add([]byte(`[{"jsonrpc":"2.0","method":"x","params":{}}]`))
	f.Add([]byte(`{"jsonrpc":"2.0","id":null,"error":{"code":1e9}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := parseAll(data)
		if err != nil {
			return
		}
		for _, m := range list {
			if m.response() == (m.method != "") || m.response() && (m.result == nil) == (m.fault == nil) {
				t.Fatalf(`%+v; want m.response() other than (m.method != ""), not (m.response() && (m.result == nil) == (m.fault == nil))`,
					m)
			}
			if m.result != nil && (!bytes.Contains(data, m.result) || !isValue(m.result)) {
				t.Fatalf("%s is not of %s; want not (m.result != nil && (!bytes.Contains(data, m.result) || !isValue(m.result)))",
					m.result, data)
			}
			_ = resultType(m.result)
			_, _ = idIn(data)
			if m.id != nil {
				if again, err := parse(jsonrpc.AppendResult(nil, m.id, json.RawMessage("{}"))); err != nil || !bytes.Equal(again.id, m.id) {
					t.Fatalf("%s: %v; want no error, again.id = %v", m.id, err, m.id)
				}
			}
		}
	})
}

func FuzzEvents(f *testing.F) {
	f.Add([]byte("id: 1\ndata: {}\n\n: x\r\nretry: 5\n\n"))
	f.Add([]byte("data\n\ndata: a\ndata: b\n\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		in := newEvents(bytes.NewReader(data), 64)
		for {
			ev, err := in.next()
			if err != nil {
				return
			}
			if len(ev.data) == 0 || len(ev.data) > 200 || len(in.lastID) > maxEventID || in.retry > maxRetryDelay {
				t.Fatalf("%q %q %v; want len(ev.data) other than 0, len(ev.data) at most 200, len(in.lastID) at most %v, "+
					"in.retry at most %v", ev.data, in.lastID, in.retry, maxEventID, maxRetryDelay)
			}
		}
	})
}

func FuzzLines(f *testing.F) {
	f.Add([]byte("a\n\nbc"))
	f.Fuzz(func(t *testing.T, data []byte) {
		in := bufio.NewReaderSize(bytes.NewReader(data), 16)
		total := 0
		for {
			line, whole, err := readLine(in, 8<<10)
			if err != nil {
				break
			}
			if bytes.IndexByte(line, '\n') >= 0 || len(line) > 8<<10 {
				t.Fatalf(`%q; want bytes.IndexByte(line, '\n') less than 0, len(line) at most 8 << 10`, line)
			}
			if whole {
				total += len(line) + 1
			}
		}
		if total > len(data)+1 {
			t.Fatalf("%d bytes of %d; want total at most len(data) + 1", total, len(data))
		}
	})
}

// FuzzParams holds that whatever a caller hands in, one whole JSON object goes out, with
// no foreign request for ours.
func FuzzParams(f *testing.F) {
	f.Add([]byte(`{"name":"x"}`), []byte(`{"a":1}`), []byte(`{}`), []byte(`"s"`))
	f.Add([]byte(` {"_meta":{},"requestState":1} `), []byte(`{"progressToken":1,"io.modelcontextprotocol/x":1}`), []byte(`{`),
		[]byte(`1,"x":2`))
	f.Fuzz(func(t *testing.T, params, meta, responses, state []byte) {
		for _, version := range []string{mcpwire.Version20260728, mcpwire.Version20251125} {
			c := &Client{}
			k := &conn{c: c, server: Server{Version: version}}
			out, err := c.params(k, 7, &Request{Params: params, Meta: meta}, responses, state)
			if err != nil {
				continue
			}
			if !isObject(out) || bytes.ContainsAny(oneLine(out), "\r\n") {
				t.Fatalf(`%s; want isObject(out), not bytes.ContainsAny(oneLine(out), "\r\n")`, out)
			}
			got := member(out, "_meta")
			if version == mcpwire.Version20260728 && text(got, mcpwire.MetaPrefix+"protocolVersion", 32) != mcpwire.Version20260728 ||
				member(got, "progressToken") != nil {
				t.Fatalf("%s", out)
			}
		}
	})
}
