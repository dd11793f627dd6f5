package upstream_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// playHostile is an MCP server that means no good: it lists definitions of every bad
// kind and one sound one, pages without an end, and floods with notices.
func playHostile() {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := bufio.NewWriterSize(os.Stdout, 1<<20)
	page := 0
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct{ Cursor, Name string }
		}
		if json.Unmarshal(line, &m) != nil || m.ID == nil {
			continue
		}
		result := `{}`
		switch m.Method {
		case "server/discover":
			fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`+"\n", m.ID)
			_ = out.Flush()
			continue
		case "initialize":
			result = `{"protocolVersion":"2025-11-25","serverInfo":{"name":"evil\u202e","version":"1"},"capabilities":{"tools":{"listChanged":true},"prompts":{}}}`
		case "tools/list":
			page++
			if m.Params.Cursor == "" {
				result = `{"tools":[` + strings.Join(hostileTools(), ",") + `],"nextCursor":"c0"}`
			} else {
				result = fmt.Sprintf(`{"tools":[{"name":"filler%d","inputSchema":{"type":"array"}}],"nextCursor":"c%d"}`, page, page)
			}
			for range 50 {
				fmt.Fprintln(out, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
			}
		case "prompts/list":
			continue // never answers
		case "tools/call":
			result = `{"content":[{"type":"text","text":"sound"}]}`
		}
		fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", m.ID, result)
		_ = out.Flush()
	}
}

func hostileTools() []string {
	return []string{
		def("sound", ""), def(`evil\u0007`, ""), `{"name":""}`, `{"name":"noschema"}`, `{"name":"nullschema","inputSchema":null}`,
		`{"name":"arr","inputSchema":[]}`,
		`{"name":"remote","inputSchema":{"type":"object","$ref":"http://127.0.0.1:1/x"}}`,
		`{"name":"badheader","inputSchema":{"type":"object","properties":{"x":{"type":"string","x-mcp-header":"a b"}}}}`,
		def("dup", ""), def("dup", `"title":"other"`), `7`, `null`, def("big", `"description":"`+strings.Repeat("x", 10<<20)+`"`),
	}
}

// TestAHostileUpstreamCostsItselfOnly holds that a server with oversized and malformed
// lists neither delays calls to others nor fills the memory.
func TestAHostileUpstreamCostsItselfOnly(t *testing.T) {
	r := realRig(t)
	r.add("far", program("sdk", nil))
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	added := make(chan error, 1)
	go func() {
		rec := recordOf("evil")
		program("hostile", nil)(&rec)
		_, err := r.Add(t.Context(), admin(), rec)
		added <- err
	}()
	beside := 0
	deadline := time.After(60 * time.Second)
	for done := false; !done; {
		if _, err := r.tool("echo", `{}`); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-added:
			if err != nil {
				t.Fatal(err)
			}
			done = true
		case <-deadline:
			t.Fatal("the hostile upstream is never added")
		default:
			beside++
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	grown := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	t.Logf("%d calls were answered while it was added; %d KiB are kept", beside, grown>>10)
	// A call that waited for it would be answered after it.
	if beside < 10 || grown > 64<<20 {
		t.Errorf("others pay for it; got beside = %d, grown = %v; want beside at least 10, grown at most 64 << 20", beside, grown)
	}
	s, err := r.Show("evil")
	if err != nil || s.Counts.Tools != 1 || s.Definitions[0].Name != "sound" || s.Counts.Dropped < 12 || s.Lists["tool"] == "" {
		t.Errorf(`%v: %+v %v; want no error, s.Counts.Tools = 1, s.Definitions[0].Name = "sound", s.Counts.Dropped at least 12, `+
			`s.Lists["tool"] other than ""`, err, s.Counts, s.Lists)
	}
	for _, d := range s.Dropped {
		if d.Reason == "" || strings.ContainsAny(d.Name+d.Reason, "\u202e\u0007") {
			t.Errorf(`%+v; want d.Reason other than "", d.Name + d.Reason without any of "\u202e\u0007"`, d)
		}
	}
	if strings.Contains(s.Server.Name, "\u202e") {
		t.Error("its name turns the direction of writing")
	}
}
