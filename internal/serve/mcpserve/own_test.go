package mcpserve

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/junctor-run/junctor/capability"
)

// kept is an [Own] in memory.
type kept struct {
	mu sync.Mutex
	m  map[string]string
}

func (k *kept) KeepResult(_ context.Context, principal, invocation string, result []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.m[principal+" "+invocation] = string(result)
	return nil
}

func (k *kept) Result(_ context.Context, principal, invocation string) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if v, ok := k.m[principal+" "+invocation]; ok {
		return []byte(v), nil
	}
	return nil, capability.Errorf(capability.CodeNotFound, "result", "no")
}

func (*kept) Calls(_ context.Context, principal string) ([]byte, error) {
	return []byte(`{"calls of":"` + principal + `"}`), nil
}

func (*kept) Usage(extension string) (string, error) { return "# " + extension, nil }

func TestOurOwnResources(t *testing.T) {
	own := &kept{m: make(map[string]string)}
	st, u := newUpstreamStack(t, stackOptions{own: own})
	st.offer(u.batch("mcp.posing", thing(kindResource, "capability.context-augmenter", "junctor://audit/mine",
		`{"uri":"junctor://audit/mine","name":"posing"}`)))
	list := st.modern(st.agent, "resources/list", "", "").body
	wants(t, list, `"file:///a"`, `"junctor://audit/mine"`)
	if strings.Contains(list, "posing") || strings.Index(list, "file:///a") > strings.Index(list, "junctor://") {
		t.Errorf(`list = %v, want !strings.Contains(list, "posing") && strings.Index(list, "file:///a") <= strings.Index(list, "junctor://")`,
			list)
	}
	wants(t, st.modern(st.agent, "resources/templates/list", "", "").body, "junctor://calls/{id}/result", "junctor://capabilities/{id}/usage")
	read := func(token, uri string) string {
		return st.modern(token, "resources/read", uri, `"uri":"`+uri+`",`).body
	}
	wants(t, read(st.agent, "junctor://audit/mine"), `{\"calls of\":\"agent:one\"}`)

	big := st.modern(st.agent, "tools/call", "big", `"name":"big",`)
	wants(t, big.body, `"type":"resource_link"`, `"junctor/truncated":true`)
	if len(big.body) > 2*shownResult {
		t.Errorf("%d bytes; want len(big.body) at most 2 * shownResult", len(big.body))
	}
	_, link, _ := strings.Cut(big.body, `"uri":"`)
	link, _, _ = strings.Cut(link, `"`)
	if whole := read(st.agent, link); len(whole) < maxResult || !strings.Contains(whole, "xxxx") {
		t.Errorf(`%d bytes of %s; want len(whole) at least %v, whole with "xxxx"`, len(whole), link, maxResult)
	}
	foreign, unknown := read(st.agent2, link), read(st.agent2, "junctor://calls/run_0/result")
	if strings.ReplaceAll(foreign, link, "") != strings.ReplaceAll(unknown, "junctor://calls/run_0/result", "") ||
		!strings.Contains(foreign, "-32602") {
		t.Errorf("somebody else's and nobody's differ:\n%s\n%s\nwant strings.ReplaceAll(foreign, link, \"\") = "+
			`strings.ReplaceAll(unknown, "junctor://calls/run_0/result", ""), foreign with "-32602"`, foreign, unknown)
	}

	usage := "junctor://capabilities/test.one%2Fecho%23ext.test.one.echo@one/usage"
	for _, e := range st.surface.listOf(caller{who: st.principal(), key: "k", view: st.surface.views[defaultView]}).shown {
		if e.Entries[0].Contribution.ID == "echo" {
			usage = "junctor://capabilities/" + strings.NewReplacer("/", "%2F", "#", "%23").Replace(string(e.Entries[0].ID)) + "/usage"
		}
	}
	wants(t, read(st.agent, usage), "# test.one")
	wants(t, read(st.agent, strings.ReplaceAll(usage, "echo", "hidden")), "-32602")
}

// A text of ours is there for who may call the action that tells the same, in lists and
// by its address, with or without other resources of ours.
func TestOurOwnTexts(t *testing.T) {
	text := func(name string, action capability.Action) Text {
		return Text{
			URI: "junctor://texts/" + name, Name: name, Title: `"quoted"`, Description: "d", Action: action,
			Read: func(_ context.Context, by capability.Principal) (string, error) {
				if name == "broken" {
					return "", capability.Errorf(capability.CodeFailed, "x", "it broke")
				}
				return "# for " + by.ID, nil
			},
		}
	}
	for _, own := range []Own{nil, &kept{m: make(map[string]string)}} {
		st := newStack(t, stackOptions{own: own, texts: []Text{
			text("open", "fs.list"), text("broken", "fs.readText"), text("closed", "fs.writeText"), text("absent", "git.diff"),
		}, only: `
			@id("no") forbid (principal in Role::"agent", action == Action::"fs.writeText", resource);`})
		list := st.modern(st.agent, "resources/list", "", "").body
		wants(t, list, `"junctor://texts/open"`, `"title":"\"quoted\""`, `"junctor://texts/broken"`)
		if strings.Contains(list, "closed") || strings.Contains(list, "absent") {
			t.Errorf(`list = %v, want !strings.Contains(list, "closed") && !strings.Contains(list, "absent")`, list)
		}
		read := func(uri string) string {
			return st.modern(st.agent, "resources/read", uri, `"uri":"`+uri+`",`).body
		}
		wants(t, read("junctor://texts/open"), `"text/markdown"`, "# for agent:one")
		wants(t, read("junctor://texts/broken"), "-32603")
		unknown := read("junctor://texts/unknown")
		for _, name := range []string{"closed", "absent"} {
			if got := read("junctor://texts/" + name); strings.ReplaceAll(got, name, "unknown") != unknown {
				t.Errorf(`%s differs from what is not there: %s %s; want strings.ReplaceAll(got, name, "unknown") = %v`,
					name, got, unknown, unknown)
			}
		}
	}
}
