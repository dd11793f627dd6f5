package declaration_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/actions"
	"github.com/junctor-run/junctor/internal/extensions/declaration"
)

func parse(t *testing.T, doc string) declaration.Extension {
	t.Helper()
	x, diagnostics, err := declaration.Parse([]byte(doc))
	if err != nil || len(diagnostics) > 0 {
		t.Fatalf("%v %v; want no error, len(diagnostics) at most 0", err, diagnostics)
	}
	return x
}

func one(contribution string) string {
	return `{"id":"x","contributions":[` + contribution + `]}`
}

func TestEveryUnknownFieldIsNamedByItsPath(t *testing.T) {
	t.Parallel()
	x, diagnostics, err := declaration.Parse([]byte(`{"id":"x","colour":1,"install":{"packageSpec":"p","mirror":"m"},"contributions":[
		{"id":"a","kind":"adapter.runtime","provider":{"kind":"x","instances":[{"id":"i","availability":"ready"},{"id":"j","availability":{"state":"ready","mood":"good"}}]}},
		{"id":"b","kind":"capability.agent-tool","Title":"case counts","tool":{"name":"t","inputSchema":{"anything":{"goes":true}},"a/b~c":0},"arbitration":{"rank":1,"slott":"memory"}}],
		"channels":[{"id":"c","dock":{"adapterId":"c","capabilities":{"polls":true,"pols":true}}}]}`))
	if err != nil || len(x.Contributions) != 2 {
		t.Fatalf("%v; want no error, len(x.Contributions) = 2", err)
	}
	want := []string{
		"/channels/0/dock/capabilities/pols", "/colour", "/contributions/0/provider/instances/1/availability/mood", "/contributions/1/Title",
		"/contributions/1/arbitration/slott", "/contributions/1/tool/a~1b~0c", "/install/mirror",
	}
	for i := range want {
		want[i] += " is not a known field"
	}
	if diff := cmp.Diff(want, diagnostics); diff != "" {
		t.Errorf("diff (-want +got):\n%s", diff)
	}
}

func TestParseIsStrict(t *testing.T) {
	t.Parallel()
	for name, doc := range map[string]string{
		"twice": `{"id":"x","id":"y"}`, "not UTF-8": "{\"id\":\"x\",\"name\":\"\xff\"}", "trailing": `{"id":"x"}{}`, "no object": `[]`,
		"no id":  `{}`,
		"bad id": `{"id":"-x"}`, "long id": `{"id":"` + strings.Repeat("x", 129) + `"}`, "stage": `{"id":"x","stage":"flying"}`,
		"origin": `{"id":"x","origin":"mars"}`,
		"choice": `{"id":"x","install":{"defaultChoice":"torrent"}}`, "label": `{"id":"x","label":"a\u202eb"}`,
		"channel": `{"id":"x","channels":[{"id":""}]}`,
		"no kind": one(`{"id":"a"}`), "contribution id": one(`{"id":"a/b","kind":"k"}`),
		"title":      one(`{"id":"a","kind":"k","title":"` + strings.Repeat("ü", 121) + `"}`),
		"visibility": one(`{"id":"a","kind":"k","visibility":"agnet"}`), "mode": one(`{"id":"a","kind":"k","permissionMode":"x"}`),
		"gate": one(`{"id":"a","kind":"k","policy":{"failureMode":"fail"}}`), "selector": one(`{"id":"a","kind":"k","selectors":["colour"]}`),
		"state": one(`{"id":"a","kind":"k","availability":"fine"}`), "requires": one(`{"id":"a","kind":"k","dependsOn":{"requires":["b"]}}`),
		"tags":               one(`{"id":"a","kind":"k","tags":["` + strings.Repeat(`t","`, 16) + `t"]}`),
		"empty tag":          one(`{"id":"a","kind":"k","tags":[""]}`),
		"telemetry key":      one(`{"id":"a","kind":"k","telemetryTags":{"Team":"x"}}`),
		"telemetry long key": one(`{"id":"a","kind":"k","telemetryTags":{"` + strings.Repeat("k", 33) + `":"x"}}`),
		"telemetry value":    one(`{"id":"a","kind":"k","telemetryTags":{"team":"` + strings.Repeat("v", 65) + `"}}`),
		"instance twice":     one(`{"id":"a","kind":"k","provider":{"instances":[{"id":"i"},{"id":"i"}]}}`),
		"blank instance":     one(`{"id":"a","kind":"k","provider":{"instances":[{"id":" "}]}}`),
		"instance state":     one(`{"id":"a","kind":"k","provider":{"instances":[{"id":"i","availability":"x"}]}}`),
		"schema":             one(`{"id":"a","kind":"k","tool":{"name":"t","inputSchema":[]}}`), "tool": one(`{"id":"a","kind":"k","tool":{}}`),
		"backend":        one(`{"id":"a","kind":"k","backend":{"class":"c"}}`),
		"health":         one(`{"id":"a","kind":"k","backend":{"class":"c","id":"i","health":"ill"}}`),
		"augment":        one(`{"id":"a","kind":"k","augment":{"effect":"explode"}}`),
		"ownership":      one(`{"id":"a","kind":"k","augment":{"effect":"veto","ownership":"mine"}}`),
		"chat kind":      one(`{"id":"a","kind":"k","adapter":{"conversationKinds":["opera"]}}`),
		"adapter action": one(`{"id":"a","kind":"k","adapter":{"actions":["a b"]}}`),
		"route method":   one(`{"id":"a","kind":"k","routes":[{"method":"BREW","path":"/"}]}`),
		"route path":     one(`{"id":"a","kind":"k","routes":[{"method":"GET","path":"/a/../b"}]}`),
		"relative route": one(`{"id":"a","kind":"k","routes":[{"method":"GET","path":"a"}]}`),
		"route auth":     one(`{"id":"a","kind":"k","routes":[{"method":"GET","path":"/","auth":"none"}]}`),
		"auth":           one(`{"id":"a","kind":"k","auth":{"providerId":" "}}`),
		"auth kind":      one(`{"id":"a","kind":"k","auth":{"providerId":"p","methods":[{"id":"m","kind":"magic"}]}}`),
		"cli":            one(`{"id":"a","kind":"k","cli":{"mode":"x"}}`), "setup": one(`{"id":"a","kind":"k","setup":{"target":"x"}}`),
		"setup mode": one(`{"id":"a","kind":"k","setup":{"modes":["x"]}}`),
		"dock":       one(`{"id":"a","kind":"k","adapter":{"dock":{"adapterId":"a","textChunkLimit":-1}}}`),
	} {
		if _, _, err := declaration.Parse([]byte(doc)); capability.AsError(err) == nil || capability.AsError(err).Reason != "invalid_manifest" {
			t.Errorf(`%s: %v; want capability.AsError(err) not nil, capability.AsError(err).Reason = "invalid_manifest"`, name, err)
		}
	}
	if _, _, err := declaration.Parse(make([]byte, declaration.MaxBytes+1)); capability.AsError(err).Code != capability.CodeTooLarge {
		t.Errorf("%v; want capability.AsError(err).Code = capability.CodeTooLarge", err)
	}
	x := declaration.Extension{ID: "x", Contributions: []declaration.Contribution{
		{ID: "a", Kind: "k", Actions: make([]capability.Action, 257)},
	}}
	if x.Check() == nil {
		t.Error("257 actions; want x.Check() not nil")
	}
}

func TestTextIsCleaned(t *testing.T) {
	t.Parallel()
	x, diagnostics, err := declaration.Parse([]byte(one(`{"id":"a","kind":"capability.agent-tool","title":"a\u0007\u200b\u202eb","description":"` + strings.Repeat("ü", 2000) + `\u0000","tool":{"name":"t"}}`)))
	if err != nil || len(diagnostics) != 1 {
		t.Fatalf("err = %v, want nil; len(diagnostics) = %v, want 1; diagnostics = %q", err, len(diagnostics), diagnostics)
	}
	c := x.Module().Contributions[0]
	if c.Title != "ab" || c.Description != strings.Repeat("ü", 1024) {
		t.Errorf(`%q, %d bytes; want c.Title = "ab", c.Description = strings.Repeat("ü", 1024)`, c.Title, len(c.Description))
	}
}

func TestScopeThatIdentifiesAnAdapterBecomesItsProvider(t *testing.T) {
	t.Parallel()
	x, diagnostics, err := declaration.Parse([]byte(one(`{"id":"a","kind":"adapter.runtime","actions":["message.send"],"scope":{"channel":["slack"],"account":["work","home","work"],"agent":["b","a","b"]}}`)))
	if err != nil || len(diagnostics) != 1 {
		t.Fatalf("err = %v, want nil; len(diagnostics) = %v, want 1; diagnostics = %q", err, len(diagnostics), diagnostics)
	}
	var keys []string
	for _, c := range x.Module().Contributions {
		keys = append(keys, string(c.Provider))
		if diff := cmp.Diff(&capability.Scope{Agent: []string{"a", "b"}}, c.Scope); diff != "" {
			t.Errorf("diff (-want +got):\n%s", diff)
		}
	}
	if diff := cmp.Diff([]string{"messaging:slack:home", "messaging:slack:work"}, keys); diff != "" {
		t.Errorf(`diff = %q, want ""`, diff)
	}
	for _, stays := range []string{
		`{"id":"a","kind":"adapter.runtime","scope":{"account":["*"]}}`,
		`{"id":"a","kind":"adapter.runtime","scope":{"channel":["a","b"],"account":["c"]}}`,
		`{"id":"a","kind":"adapter.runtime","provider":{"instances":[{"id":"i"}]},"scope":{"account":["i"]}}`,
		`{"id":"a","kind":"capability.rpc","scope":{"account":["i"]}}`,
	} {
		if parse(t, one(stays)).Contributions[0].Scope == nil {
			t.Errorf("%s: scope = nil, want one", stays)
		}
	}
}

// TestImportTable holds that the table has every word of other adapters that can be
// imported.
func TestImportTable(t *testing.T) {
	t.Parallel()
	words := strings.Fields(`send sendAttachment sendWithEffect sticker x-post x-dm x-quote reply thread-reply x-reply broadcast poll poll-vote react x-like x-unlike
		reactions edit delete unsend pin unpin list-pins thread-create thread-list topic-create topic-edit read x-timeline
		x-tweet-info search x-search download-file
		channel-create channel-edit channel-delete channel-move category-create category-edit category-delete renameGroup
		setGroupIcon addParticipant removeParticipant
		role-add role-remove timeout kick ban leaveGroup emoji-upload sticker-upload event-list event-create set-profile
		set-presence member-info role-info channel-info
		permissions x-user-info x-me channel-list emoji-list sticker-search voice-status x-follow x-unfollow x-repost x-unrepost`)
	slices.Sort(words)
	if diff := cmp.Diff(words, declaration.ImportWords()); diff != "" {
		t.Errorf("diff (-want +got):\n%s", diff)
	}
	for _, word := range words {
		in, known := declaration.ActionOf(word)
		if !known {
			t.Errorf("%s is not known; want known = true", word)
		}
		row, ok := actions.Lookup(in.Action)
		if !ok {
			if !slices.Contains([]string{"x-follow", "x-unfollow", "x-repost", "x-unrepost"}, word) {
				t.Errorf(`%s means %q; want []string{"x-follow", "x-unfollow", "x-repost", "x-unrepost"} with %v`,
					word, in.Action, word)
			}
			continue
		}
		var schema struct {
			Properties map[string]struct {
				Enum []any `json:"enum"`
			} `json:"properties"`
		}
		if err := json.Unmarshal(row.InputSchema, &schema); err != nil {
			t.Fatal(err)
		}
		for name, value := range in.Args {
			p, ok := schema.Properties[name]
			if !ok || len(p.Enum) > 0 && !slices.Contains(p.Enum, value) {
				t.Errorf("%s: %s has no %s=%v; want ok = true, not (len(p.Enum) > 0 && !slices.Contains(p.Enum, value))",
					word, in.Action, name, value)
			}
		}
	}
	if in, known := declaration.ActionOf("unpin"); !known || in.Action != "message.pin" || in.Args["op"] != "unpin" {
		t.Errorf(`declaration.ActionOf("unpin"): known = %v, want true; in.Action = %q, want "message.pin"; in.Args["op"] = %v, want "unpin"`,
			known, in.Action, in.Args["op"])
	}
}

func TestAdapterWordsWithoutAFamilyStayTools(t *testing.T) {
	t.Parallel()
	x, diagnostics, err := declaration.Parse([]byte(one(`{"id":"a","kind":"adapter.runtime","adapter":{"actions":["send","sticker","message.react","x-follow","teleport"]},
		"provider":{"kind":"x","instances":[{"id":"i"},{"id":"j","actions":["send","teleport"]}]}}`)))
	if err != nil || len(diagnostics) != 1 || !strings.Contains(diagnostics[0], "/contributions/0/adapter/actions/4") {
		t.Fatalf("diagnostics = %q, err = %v; want one of action 4", diagnostics, err)
	}
	var got []string
	for _, c := range x.Module().Contributions {
		got = append(got, fmt.Sprint(c.ID, " ", c.Action, c.Tool, " ", c.Provider, " ", c.Unsupported))
	}
	want := []string{
		"a message.send messaging:x:i false", "a message.send messaging:x:j false", "a message.react messaging:x:i false",
		"a message.react messaging:x:j true",
		"a.x-follow x-follow ext:x:i false", "a.x-follow x-follow ext:x:j true", "a.teleport teleport ext:x:i false",
		"a.teleport teleport ext:x:j false",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("diff (-want +got):\n%s", diff)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"id":"x","contributions":[{"id":"a","kind":"adapter.runtime","adapter":{"actions":["send","x"]},"scope":{"account":["a"]}}]}`))
	f.Add([]byte(`{"id":"x","contributions":[{"id":"a","kind":"capability.agent-tool","tool":{"name":"t","inputSchema":{}},"availability":"ready","routes":[{"method":"GET","path":"/"}]}]}`))
	f.Add([]byte(`{"id":"x","channels":[{"id":"c","order":1,"dock":{"adapterId":"a"}}],"contributions":[{"id":"a","kind":"capability.memory","actions":["memory.search"],"arbitration":{"slot":"memory","selectorId":"builtin"}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		x, _, err := declaration.Parse(data)
		if err != nil {
			return
		}
		c, err := catalog.New(catalog.Settings{}, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, kept := range declaration.Resolve([]declaration.Extension{x}, nil).Extensions {
			if _, _, err := c.Replace(capability.Batch{Source: "x", Modules: []capability.Module{kept.Module()}}); err != nil {
				t.Fatalf("what Parse admits the catalog refuses: %v", err)
			}
		}
		doc, err := json.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := declaration.Parse(doc); err != nil {
			t.Fatalf("written and read again: %v\n%s", err, doc)
		}
	})
}
