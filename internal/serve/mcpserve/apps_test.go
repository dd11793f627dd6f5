package mcpserve

import (
	"strings"
	"testing"
)

func TestAPageCallsTheToolsOfItsServerByTheirNames(t *testing.T) {
	st := newStack(t, stackOptions{})
	paged, plain, second := &upstream{}, &upstream{}, &upstream{}
	page := `,"_meta":{"ui":{"resourceUri":"ui://a/page"}}`
	st.offer(paged.batch("mcp.paged", declared("show", page), declared("refresh", ""), declared("secret", `,"_meta":{"ui":{"visibility":["model"]}}`)))
	st.offer(plain.batch("mcp.plain", declared("refresh", ""), declared("secret", ""), declared("other", "")))
	wants(t, st.modern(st.agent, "tools/list", "", "").body, `"resourceUri":"ui://a/page"`)
	call := func(name string) string { return st.modern(st.agent, "tools/call", name, `"name":"`+name+`",`).body }

	if body := call("refresh"); len(paged.inputs) != 1 || len(plain.inputs) != 0 {
		t.Errorf("refresh: %d calls of the server with the page, %d of the other, want 1 and 0: %s", len(paged.inputs), len(plain.inputs), body)
	}
	if body := call("secret"); len(paged.inputs) != 1 || len(plain.inputs) != 0 || !strings.Contains(body, "unknown") {
		t.Errorf("a tool that is not for pages: %d and %d calls, want no new one: %s", len(paged.inputs), len(plain.inputs), body)
	}
	st.offer(second.batch("mcp.second", declared("show", page), declared("refresh", "")))
	if body := call("refresh"); len(paged.inputs) != 1 || len(second.inputs) != 0 || !strings.Contains(body, "unknown") {
		t.Errorf("with two such servers: %d and %d calls, want no new one: %s", len(paged.inputs), len(second.inputs), body)
	}
}
