package extension_test

import (
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/extensions/extension"
)

// FuzzExtension holds that whatever a package declares, what is left of it passes the
// manifest's check, and the catalog rejects no more of it than invalid schemas.
func FuzzExtension(f *testing.F) {
	f.Add("create branch", "text")
	f.Add("device.list_node_functions", "\u202e")
	f.Add("fn.x", "\x00")
	f.Add("message.send", "tag")
	f.Fuzz(func(t *testing.T, name, words string) {
		p := extension.Package{Manifest: extension.Manifest{ID: "local.x"}, Commands: []extension.Command{
			{Name: name, Summary: words, Aliases: []string{words}, Actions: []extension.Action{{
				ID:   words,
				Args: []extension.Argument{{Name: name, Description: words}},
			}, {ID: "ok"}}}, {Name: words},
		}}
		x, _, err := p.Extension("INSTALLED", true, []string{"all"})
		if err != nil {
			t.Fatal(err)
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
				t.Fatalf(`%s is rejected: %s; want reason = "invalid_schema"`, runtime, reason)
			}
		}
		compile.New(c).Compile(&capability.Context{})
	})
}
