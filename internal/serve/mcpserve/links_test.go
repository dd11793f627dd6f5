package mcpserve

import (
	"strings"
	"testing"

	"github.com/junctor-run/junctor/protocol/mcpwire"
)

// TestLinksAreReadAsRulesAllow requires that a linked resource is read only after the caller received
// the link, and that a link does not open what the caller may not read by its own entry.
func TestLinksAreReadAsRulesAllow(t *testing.T) {
	st, _ := newUpstreamStack(t, stackOptions{
		rules: `@id("no-a") forbid (principal, action, resource == Capability::"mcp.links/resource.listedl#context.augment@up");
			@id("no-t") forbid (principal, action, resource == Capability::"mcp.links/resource-template.secretname#context.augment@up");
			@id("no-two") forbid (principal == Principal::"agent:two", action, 
				resource == Capability::"mcp.links/resource-read.read#runtime.rpc@up");`,
	})
	reader := thing(kindRead, "capability.rpc", "read", "")
	reader.Definition = nil
	st.offer((&upstream{}).batch("mcp.links", declared("link", ""), reader,
		thing(kindResource, "capability.context-augmenter", "listed:l", `{"uri":"listed:l","name":"l"}`),
		thing(kindTemplate, "capability.context-augmenter", "secret:{name}", `{"uriTemplate":"secret:{name}","name":"s"}`)))
	id := st.open(st.agent, mcpwire.Version20251125)
	post := func(token, session, method, params string) string {
		return st.do("POST", token, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{`+params+`}}`, mcpwire.HeaderSession, session).body
	}
	read := func(uri string) string { return post(st.agent, id, "resources/read", `"uri":"`+uri+`"`) }
	const unknown = `"code":-32002`
	wants(t, read("linked:a"), unknown)
	wants(t, post(st.agent, id, "tools/call", `"name":"link","arguments":{}`), "resource_link")
	wants(t, read("linked:a"), "text of linked:a")
	for _, uri := range []string{"listed:l", "secret:x", "linked:b", "junctor://calls/mine2"} {
		wants(t, read(uri), unknown)
	}
	other := st.open(st.agent2, mcpwire.Version20251125)
	if got := post(st.agent2, other, "tools/call", `"name":"link","arguments":{}`); !strings.Contains(got, "resource_link") {
		t.Fatalf("the call of another principal = %s, want a link", got)
	}
	wants(t, post(st.agent2, other, "resources/read", `"uri":"linked:a"`), unknown)
}

func TestLinksOfOneViewerAreBounded(t *testing.T) {
	var l links
	long := strings.Repeat("x", maxURI-2)
	for i := range 3 * maxLinked / maxURI {
		l.add("viewer", "mcp.a", string(rune('a'+i))+long)
		l.add("viewer", "mcp.a", "last")
	}
	own := l.of["viewer"]
	if own.size > maxLinked || len(own.order) != len(own.module) || l.moduleOf("viewer", "last") != "mcp.a" ||
		l.moduleOf("viewer", "a"+long) != "" {
		t.Errorf("%d bytes in %d links of %d, the last of %q, the first of %q; want at most %d bytes, the last one and not the first",
			own.size, len(own.order), len(own.module), l.moduleOf("viewer", "last"), l.moduleOf("viewer", "a"+long), maxLinked)
	}
}
