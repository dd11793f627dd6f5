package config

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

// MCP configures the MCP door.
type MCP struct {
	PageSize       int           `koanf:"page_size" doc:"Tools on a page of tools/list."`
	Exposure       string        `koanf:"exposure" doc:"What tools/list contains: full, hybrid (128 tools and 256 KiB of schemas at most, of all providers in turn before the server's own; the rest by catalog_search), search (only the tools that find others) or auto (full within these limits, else hybrid). Limits: exposure.maxDirect and exposure.maxSchemaBytes of catalog.yaml."`
	Views          []View        `koanf:"views" doc:"Parts of the catalog, each under /mcp/NAME. exposure: as mcp.exposure; modules: globs of module ids (none: all); own_names: upstreams' own names of tools and prompts; name_limit: 32 to 64 bytes (48); dotted: names with dots. As a variable: a JSON list."`
	TaskAfter      time.Duration `koanf:"task_after" doc:"A longer tools/call becomes a task, if the client declares the tasks extension."`
	SessionIdle    time.Duration `koanf:"session_idle" doc:"An unused session ends; its client starts another."`
	AllowedOrigins []string      `koanf:"allowed_origins" doc:"Web origins, besides the server's own, that may call /mcp from a browser."`
}

func defaultMCP() MCP {
	return MCP{PageSize: 100, Exposure: "auto", TaskAfter: 2 * time.Second, SessionIdle: time.Hour}
}

// check returns an error for the first invalid setting.
func (m *MCP) check() error {
	switch {
	case !slices.Contains([]string{"full", "hybrid", "search", "auto"}, m.Exposure):
		return fmt.Errorf("mcp.exposure: %q is not one of full, hybrid, search, auto", m.Exposure)
	case m.PageSize <= 0:
		return fmt.Errorf("mcp.page_size: must be more than 0")
	case m.SessionIdle <= 0:
		return fmt.Errorf("mcp.session_idle: must be more than 0")
	}
	return checkViews(m.Views)
}

// View is a named selection of the catalog for clients of the MCP door.
type View struct {
	Name      string   `koanf:"name"`
	Exposure  string   `koanf:"exposure"`
	Modules   []string `koanf:"modules"`
	OwnNames  bool     `koanf:"own_names"`
	NameLimit int      `koanf:"name_limit"`
	Dotted    bool     `koanf:"dotted"`
}

// checkViews returns an error for the first view with a malformed or repeated name, or with
// an invalid exposure, name_limit or glob.
func checkViews(views []View) error {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	seen := map[string]bool{"default": true, "": true}
	for _, v := range views {
		switch {
		case seen[v.Name] || len(v.Name) > 64 || strings.Trim(v.Name, letters) != "" || strings.Trim(v.Name, ".") == "":
			return fmt.Errorf("mcp.views: %q is not a name of a view: letters, digits, . _ and -, at most 64, not default, and none twice", v.Name)
		case !slices.Contains([]string{"", "full", "hybrid", "search", "auto"}, v.Exposure):
			return fmt.Errorf("mcp.views: %s: exposure %q is not one of full, hybrid, search, auto", v.Name, v.Exposure)
		case v.NameLimit != 0 && (v.NameLimit < 32 || v.NameLimit > 64):
			return fmt.Errorf("mcp.views: %s: name_limit %d is not between 32 and 64", v.Name, v.NameLimit)
		}
		seen[v.Name] = true
		for _, glob := range v.Modules {
			if _, err := path.Match(glob, ""); err != nil {
				return fmt.Errorf("mcp.views: %s: %q is not a glob of module ids", v.Name, glob)
			}
		}
	}
	return nil
}

// parseViews parses the variable's form of the views: a JSON list of objects.
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
