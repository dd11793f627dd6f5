package config

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
)

// View is one named cut of the catalog at the MCP door.
type View struct {
	Name      string   `koanf:"name"`
	Exposure  string   `koanf:"exposure"`
	Modules   []string `koanf:"modules"`
	OwnNames  bool     `koanf:"own_names"`
	NameLimit int      `koanf:"name_limit"`
	Dotted    bool     `koanf:"dotted"`
}

// checkViews refuses what no view can be.
func checkViews(views []View) error {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	seen := map[string]bool{"default": true, "": true}
	for _, v := range views {
		switch {
		case seen[v.Name] || len(v.Name) > 64 || strings.Trim(v.Name, letters) != "" || strings.Trim(v.Name, ".") == "":
			return fmt.Errorf("mcp.views: %q is no name of a view: letters, digits, . _ and -, at most 64, not default, and none twice", v.Name)
		case !slices.Contains([]string{"", "full", "hybrid", "search", "auto"}, v.Exposure):
			return fmt.Errorf("mcp.views: %s: exposure %q is not one of full, hybrid, search, auto", v.Name, v.Exposure)
		case v.NameLimit != 0 && (v.NameLimit < 32 || v.NameLimit > 64):
			return fmt.Errorf("mcp.views: %s: name_limit %d is not between 32 and 64", v.Name, v.NameLimit)
		}
		seen[v.Name] = true
		for _, glob := range v.Modules {
			if _, err := path.Match(glob, ""); err != nil {
				return fmt.Errorf("mcp.views: %s: %q is no glob of module ids", v.Name, glob)
			}
		}
	}
	return nil
}

// parseViews reads the form of the variable: the list as JSON.
func parseViews(s string) (out []any, err error) {
	if err := json.Unmarshal([]byte(s), &out); err != nil {
		return nil, fmt.Errorf("views are written as a JSON list of objects: %w", err)
	}
	return out, nil
}

func plainViews(views []View) []any {
	out := []any{}
	for _, v := range views {
		out = append(out, map[string]any{
			"name": v.Name, "exposure": v.Exposure, "modules": v.Modules, "own_names": v.OwnNames, "name_limit": v.NameLimit, "dotted": v.Dotted,
		})
	}
	return out
}
