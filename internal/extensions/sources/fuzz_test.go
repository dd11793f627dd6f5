package sources_test

import (
	"encoding/json"
	"regexp"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/extensions/manifest"
	"github.com/junctor-run/junctor/internal/extensions/sources"
)

// FuzzForeign holds what every mapping promises: whatever strangers declare, what
// is left of it passes the manifest's check, and the catalog rejects no more of it
// than schemas that are none.
func FuzzForeign(f *testing.F) {
	f.Add("github", "create branch", `{"type":"object"}`, "text")
	f.Add("a:b", "device.list_node_functions", `{"type":"object","properties":{"x":{"type":"string"}}}`, "\u202e")
	f.Add("..", "fn.x", `{}`, "\x00")
	f.Add("x", "message.send", `{"type":"object","$ref":"http://example.com"}`, "tag")
	own := regexp.MustCompile(`^[A-Za-z0-9._:-]{1,60}$`)
	f.Fuzz(func(t *testing.T, id, name, schema, words string) {
		hold := func(x manifest.Extension, _ []string, err error) {
			if err != nil {
				if !own.MatchString(id) {
					return // the caller answers for its own ids
				}
				t.Fatalf("%v", err)
			}
			c, err := catalog.New(catalog.Settings{}, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := c.Replace(capability.Batch{Source: x.ID, Modules: []capability.Module{x.Module()}}); err != nil {
				t.Fatal(err)
			}
			for runtime, reason := range c.Snapshot().Rejected() {
				if reason != "invalid_schema" {
					t.Fatalf("%s is rejected: %s", runtime, reason)
				}
			}
			compile.New(c).Compile(&capability.Context{})
		}
		doc := json.RawMessage(schema)
		hold(sources.MCP(sources.MCPServer{
			ID: id, Tools: []sources.MCPTool{{Name: name, Description: words, InputSchema: doc, OutputSchema: doc}, {Name: words, InputSchema: doc}},
			Prompts: []sources.MCPPrompt{{Name: name}, {Name: words}}, Resources: []sources.MCPResource{{URI: name, Title: words}},
		}))
		hold(sources.CMPNode(sources.Node{
			ID: id, Tags: []string{words, name}, Functions: []sources.NodeFunction{{Name: name, Description: words, InputSchema: doc, OutputSchema: doc}, {Name: words, InputSchema: doc}},
		}))
		hold(sources.TaskAgents([]sources.Framework{{ID: name, Installed: true}, {ID: words}}))
		if _, _, err := sources.Local(sources.LocalExtension{ID: "local.x", Enabled: true, AgentVisible: []string{"all"}, Commands: []sources.LocalCommand{
			{Name: name, Summary: words, Aliases: []string{words}, Actions: []sources.LocalAction{{ID: words, Args: []sources.LocalArg{{Name: name, Description: words}}}, {ID: "ok"}}}, {Name: words},
		}}); err != nil {
			t.Fatal(err)
		}
	})
}
