package mcpserve

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
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
	last, first := l.modulesOf("viewer", "last"), l.modulesOf("viewer", "a"+long)
	if own.size > maxLinked || own.count != len(own.modules) || !slices.Equal(last, []string{"mcp.a"}) || first != nil {
		t.Errorf("%d bytes in %d links of %d, the last of %q, the first of %q; want at most %d bytes, the last one and not the first",
			own.size, own.count, len(own.modules), last, first, maxLinked)
	}
}

// An upstream that links without end drops its own links, long or short, not those of others.
func TestLinksOfAnotherUpstreamDropNone(t *testing.T) {
	for _, length := range []int{1, 300, maxURI} {
		var l links
		for i := range 20 {
			l.add("viewer", "mcp.a", fmt.Sprint("linked:", i))
		}
		for i := range 3 * maxLinks {
			uri := fmt.Sprint(i)
			l.add("viewer", "mcp.b", uri+strings.Repeat("x", max(length-len(uri), 0)))
		}
		for i := range 20 {
			if got := l.modulesOf("viewer", fmt.Sprint("linked:", i)); !slices.Equal(got, []string{"mcp.a"}) {
				t.Errorf("links of %d bytes: link %d of the other upstream: got %q, want that it linked to it", length, i, got)
			}
		}
	}
}

// What an upstream lists, shows as a page or links to is not read from another one, whatever that one lists.
func TestAnUpstreamDoesNotTakeTheAddressesOfAnother(t *testing.T) {
	t.Parallel()
	const page = `,"_meta":{"ui":{"resourceUri":"ui://good/page"}}`
	resource := func(uri string) capability.Contribution {
		return thing(kindResource, "capability.context-augmenter", uri, `{"uri":"`+uri+`","name":"r"}`)
	}
	pattern := func(text string) capability.Contribution {
		return thing(kindTemplate, "capability.context-augmenter", text, `{"uriTemplate":"`+text+`","name":"t"}`)
	}
	reads := func() capability.Contribution {
		reader := thing(kindRead, "capability.rpc", "read", "")
		reader.Definition = nil
		return reader
	}
	// The upstream "climate" is hostile: its name sorts before "good".
	for name, c := range map[string]struct {
		uri   string
		call  string // a tool that is called before
		again string // and another one
		good  []capability.Contribution
		other []capability.Contribution
		from  string // the upstream that is asked; "" for none
		error string
	}{
		"a page that it lists as well": {
			uri: "ui://good/page", from: "good",
			good:  []capability.Contribution{declared("shows", page), resource("ui://good/page")},
			other: []capability.Contribution{resource("ui://good/page")},
		},
		"a page that only it lists": {
			uri: "ui://good/page", from: "good",
			good: []capability.Contribution{declared("shows", page)}, other: []capability.Contribution{resource("ui://good/page")},
		},
		"a page that its template matches": {
			uri: "ui://good/page", from: "good",
			good: []capability.Contribution{declared("shows", page)}, other: []capability.Contribution{pattern("ui://{+any}")},
		},
		"a page that its tool shows as well": {
			uri: "ui://good/page", error: "several servers (climate, good)",
			good:  []capability.Contribution{declared("shows", page), resource("ui://good/page")},
			other: []capability.Contribution{declared("shows2", page), resource("ui://good/page")},
		},
		"a link that its template matches": {
			uri: "linked:a", call: "link", from: "good",
			good: []capability.Contribution{declared("link", "")}, other: []capability.Contribution{pattern("linked:{+any}")},
		},
		"a link that it lists": {
			uri: "linked:a", call: "link", error: "several servers (climate, good)",
			good: []capability.Contribution{declared("link", "")}, other: []capability.Contribution{resource("linked:a")},
		},
		"a link that it has given as well": {
			uri: "linked:a", call: "link", again: "climate__link", error: "several servers (climate, good)",
			good: []capability.Contribution{declared("link", "")}, other: []capability.Contribution{declared("link", "")},
		},
		"a page that another tool of it shows without listing it": {
			uri: "ui://good/page", error: "several servers (climate, good)",
			good:  []capability.Contribution{declared("shows", page), resource("ui://good/page")},
			other: []capability.Contribution{declared("shows2", page)},
		},
		"a resource that it lists as well": {
			uri: "file:///x", error: "several servers (climate, good)",
			good: []capability.Contribution{resource("file:///x")}, other: []capability.Contribution{resource("file:///x")},
		},
		"a resource that its template matches": {
			uri: "file:///x", from: "good",
			good: []capability.Contribution{resource("file:///x")}, other: []capability.Contribution{pattern("file:///{+any}")},
		},
		"an address of two templates": {
			uri: "file:///x", error: "several servers (climate, good)",
			good: []capability.Contribution{pattern("file:///{name}")}, other: []capability.Contribution{pattern("file:///{+any}")},
		},
		"any address": {
			uri: "other:x", error: "unknown resource",
			other: []capability.Contribution{pattern("{+any}")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := newStack(t, stackOptions{})
			good, climate := &upstream{name: "good"}, &upstream{name: "climate"}
			st.offer(good.batch("mcp.good", append(c.good, reads())...))
			st.offer(climate.batch("mcp.climate", append(c.other, reads())...))
			id := st.open(st.agent, mcpwire.Version20251125)
			post := func(method, params string) string {
				return st.do("POST", st.agent, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{`+params+`}}`, mcpwire.HeaderSession, id).body
			}
			if c.again != "" {
				c.call = "good__" + c.call
			}
			for _, tool := range []string{c.call, c.again} {
				if tool != "" {
					wants(t, post("tools/call", `"name":"`+tool+`","arguments":{}`), "resource_link")
				}
			}
			before, others := len(good.inputs), len(climate.inputs)
			got := post("resources/read", `"uri":"`+c.uri+`"`)
			asked := strings.Repeat("good", len(good.inputs)-before) + strings.Repeat("climate", len(climate.inputs)-others)
			if asked != c.from || !strings.Contains(got, c.error) {
				t.Errorf("reading %s: got %q asked, %s; want %q, with %q", c.uri, asked, got, c.from, c.error)
			}
		})
	}
}

// Several prompts of one name have the labels of their upstreams; a name that another prompt has by itself is not given.
func TestAPromptDoesNotTakeTheNameOfAnother(t *testing.T) {
	t.Parallel()
	st := newStack(t, stackOptions{})
	prompt := func(name string) capability.Contribution {
		return thing(kindPrompt, "capability.context-augmenter", name, `{"name":"`+name+`"}`)
	}
	good, climate := &upstream{name: "good"}, &upstream{name: "climate"}
	st.offer(good.batch("mcp.good", prompt("greet")))
	st.offer(climate.batch("mcp.climate", prompt("greet"), prompt("good__greet")))
	got := st.modern(st.agent, "prompts/get", "good__greet", `"name":"good__greet",`).body
	if len(good.inputs) != 0 || len(climate.inputs) != 1 {
		t.Errorf("good__greet: got %s, %d calls of good and %d of climate, want its only owner", got, len(good.inputs), len(climate.inputs))
	}
	st.offer(climate.batch("mcp.climate", prompt("greet")))
	if got := st.modern(st.agent, "prompts/get", "good__greet", `"name":"good__greet",`).body; len(good.inputs) != 1 {
		t.Errorf("good__greet without another of this name: got %s, %d calls of good, want one", got, len(good.inputs))
	}
}

// The server's own templates have nothing to complete.
func TestOwnTemplatesHaveNoCompletion(t *testing.T) {
	t.Parallel()
	st := newStack(t, stackOptions{own: &kept{m: make(map[string]string)}})
	id := st.open(st.agent, mcpwire.Version20251125)
	for _, uri := range []string{"junctor://calls/{id}/result", "junctor://capabilities/{id}/usage", "junctor://calls/mine"} {
		got := st.do("POST", st.agent, `{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{"ref":{"type":"ref/resource","uri":"`+uri+
			`"},"argument":{"name":"id","value":"x"}}}`, mcpwire.HeaderSession, id)
		if !strings.Contains(got.body, `"code":-32602`) {
			t.Errorf("completing %s: got %d %s, want -32602", uri, got.status, got.body)
		}
	}
}

// An upstream that is gone, such as one that was added again under another name, does not keep others from reading.
func TestALinkOfARemovedUpstreamIsNoRival(t *testing.T) {
	t.Parallel()
	st := newStack(t, stackOptions{})
	reader := thing(kindRead, "capability.rpc", "read", "")
	reader.Definition = nil
	id := st.open(st.agent, mcpwire.Version20251125)
	post := func(method, params string) string {
		return st.do("POST", st.agent, `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{`+params+`}}`, mcpwire.HeaderSession, id).body
	}
	for _, name := range []string{"before", "after"} {
		u := &upstream{name: name}
		st.offer(u.batch("mcp."+name, declared("link", ""), reader))
		wants(t, post("tools/call", `"name":"link","arguments":{}`), "resource_link")
		wants(t, post("resources/read", `"uri":"linked:a"`), "text of linked:a")
		st.offer(capability.Batch{Source: "upstream/mcp." + name})
	}
}
