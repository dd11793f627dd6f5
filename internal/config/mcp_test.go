package config

import (
	"strings"
	"testing"
)

func TestViewsThatAreNoneAreRefused(t *testing.T) {
	t.Parallel()
	for name, views := range map[string][]View{
		"no name": {{}}, "default": {{Name: "default"}}, "dots": {{Name: ".."}}, "odd": {{Name: "a/b"}}, "twice": {{Name: "a"}, {Name: "a"}},
		"exposure": {{Name: "a", Exposure: "some"}}, "limit": {{Name: "a", NameLimit: 31}}, "glob": {{Name: "a", Modules: []string{"["}}},
	} {
		if err := checkViews(views); err == nil || !strings.Contains(err.Error(), "mcp.views") {
			t.Errorf(`%s: %v; want an error, err.Error() with "mcp.views"`, name, err)
		}
	}
	if err := checkViews([]View{{Name: "a.b-c_1", Exposure: "full", Modules: []string{"mcp.*"}, NameLimit: 64}}); err != nil {
		t.Error(err)
	}
}
